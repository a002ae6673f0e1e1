"""The retrieval problem: when the attention paths of a circuit emerge, beside the losses that they bring down.

Source: stacked attention heads, section 9, Figures 6 and 7, appendix D.
"""

from collections.abc import Callable, Sequence
from math import isfinite, nan

import torch
from torch import Tensor

from anchorlab.findings.circuit_panel import circuit_panel
from anchorlab.findings import (
    CircuitFigure,
    Claim,
    ClaimResult,
    Findings,
    LineFigure,
    Provenance,
    Reference,
    Table,
    TimelineFigure,
    event,
    line,
)
from anchorlab.models import VectorSpec
from anchorlab.studies.kit import along, spread
from anchorlab.studies.retrieval.chain_order import in_order, retrieving_two
from anchorlab.studies.retrieval.emergence_measures import (
    EMERGED,
    SEQUENCES,
    Growth,
    distance,
    growths,
    reuse,
    rise,
    slower,
)
from anchorlab.studies.retrieval.one_head import quick, smoke, view_circuits
from anchorlab.studies.retrieval.settings import RETRIEVED, layers_of, paper_recipe, paper_task, retrieval_of
from anchorlab.studies.study import Profile, Study
from anchorlab.training import Experiment, Members, TrainedRun

_STUDY = "retrieval/emergence"

CLAIMS = (
    Claim(
        f"{_STUDY}/losses-in-chain-order",
        "Partial losses fall below 0.5 in chain order",
        "stacked attention heads, Fig 6 right",
        "x_1 first, then x_2, x_3, x_4",
        "share of models that retrieve two symbols or more in which x_1 falls below first, then x_2, ...",
        (1.0, 1.0),
    ),
    Claim(
        f"{_STUDY}/heads-in-chain-order",
        "Attention heads emerge in chain order",
        "stacked attention heads, Fig 7 right",
        "heads for B, then C, D and E",
        "share of models in which all paths that x_1 needs have emerged before the last one that x_2 needs, ... "
        "(one head that brings two symbols at once counts as out of order); of models that retrieve every symbol",
        (1.0, 1.0),
    ),
    Claim(
        f"{_STUDY}/abrupt",
        "After a long time of slow learning the first head that retrieves emerges abruptly",
        "stacked attention heads, section 9.2",
        "after 450 of 800 epochs, abruptly",
        "steps in which attention along the last path that x_1 needs rises from 0.25 to 0.75, over the steps before, "
        "mean over models that retrieve every symbol",
        (None, 0.25),
    ),
    Claim(
        f"{_STUDY}/drives-loss",
        "The head that emerges drives its partial loss down",
        "stacked attention heads, section 9.2",
        "drives down the first, second, last two partial losses",
        "largest distance, in shares of the training, between the emergence of the last path that a symbol needs and "
        "the fall of its partial loss, mean over models that retrieve every symbol",
        (None, 0.05),
    ),
    Claim(
        f"{_STUDY}/reuse",
        "Later symbols reuse the heads of earlier ones",
        "stacked attention heads, section 9.2",
        "head 22 reuses the induction head, 23 and 24 reuse 14, 21 and 22",
        "share of the paths needed for a symbol that the next symbol needs as well, mean over symbols and models",
        (0.75, 1.0),
    ),
    Claim(
        f"{_STUDY}/later-slower",
        "The last head emerges much later than the one before",
        "stacked attention heads, section 9.2",
        "head 24 much later than head 23",
        "share of models in which the time between the last two symbols' paths is longer than between the two before",
        (0.8, 1.0),
    ),
)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Circuits of the trained models, and the attention along their paths at every checkpoint."""
    run = runs[0]
    found = growths(run)
    first = found[0]
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="When does each attention path of a circuit emerge, and which loss does it bring down? The circuits of "
        f"the trained models are followed back through the checkpoints. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=tuple(judge(found, float(run.checkpoints[-1]), provenance.profile)),
        figures=(
            _losses(run),
            CircuitFigure(
                title="Circuit of the first seed (Fig 7, left)",
                caption="As in the study of circuits: from the position that is looked at to the one that looks; the "
                "number is the loss when it is cut while all other paths attend as the model makes them.",
                panels=(circuit_panel(f"seed {first.solution.seed}", first.solution.circuit, layers_of(run)),),
            ),
            _attention(first),
            _timeline(run, found),
        ),
        tables=(_table(run, found),),
        views=(view_circuits(run, [one.solution for one in found]),),
    )


def judge(found: Sequence[Growth], end: float, profile: str) -> list[ClaimResult]:
    """The claims about these models, trained for `end` steps; those on heads over models that retrieve every symbol."""
    symbols = list(found[0].retrieved)
    retrieved = _times(found, lambda one, symbol: one.retrieved[symbol], symbols)
    whole = [one for one, times in zip(found, retrieved, strict=True) if bool(times.isfinite().all())]
    arrived = _times(whole, Growth.arrival, symbols)
    shared = torch.tensor([share for one in whole for share in reuse(one, symbols)])
    measured = (
        in_order(retrieving_two(retrieved)),
        in_order(arrived),
        torch.tensor([rise(one, symbols[0]) for one in whole]),
        torch.tensor([distance(one, end) / end for one in whole]),
        shared,
        torch.tensor([slower(times) for times in arrived]),
    )
    results = []
    for claim, values in zip(CLAIMS, measured, strict=True):
        there = values[~values.isnan()]
        of = "symbols of models" if values is shared else "models"
        told = f"{len(whole)} of {len(found)} models retrieve every symbol"
        over = spread(there, of) if len(there) else None
        results.append(claim.judge(there.mean() if len(there) else None, profile, over, told))
    return results


def _times(found: Sequence[Growth], when: Callable[[Growth, int], float], symbols: Sequence[int]) -> Tensor:
    """`[member symbol]`, also for no member at all."""
    return torch.tensor([[when(one, symbol) for symbol in symbols] for one in found]).reshape(-1, len(symbols))


def _losses(run: TrainedRun) -> LineFigure:
    lines = []
    for symbol in retrieval_of(run).asked:
        steps, values = along(run, "test", f"partial_{symbol}")
        lines.append(line(f"x_{symbol}", steps, values))
    return LineFigure(
        title="Partial losses along training (Fig 6, right)",
        caption="Mean squared error of each symbol of the chain on fresh sequences; mean and range over seeds.",
        x_label="step",
        y_label="mean squared error",
        lines=tuple(lines),
        y_range=(0.0, 1.05),
        references=(Reference("retrieved", RETRIEVED),),
    )


def _attention(one: Growth) -> LineFigure:
    return LineFigure(
        title="Attention along each path of the first seed (appendix D)",
        caption=f"Mean over {SEQUENCES} sequences at every checkpoint, layers counted from 0; in brackets the symbols "
        f"that need the path. It has emerged at {EMERGED:g}.",
        x_label="step",
        y_label="attention",
        lines=tuple(
            line(
                f"layer {path.layer}: {path.rule} [{_named(one.needs[path])}]",
                one.steps,
                one.attention[path].unsqueeze(0),
            )
            for path in sorted(one.attention, key=lambda path: path.layer)
        ),
        y_range=(0.0, 1.02),
    )


def _named(symbols: frozenset[int]) -> str:
    return ", ".join(f"x_{symbol}" for symbol in sorted(symbols)) or "none alone"


def _timeline(run: TrainedRun, found: Sequence[Growth]) -> TimelineFigure:
    events = []
    for symbol in retrieval_of(run).asked:
        arrived = torch.tensor([one.arrival(symbol) for one in found]).nan_to_num(posinf=nan)
        events.append(event(f"all paths that x_{symbol} needs", "attention above 0.5", arrived))
        times = torch.tensor([one.retrieved[symbol] for one in found]).nan_to_num(posinf=nan)
        events.append(event(f"x_{symbol}", "partial loss below 0.5", times))
    return TimelineFigure(
        title="Attention paths and partial losses (Fig 7, right)",
        caption="When the last of the paths that a symbol needs has emerged, and when its partial loss falls; by "
        "interpolation between checkpoints or evaluations. A point for each seed, a bar at the median.",
        x_label="step",
        events=tuple(events),
        end=float(run.checkpoints[-1]),
    )


def _table(run: TrainedRun, found: Sequence[Growth]) -> Table:
    rows = []
    for one in found:
        for path in sorted(one.attention, key=lambda path: path.layer):
            crossing = one.crossing(path)
            rows.append(
                (
                    one.solution.seed,
                    path.layer,
                    path.rule.query,
                    path.rule.key_text,
                    _named(one.needs[path]),
                    crossing if isfinite(crossing) else None,
                    float(one.attention[path][-1]),
                )
            )
    return Table(
        title="Every path and when it emerged",
        caption="Symbols whose partial loss rises by 0.2 or more when the path is cut; the step at which the mean "
        "attention passes 0.5, and the attention at the end.",
        columns=("seed", "layer", "from", "to", "needed for", "emerged", "at the end"),
        rows=tuple(rows),
    )


def _paper() -> Experiment:
    return Experiment(
        paper_task(steps=4),
        VectorSpec(layers=24, heads=1, width=512, head_width=16, feed_forward=False),
        paper_recipe(6400, 256, checkpoints=80),
        Members(seeds=(0, 1, 2, 3, 4)),
        label="twenty-four layers",
    )


STUDY = Study(
    name=_STUDY,
    title="Retrieval: the emergence of attention heads during training",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            lambda: [quick()],
            "Quick profile: the models of the study of circuits, D = 3, six layers of one head, with a checkpoint "
            "every 20 of 1400 steps. The paper has one model of 24 layers, width 512 and head size 16, D = 4, K = 4, "
            "6400 steps of 256 out of 262 k sequences, with a checkpoint every 80.",
        ),
        "paper": Profile(
            lambda: [_paper()],
            "Paper profile: section 9.1, five seeds in place of one. Not given by the paper, and so our choice: rotary "
            "frequencies 10000^(-2i/K), initial scale 0.02, gradient clipping at 1, no warm-up, and a causal mask.",
        ),
        "smoke": Profile(lambda: [smoke()], "Smoke profile: far too short to show anything; it exercises the code."),
    },
    analyse=analyse,
)
