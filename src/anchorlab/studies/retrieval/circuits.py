"""Retrieval: the circuits that models learn.

Which attention does a model need to follow a chain? Each head's attention is replaced by the simplest rule with which
the loss stays low, and what is left is cut to what is needed.

Source: stacked attention heads, section 8, Figure 5 and appendix E.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean

import torch

from anchorlab.findings import CircuitFigure, Table, at_least, at_most, within
from anchorlab.lens import Circuit, Explanation
from anchorlab.lens.circuits import AttentionLosses
from anchorlab.models import VectorSpec
from anchorlab.studies.claim import Measurement, claim, measures_in, spread
from anchorlab.studies.kit import column_table
from anchorlab.studies.retrieval.one_head import (
    QUICK,
    SMOKE,
    SOLVED,
    Solution,
    by_head,
    experiments,
    joining,
    path_columns,
    solutions,
    view_circuits,
)
from anchorlab.studies.retrieval.settings import layers_of, paper, paper_recipe, retrieval_of
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.theory.information_flow import Flow, least_depth
from anchorlab.training import Experiment, TrainedRun

SUFFICES = 0.05
"""The loss below which a circuit suffices (appendix E)."""

EXPLAINED = f"over models with a loss below {SOLVED:g} whose heads are all explained"

PAPER = paper(3, VectorSpec(layers=12, heads=1, width=128), paper_recipe(24_000, 128), seeds=3, label="twelve layers")


@dataclass(frozen=True)
class Found:
    """The circuit of every model, in chains of so many steps and models of so many layers.

    `first_uniform` is the loss of each circuit with uniform attention in its first head, in the models' order.
    """

    models: Sequence[Solution]
    first_uniform: Sequence[float]
    steps: int
    layers: int

    @property
    def explained(self) -> list[Circuit]:
        """The circuits of models that solve the problem, where every head is explained."""
        return [one.circuit for one in self.models if one.explained]

    @property
    def least(self) -> int:
        """The least number of layers with one head behind a mask."""
        return least_depth(self.steps, Flow(causal=True, heads=1))

    def over(self, values: Sequence[float], taken: Callable[[Sequence[float]], float] = mean) -> Measurement | None:
        """Return a measurement of one value for each of some models, by default their mean; None without values."""
        detail = f"{len(values)} of {len(self.models)} models"
        return Measurement(taken(values), spread(torch.tensor(values), "models"), detail) if values else None


def see(runs: Sequence[TrainedRun]) -> Found:
    """Find the circuit of every model, and measure it with uniform attention in its first head on fresh sequences."""
    (run,) = runs
    task, ensemble, models = retrieval_of(run), run.ensemble(), solutions(run)
    fresh = task.sample("test", 256, seed=1)
    losses = []
    for one in models:
        first = one.circuit.heads[:1]
        changed = {**one.circuit.explanations, **dict.fromkeys(first, Explanation("uniform"))}
        losses.append(AttentionLosses(ensemble.select([one.member]), task, fresh).loss(changed))
    return Found(models, losses, task.steps, layers_of(run))


@claim("The models solve the problem", at="section 8.2", paper="less than 0.01", band=at_most(SOLVED))
def solved(seen: Found) -> Measurement | None:
    """Highest loss of any model on fresh sequences."""
    return seen.over([one.circuit.model_loss for one in seen.models], max)


@claim(
    "With all attention replaced by that of the circuit the loss stays below 0.05",
    at="appendix E",
    paper="below 0.05 for all transformers",
    band=within(1.0, 1.0),
)
def suffices(seen: Found) -> Measurement | None:
    """Share of models whose circuit explains every head and has a loss below {SUFFICES:g}, over models with a loss
    below {SOLVED:g}."""
    circuits = [one.circuit for one in seen.models if one.solved]
    return seen.over([float(one.loss < SUFFICES and not one.unexplained) for one in circuits])


@claim(
    "No path of the circuit is superfluous",
    at="appendix E",
    paper="0.17 to 0.89 after cutting a path, from less than 0.05",
    band=at_least(3.0),
)
def needed(seen: Found) -> Measurement | None:
    """Smallest factor by which cutting a path raises a circuit's loss while the other paths attend as the model makes
    them, {EXPLAINED}."""
    return seen.over([one.minimality for one in seen.explained], min)


@claim(
    "With all other attention replaced, cutting any path of the later heads raises the loss to 0.17 and more",
    at="appendix E",
    paper="0.17 to 0.89",
    band=at_least(0.17),
)
def needed_as_printed(seen: Found) -> Measurement | None:
    """Lowest loss of a circuit without one path of a head above the first, {EXPLAINED}."""
    later = [[path.mapped_cut_loss for head in by_head(one.paths)[1:] for path in head] for one in seen.explained]
    return seen.over([min(losses) for losses in later if losses], min)


@claim(
    "The first head alone is hardly missed then: what it does is to let later heads find their place",
    at="appendix E",
    paper="0.05 to 0.1 with uniform attention there",
    band=within(0.05, 0.1),
)
def first_is_indirect(seen: Found) -> Measurement | None:
    """Mean loss of a circuit whose first head attends uniformly, {EXPLAINED}."""
    return seen.over([loss for one, loss in zip(seen.models, seen.first_uniform, strict=True) if one.explained])


@claim(
    "The first useful head joins the two members of each pair",
    at="section 8.2",
    paper="in all three transformers",
    band=within(1.0, 1.0),
)
def first_joins_pair(seen: Found) -> Measurement | None:
    """Share of models in which every path of the circuit's first head goes from the second member of a pair to the
    first, {EXPLAINED}."""
    first = [{path.rule for path in by_head(one.paths)[0]} for one in seen.explained]
    return seen.over([float(rules <= joining(seen.steps)) for rules in first])


@claim(
    "Most attention heads do not perform any useful computation",
    at="section 8.2",
    paper="8 of 12 heads",
    band=within(0.5, 1.0),
)
def few_heads(seen: Found) -> Measurement | None:
    """Mean share of heads without a path; judged only where there are twice as many layers as can do, {EXPLAINED}."""
    circuits = seen.explained if seen.layers >= 2 * seen.least else []
    return seen.over([1 - len(one.heads) / len(one.explanations) for one in circuits])


@claim(
    "The models use one head more than the least number",
    at="section 8.2",
    paper="4 heads where 3 would do, in all three",
    band=at_least(1.0),
)
def more_than_least(seen: Found) -> Measurement | None:
    """Fewest heads with a path, less the least number of layers with one head behind a mask, {EXPLAINED}."""
    return seen.over([float(len(one.heads) - seen.least) for one in seen.explained], min)


@claim(
    "But for the first head the circuits are very different",
    at="section 8.2",
    paper="very different",
    band=within(0.5, 1.0),
)
def differ(seen: Found) -> Measurement | None:
    """Share of pairs of models whose later heads have other paths, their order alone being compared, {EXPLAINED}."""
    different = [float(one != other) for one, other in combinations(map(later_rules, seen.explained), 2)]
    spread_over = spread(torch.tensor(different), "pairs of models")
    return Measurement(mean(different), spread_over, f"{len(different)} pairs") if different else None


def later_rules(circuit: Circuit) -> list[frozenset[str]]:
    """Return the rules of each head above the first, in order."""
    return [frozenset(str(path.rule) for path in head) for head in by_head(circuit.paths)[1:]]


def analyse(runs: Sequence[TrainedRun], setting: Experiment) -> Analysis:
    """Draw the circuit of every model, and list its losses and paths."""
    seen = see(runs)
    figure = CircuitFigure(
        title="Circuits of models with one head in each layer (Fig 5)",
        caption="Positions of one query's chain from left to right, layers from below, counted from 0. An arrow leads "
        "from the position that is looked at to the one that looks; its number is the loss when it is cut while all "
        "other paths attend as the model makes them.",
        panels=tuple(one.panel() for one in seen.models),
    )
    view = view_circuits(runs[0], seen.models, steps=runs[0].checkpoints[-1:])
    return Analysis(seen, [figure], [_models(seen), _paths(seen)], [view])


def _models(seen: Found) -> Table:
    circuits = [one.circuit for one in seen.models]
    return column_table(
        "Circuits in numbers",
        "Layers, from 0, of the heads with a path. Losses on fresh sequences: of the model; of the circuit "
        "with its maps in place; live, with its queries attending as the model makes them; with all attention uniform; "
        "and of the circuit's maps with its first head uniform. Faithfulness: how much of what attention does for the "
        "model the circuit does. Completeness: how much is lost when the circuit alone is taken from the model. "
        "Minimality: the factor by which the cheapest cut raises the live loss.",
        {
            "seed": [one.seed for one in seen.models],
            "layers": [", ".join(str(layer) for layer, _ in one.heads) or "none" for one in circuits],
            "paths": [len(one.paths) for one in circuits],
            "unexplained": [len(one.unexplained) for one in circuits],
            "model": [one.model_loss for one in circuits],
            "circuit": [one.loss for one in circuits],
            "live": [one.live_loss for one in circuits],
            "uniform": [one.empty_loss for one in circuits],
            "first uniform": seen.first_uniform,
            "faithful": [one.faithfulness for one in circuits],
            "complete": [one.completeness for one in circuits],
            "minimal": [one.minimality for one in circuits],
        },
    )


def _paths(seen: Found) -> Table:
    paths = [path for one in seen.models for path in one.paths]
    return column_table(
        "Every path",
        "The model's own mean attention along it, and the circuit's loss without it: with all other paths "
        "attending as the model makes them, and with their maps in place, as the paper has it.",
        {
            **path_columns(seen.models),
            "attention": [path.attention for path in paths],
            "cut, live": [path.cut_loss for path in paths],
            "cut, maps": [path.mapped_cut_loss for path in paths],
        },
    )


STUDY = Study(
    name="retrieval/circuits",
    doc=__doc__,
    claims=measures_in(__name__),
    experiments=experiments,
    analyse=analyse,
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: D = 3, N = 4, K = 8, six layers of one head, width 64, no feed-forward layers, 1400 steps "
            "of 64 fresh sequences at 3e-3 after a warm-up, weight decay 0.1, initial scale 0.15, position vectors of "
            "eight neighbours nearly orthogonal. The paper has K = 4, twelve layers of width 128 with feed-forward "
            "layers, and 24,000 steps of 128 out of 262 k sequences at 1e-3.",
        ),
        "paper": Profile(
            PAPER,
            "Paper profile: section 8.1. Not given by the paper, and so our choice: rotary frequencies 10000^(-2i/K), "
            "initial scale 0.02, gradient clipping at 1, no warm-up, and a causal mask.",
            paper=True,
        ),
    },
    smoke=SMOKE,
)
