"""The retrieval problem: the circuits of models with one head in each layer.

Source: stacked attention heads, section 8, Figure 5 and appendix E.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import mean

import torch

from anchorlab.findings.circuit_panel import circuit_panel
from anchorlab.findings import CircuitFigure, Claim, ClaimResult, Findings, Provenance, Table
from anchorlab.lens import Circuit, Explanation
from anchorlab.lens.circuits import AttentionLosses
from anchorlab.models import VectorSpec
from anchorlab.studies.kit import spread
from anchorlab.studies.retrieval.one_head import (
    SOLVED,
    Solution,
    by_head,
    joining,
    quick,
    smoke,
    solutions,
    view_circuits,
)
from anchorlab.studies.retrieval.settings import layers_of, paper_recipe, paper_task, retrieval_of
from anchorlab.studies.study import Profile, Study
from anchorlab.theory.information_flow import Flow, least_depth
from anchorlab.training import Experiment, Members, TrainedRun

_STUDY = "retrieval/circuits"
SUFFICES = 0.05
"""The loss below which a circuit suffices (appendix E)."""

_SOLVING = f"over models with a loss below {SOLVED:g}"
_EXPLAINED = f"{_SOLVING} whose heads are all explained"

CLAIMS = (
    Claim(
        f"{_STUDY}/solved",
        "The models solve the problem",
        "stacked attention heads, section 8.2",
        "less than 0.01",
        "highest loss of any model on fresh sequences",
        (None, SOLVED),
    ),
    Claim(
        f"{_STUDY}/suffices",
        "With all attention replaced by that of the circuit the loss stays below 0.05",
        "stacked attention heads, appendix E",
        "below 0.05 for all transformers",
        f"share of models whose circuit explains every head and has a loss below {SUFFICES:g}, {_SOLVING}",
        (1.0, 1.0),
    ),
    Claim(
        f"{_STUDY}/needed",
        "No path of the circuit is superfluous",
        "stacked attention heads, appendix E",
        "0.17 to 0.89 after cutting a path, from less than 0.05",
        "smallest factor by which cutting a path raises a circuit's loss while the other paths attend as the model "
        f"makes them, {_EXPLAINED}",
        (3.0, None),
    ),
    Claim(
        f"{_STUDY}/needed-as-printed",
        "With all other attention replaced, cutting any path of the later heads raises the loss to 0.17 and more",
        "stacked attention heads, appendix E",
        "0.17 to 0.89",
        f"lowest loss of a circuit without one path of a head above the first, {_EXPLAINED}",
        (0.17, None),
    ),
    Claim(
        f"{_STUDY}/first-is-indirect",
        "The first head alone is hardly missed then: what it does is to let later heads find their place",
        "stacked attention heads, appendix E",
        "0.05 to 0.1 with uniform attention there",
        f"mean loss of a circuit whose first head attends uniformly, {_EXPLAINED}",
        (0.05, 0.1),
    ),
    Claim(
        f"{_STUDY}/first-joins-pair",
        "The first useful head joins the two members of each pair",
        "stacked attention heads, section 8.2",
        "in all three transformers",
        "share of models in which every path of the circuit's first head goes from the second member of a pair to the "
        f"first, {_EXPLAINED}",
        (1.0, 1.0),
    ),
    Claim(
        f"{_STUDY}/few-heads",
        "Most attention heads do not perform any useful computation",
        "stacked attention heads, section 8.2",
        "8 of 12 heads",
        f"mean share of heads without a path; judged only where there are twice as many layers as can do, {_EXPLAINED}",
        (0.5, 1.0),
    ),
    Claim(
        f"{_STUDY}/more-than-least",
        "The models use one head more than the least number",
        "stacked attention heads, section 8.2",
        "4 heads where 3 would do, in all three",
        f"fewest heads with a path, less the least number of layers with one head behind a mask, {_EXPLAINED}",
        (1.0, None),
    ),
    Claim(
        f"{_STUDY}/differ",
        "But for the first head the circuits are very different",
        "stacked attention heads, section 8.2",
        "very different",
        f"share of pairs of models whose later heads have other paths, their order alone being compared, {_EXPLAINED}",
        (0.5, 1.0),
    ),
)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Finds the circuit of every model and judges it."""
    run = runs[0]
    found = solutions(run)
    uniform = _first_uniform(run, found)
    panels = (circuit_panel(f"seed {one.seed}", one.circuit, layers_of(run)) for one in found)
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Which attention does a model need to follow a chain? Each head's attention is replaced by the "
        f"simplest rule with which the loss stays low, and what is left is cut to what is needed. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=tuple(judge(found, uniform, retrieval_of(run).steps, layers_of(run), provenance.profile)),
        figures=(
            CircuitFigure(
                title="Circuits of models with one head in each layer (Fig 5)",
                caption="Positions of one query's chain from left to right, layers from below, counted from 0. An "
                "arrow leads from the position that is looked at to the one that looks; its number is the loss when it "
                "is cut while all other paths attend as the model makes them.",
                panels=tuple(panels),
            ),
        ),
        tables=(_models(found, uniform), _paths(found)),
        views=(view_circuits(run, found, steps=run.checkpoints[-1:]),),
    )


def _first_uniform(run: TrainedRun, found: Sequence[Solution]) -> list[float]:
    """The loss of each circuit with uniform attention in its first head."""
    task, ensemble = retrieval_of(run), run.ensemble()
    fresh = task.sample("test", 256, seed=1)
    losses = []
    for one in found:
        first = one.circuit.heads[:1]
        changed = {**one.circuit.explanations, **dict.fromkeys(first, Explanation("uniform"))}
        losses.append(AttentionLosses(ensemble.select([one.member]), task, fresh).loss(changed))
    return losses


def judge(
    found: Sequence[Solution], uniform: Sequence[float], steps: int, layers: int, profile: str
) -> list[ClaimResult]:
    """The claims about these models: `uniform` is each circuit's loss with uniform attention in its first head."""
    losses = [one.circuit.model_loss for one in found]
    solving = [one.circuit for one in found if one.solved]
    kept = [
        (one.circuit, loss)
        for one, loss in zip(found, uniform, strict=True)
        if one.solved and one.circuit.paths and not one.circuit.unexplained
    ]
    circuits = [circuit for circuit, _ in kept]
    least = least_depth(steps, Flow(causal=True, heads=1))
    later = [[path.mapped_cut_loss for head in by_head(one.paths)[1:] for path in head] for one in circuits]
    first = [all(path.rule in joining(steps) for path in by_head(one.paths)[0]) for one in circuits]
    differing = [float(later_rules(one) != later_rules(other)) for one, other in combinations(circuits, 2)]
    measured: list[tuple[list[float], Callable[[list[float]], float]]] = [
        (losses, max),
        ([float(one.loss < SUFFICES and not one.unexplained) for one in solving], mean),
        ([one.minimality for one in circuits], min),
        ([min(costs) for costs in later if costs], min),
        ([loss for _, loss in kept], mean),
        ([float(one) for one in first], mean),
        ([1 - len(one.heads) / len(one.explanations) for one in circuits if layers >= 2 * least], mean),
        ([float(len(one.heads) - least) for one in circuits], min),
        (differing, mean),
    ]
    results = []
    for claim, (values, taken) in zip(CLAIMS, measured, strict=True):
        told = f"{len(values)} pairs" if values is differing else f"{len(values)} of {len(found)} models"
        over = spread(torch.tensor(values), "pairs of models" if values is differing else "models")
        results.append(claim.judge(taken(values), profile, over, told) if values else claim.judge(None, profile))
    return results


def later_rules(circuit: Circuit) -> list[frozenset[str]]:
    """What the heads above the first do, in their order."""
    return [frozenset(str(path.rule) for path in head) for head in by_head(circuit.paths)[1:]]


def _models(found: Sequence[Solution], uniform: Sequence[float]) -> Table:
    rows = []
    for one, first in zip(found, uniform, strict=True):
        circuit = one.circuit
        heads = ", ".join(str(layer) for layer, _ in circuit.heads)
        scores = (circuit.faithfulness, circuit.completeness, circuit.minimality if circuit.paths else None)
        losses = (circuit.model_loss, circuit.loss, circuit.live_loss, circuit.empty_loss, first)
        rows.append((one.seed, heads or "none", len(circuit.paths), len(circuit.unexplained), *losses, *scores))
    return Table(
        title="Circuits in numbers",
        caption="Layers, from 0, of the heads with a path. Losses on fresh sequences: of the model; of the circuit "
        "with its maps in place; live, with its queries attending as the model makes them; with all attention uniform; "
        "and of the circuit's maps with its first head uniform. Faithfulness: how much of what attention does for the "
        "model the circuit does. Completeness: how much is lost when the circuit alone is taken from the model. "
        "Minimality: the factor by which the cheapest cut raises the live loss.",
        columns=(
            "seed",
            "layers",
            "paths",
            "unexplained",
            "model",
            "circuit",
            "live",
            "uniform",
            "first uniform",
            "faithful",
            "complete",
            "minimal",
        ),
        rows=tuple(rows),
    )


def _paths(found: Sequence[Solution]) -> Table:
    return Table(
        title="Every path",
        caption="The model's own mean attention along it, and the circuit's loss without it: with all other paths "
        "attending as the model makes them, and with their maps in place, as the paper has it.",
        columns=("seed", "layer", "from", "to", "attention", "cut, live", "cut, maps"),
        rows=tuple(
            (
                one.seed,
                path.layer,
                path.rule.query,
                path.rule.key_text,
                path.attention,
                path.cut_loss,
                path.mapped_cut_loss,
            )
            for one in found
            for path in sorted(one.circuit.paths, key=lambda path: path.layer)
        ),
    )


def _paper() -> Experiment:
    return Experiment(
        paper_task(steps=3),
        VectorSpec(layers=12, heads=1, width=128),
        paper_recipe(24_000, 128),
        Members(seeds=(0, 1, 2)),
        label="twelve layers",
    )


STUDY = Study(
    name=_STUDY,
    title="Retrieval: the circuits that models learn",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            lambda: [quick()],
            "Quick profile: D = 3, N = 4, K = 8, six layers of one head, width 64, no feed-forward layers, 1400 steps "
            "of 64 fresh sequences at 3e-3 after a warm-up, weight decay 0.1, initial scale 0.15, position vectors of "
            "eight neighbours nearly orthogonal. The paper has K = 4, twelve layers of width 128 with feed-forward "
            "layers, and 24,000 steps of 128 out of 262 k sequences at 1e-3.",
        ),
        "paper": Profile(
            lambda: [_paper()],
            "Paper profile: section 8.1. Not given by the paper, and so our choice: rotary frequencies 10000^(-2i/K), "
            "initial scale 0.02, gradient clipping at 1, no warm-up, and a causal mask.",
        ),
        "smoke": Profile(lambda: [smoke()], "Smoke profile: far too short to show anything; it exercises the code."),
    },
    analyse=analyse,
)
