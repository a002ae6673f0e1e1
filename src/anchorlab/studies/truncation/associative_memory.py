"""Associative memory: the smallest singular value stores the noise.

One matrix stores which output belongs with each of three inputs, and that one noise output comes three times in a
hundred for every input. It is cut to its best approximation of each rank.

Source: truncated weights, section 5, Figure 6 and appendix C.1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Line, LineFigure, Reference, Table, at_least, at_most, within
from anchorlab.findings import numbers as as_numbers
from anchorlab.models import AssociativeSpec
from anchorlab.models.edits import Truncate
from anchorlab.rng import torch_generator
from anchorlab.studies.claim import Measurement, claim, measures_in, over, spread
from anchorlab.studies.kit import along, at_end
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.tasks import task
from anchorlab.theory import fit_power_law
from anchorlab.training import SGD, Evaluation, Experiment, FixedSample, Members, Recipe, TrainedRun

INPUTS, ALPHA = 3, 0.03
WIDTHS = (12, 8)
"""The paper's two dimensions d, in the order of its panels."""

CUTS = {f"rank {rank}": (Truncate(weight="memory.W_F", rank=rank),) for rank in (1, 2, 3, 4)}
CURVES = {"none": "full matrix", **{edit: edit for edit in CUTS}}
"""The labels of the full matrix and its cuts, by edit."""


@dataclass(frozen=True)
class Setting:
    """How the matrix is trained, and in how many runs."""

    learning_rate: float
    steps: int
    runs: int


QUICK = Setting(learning_rate=20.0, steps=1500, runs=20)
PAPER = Setting(learning_rate=3.0, steps=10_000, runs=20)


def experiments(setting: Setting) -> list[Experiment]:
    """Return a training for each width, measured ten times in each decade of steps."""
    decades = math.ceil(math.log10(setting.steps))
    moments = tuple(sorted({round(10 ** (tenth / 10)) for tenth in range(10 * decades)}))
    recipe = Recipe(
        data=FixedSample(size=INPUTS),
        optimiser=SGD(learning_rate=setting.learning_rate),
        batch=INPUTS,
        duration=setting.steps,
        evaluation=Evaluation(at=moments, size=INPUTS, splits=("clean",), edits=CUTS),
    )
    members = Members(seeds=setting.runs)
    law = task("associative/noisy", inputs=INPUTS, alpha=ALPHA)
    return [Experiment(law, AssociativeSpec(width=width), recipe, members, f"d = {width}") for width in WIDTHS]


Losses = Mapping[str, Float[Tensor, "member"]]
"""The pure-label losses at the end of one width's runs, by edit."""

Seen = Mapping[int, Losses]
"""Losses by width."""


def see(runs: Sequence[TrainedRun]) -> Seen:
    """Read the losses of both widths' runs, in the order of `WIDTHS`."""
    return {
        width: {edit: at_end(run, "clean", "loss", edit) for edit in CURVES}
        for width, run in zip(WIDTHS, runs, strict=True)
    }


def _of_both(seen: Seen, edit: str) -> Float[Tensor, "run"]:
    return torch.cat([losses[edit] for losses in seen.values()])


@claim(
    "The full model's pure-label loss is about 0.03, which depends on alpha",
    at="appendix C.1",
    paper="about 0.03",
    band=within(0.025, 0.035),
)
def full_loss(seen: Seen) -> Measurement:
    """Median pure-label loss of the full model at the end, over the runs of both widths."""
    return over(_of_both(seen, "none"), of="runs", taken=torch.median)


def _second_to_full(losses: Losses) -> Measurement:
    ratio = float(losses["rank 2"].median() / losses["none"].median())
    return Measurement(ratio, detail=f"rank 2: {spread(losses['rank 2'], 'runs')}")


@claim(
    "Rank-2 models have a significantly lower pure-label loss than full ones (d = 12)",
    at="Fig 6 and its caption",
    paper="significantly lower",
    band=at_most(0.1),
)
def rank_two_12(seen: Seen) -> Measurement:
    """Median pure-label loss at rank 2 over that of the full model, at the end; an order of magnitude is asked."""
    return _second_to_full(seen[12])


@claim(
    "Rank-2 models have a significantly lower pure-label loss than full ones (d = 8)",
    at="Fig 6 and its caption",
    paper="significantly lower",
    band=at_most(0.1),
)
def rank_two_8(seen: Seen) -> Measurement:
    """Median pure-label loss at rank 2 over that of the full model, at the end; an order of magnitude is asked."""
    return _second_to_full(seen[8])


@claim(
    "It is very likely that the rank-2 model has the lower loss",
    at="Fig 6 and its caption",
    paper="very likely",
    band=at_least(0.75),
)
def rank_two_likely(seen: Seen) -> Measurement:
    """Share of the runs of both widths in which it has, at the end."""
    lower = (_of_both(seen, "rank 2") < _of_both(seen, "none")).float()
    return Measurement(float(lower.mean()), detail=f"{int(lower.sum())} of {len(lower)} runs")


@claim(
    "A model of rank 3 is as the full one",
    at="Fig 6 and its caption",
    paper="rank 3 and above are called full models",
    band=at_most(0.1),
)
def rank_three_full(seen: Seen) -> Measurement:
    """Median over the runs of both widths of the distance between both pure-label losses, over the full model's."""
    full = _of_both(seen, "none")
    return over((_of_both(seen, "rank 3") - full).abs() / full, of="runs", taken=torch.median)


@claim(
    "The larger dimension has the more stable results",
    at="Fig 6 and its caption",
    paper="d = 12 steadier than d = 8",
    band=at_most(0.8),
)
def wider_steadier(seen: Seen) -> Measurement:
    """Distance between the quartiles of the logarithm of the rank-2 loss at the end, d = 12 over d = 8."""
    logarithms = [seen[width]["rank 2"].log() for width in WIDTHS]
    wide, narrow = (float(_between_quartiles(values)) for values in logarithms)
    low, high = _resampled_ratio(logarithms)
    resampled = f"95 % of resamplings of the runs give {low:.2g} to {high:.2g}"
    return Measurement(wide / narrow, detail=f"{wide:.3g} over {narrow:.3g}; {resampled}")


def _quartiles(values: Float[Tensor, "member *rest"]) -> Float[Tensor, "quartile *rest"]:
    """Return the lower quartile, the median and the upper quartile over members."""
    return values.double().quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64), dim=0)


def _between_quartiles(values: Float[Tensor, "member *rest"]) -> Float[Tensor, "*rest"]:
    low, _, high = _quartiles(values)
    distance: Tensor = high - low
    return distance


def _resampled_ratio(logarithms: Sequence[Float[Tensor, "member"]]) -> tuple[float, float]:
    """Return where 95 % of the ratios of both distances lie when each width's runs are drawn anew."""
    random = torch_generator(0, "resampling")
    wide, narrow = (
        _between_quartiles(values[torch.randint(len(values), (len(values), 4000), generator=random)])
        for values in logarithms
    )
    low, high = (wide / narrow).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def analyse(runs: Sequence[TrainedRun], setting: Setting) -> Analysis:
    """Draw both panels of Figure 6, and tabulate the end and how the loss falls."""
    seen, panels = see(runs), (_panel(run, width) for run, width in zip(runs, WIDTHS, strict=True))
    return Analysis(seen, figures=list(panels), tables=[_ends(runs), _falls(runs)])


def _panel(run: TrainedRun, width: int) -> LineFigure:
    lines = []
    for edit, label in CURVES.items():
        steps, values = along(run, "clean", "loss", edit)
        times = [run.experiment.recipe.optimiser.learning_rate * step for step in steps]
        low, middle, high = (as_numbers(row) for row in _quartiles(values))
        lines.append(Line(label, as_numbers(times), middle, low, high))
    return LineFigure(
        title=f"Pure-label loss along training, d = {width} (Fig 6, {'left' if width == WIDTHS[0] else 'right'})",
        caption=f"Cross-entropy without noise of models trained with α = {ALPHA}, at each rank to which the matrix is "
        "cut beside training. Median and quartiles over runs, each with embeddings and a start of its own. Time is the "
        "learning rate times the step.",
        x_label="time",
        y_label="cross-entropy (nats)",
        lines=tuple(lines),
        log_x=True,
        log_y=True,
        references=(Reference("-log(1 - α)", -math.log(1 - ALPHA)),),
        drawn="line: median, band: between the quartiles",
    )


def _ends(runs: Sequence[TrainedRun]) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for run, width in zip(runs, WIDTHS, strict=True):
        for edit, label in CURVES.items():
            quartiles = _quartiles(at_end(run, "clean", "loss", edit)).tolist()
            medians = (float(at_end(run, "clean", one, edit).median()) for one in ("right", "noise"))
            rows.append((width, label.removesuffix(" matrix"), *quartiles, *medians))
    return Table(
        title="The end of training, by width and rank",
        caption="Pure-label loss: lower quartile, median and upper quartile over runs. Probabilities: medians.",
        columns=("d", "kept", "lower quartile", "median loss", "upper quartile", "right output", "noise"),
        rows=tuple(rows),
    )


def _falls(runs: Sequence[TrainedRun]) -> Table:
    rows: list[tuple[float, ...]] = []
    for run, width in zip(runs, WIDTHS, strict=True):
        steps, values = along(run, "clean", "loss", "rank 2")
        late = [index for index, step in enumerate(steps) if step >= steps[-1] / 10]
        law = fit_power_law(np.array(steps, dtype=float)[late], _quartiles(values)[1, late].numpy())
        rows.append((width, law.slope, law.low, law.high, 1 / INPUTS - 1))
    return Table(
        title="How the loss at rank 2 falls",
        caption="Slope of its median against the step on logarithmic axes, from a tenth of training to its end, with a "
        "95 % confidence interval; beside it the slope that orthonormal embeddings have in the long run.",
        columns=("d", "slope", "from", "to", "orthonormal"),
        rows=tuple(rows),
    )


_SHARED = (
    "n = 3, α = 0.03, d = 12 and 8, 20 runs, embeddings uniform on the sphere and the matrix from N(0, 1/d): all as in "
    "the paper, which does not give the learning rate and the number of steps."
)

STUDY = Study(
    name="truncation/associative-memory",
    doc=__doc__,
    claims=measures_in(__name__),
    experiments=experiments,
    analyse=analyse,
    profiles={
        "quick": Profile(QUICK, f"Quick profile: {_SHARED} Here 20 and 1500."),
        "paper": Profile(
            PAPER,
            f"Paper profile: {_SHARED} Here 3 and 10,000, nearer to the gradient flow over the same time as in the "
            "quick profile.",
            paper=True,
        ),
    },
    smoke=replace(QUICK, steps=12, runs=3),
)
