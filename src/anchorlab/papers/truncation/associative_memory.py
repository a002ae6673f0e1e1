"""Associative memory: the smallest singular value stores the noise.

One matrix stores which output belongs to each of three inputs, and that every input yields one common noise output
three times in a hundred. The matrix is cut to its best approximation of each rank.

Source: truncated weights, section 5, Figure 6 and appendix C.1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Line, LineFigure, Map, MapFigure, Reference, Table, at_least, at_most, grid, within
from anchorlab.findings import numbers as as_numbers
from anchorlab.models import AssociativeSpec
from anchorlab.models.edits import Truncate
from anchorlab.rng import generator, torch_generator
from anchorlab.studies import SEARCHED, Profile, Reading, Study, fresh, over_shared, reading
from anchorlab.studies.claim import Measurement, claim, claims, measures_in, over, spread
from anchorlab.studies.kit import along, at_end
from anchorlab.studies.readings import Quantity
from anchorlab.tasks import task
from anchorlab.theory import fit_power_law
from anchorlab.theory.associative_descent import draw_memories
from anchorlab.theory.associative_flow import MemoryFlow, memory_flow
from anchorlab.training import SGD, Evaluation, Experiment, FixedSample, Members, Recipe, TrainedRun

INPUTS, ALPHA = 3, 0.03
WIDTHS = (12, 8)
"""The paper's two dimensions d, in the order of its panels."""

CUTS = {f"rank {rank}": (Truncate(weight="memory.W_F", rank=rank),) for rank in (1, 2, 3, 4)}
CURVES = {"none": "full matrix", **{edit: edit for edit in CUTS}}
"""The labels of the full matrix and its cuts, by edit."""

FLOW_TIMES = (1e4, 1e9)
"""The times of the flow at which singular values are compared: an early one, which the figure shows, and a late one."""

FLOW_INPUTS = (2, 3, 4, 8, 16, 32, 64, 128)
FLOW_ALPHAS = tuple(np.geomspace(1e-4, 0.4, 8).round(5).tolist())
"""The numbers of inputs and the noise levels for appendix C.1 (iii); the paper names none."""

MANY = 8
"""The smallest number of inputs n at which "n is large"."""


@dataclass(frozen=True)
class Setting:
    """How the matrix is trained, in how many runs; `drawn` more runs of each width give the spread of results."""

    learning_rate: float
    steps: int
    runs: int
    drawn: int = 600


QUICK = Setting(learning_rate=20.0, steps=1500, runs=20)
PAPER = Setting(learning_rate=3.0, steps=10_000, runs=20)


def experiments(setting: Setting) -> dict[int, Experiment]:
    """Return an experiment for each width, evaluated ten times per decade of steps."""
    decades = math.ceil(math.log10(setting.steps))
    moments = tuple(sorted({round(10 ** (tenth / 10)) for tenth in range(10 * decades)}))
    recipe = Recipe(
        data=FixedSample(size=INPUTS),
        optimiser=SGD(learning_rate=setting.learning_rate),
        batch=INPUTS,
        duration=setting.steps,
        evaluation=Evaluation(at=moments, size=INPUTS, splits=("clean",), edits=CUTS),
    )
    members = Members(seeds=fresh(setting.runs))
    law = task("associative/noisy", inputs=INPUTS, alpha=ALPHA)
    return {width: Experiment(law, AssociativeSpec(width=width), recipe, members, f"d = {width}") for width in WIDTHS}


def many_losses(width: int, alike: Experiment, runs: int) -> dict[str, Float[Tensor, "run"]]:
    """Train `runs` runs as an experiment does; return their pure-label losses at rank 2 and at full rank."""
    law, recipe = alike.task.model_dump(), alike.recipe
    start = draw_memories(generator(0, "associative memory", width), runs, law["inputs"], width)
    end = start.descend(law["alpha"], recipe.optimiser.learning_rate, recipe.duration if alike.trained else 0)
    return {edit: torch.from_numpy(end.pure_label_loss(rank)) for edit, rank in (("rank 2", 2), ("none", None))}


class Seen(Reading):
    """The losses of the trained runs and of many more runs, and the gradient flow."""

    losses = Quantity(lambda run: {edit: at_end(run, "clean", "loss", edit) for edit in CURVES})

    @reading
    def many(self) -> dict[int, dict[str, Float[Tensor, "run"]]]:
        """The losses of many more runs, by width and edit."""
        return {width: many_losses(width, run.experiment, self.setting.drawn) for width, run in self.runs.items()}

    @reading
    def flows(self) -> dict[tuple[int, float], MemoryFlow]:
        """The gradient flow with orthonormal embeddings at `FLOW_TIMES`, by number of inputs and alpha."""
        time = np.array(FLOW_TIMES)
        return {(count, alpha): memory_flow(count, alpha, time) for count in FLOW_INPUTS for alpha in FLOW_ALPHAS}


def _of_both(seen: Seen, edit: str) -> Float[Tensor, "seed width"]:
    return torch.stack([losses[edit] for losses in seen.losses.values()], dim=1)


@claim("appendix C.1", "about 0.03", within(0.025, 0.035))
def full_loss(seen: Seen) -> Measurement:
    """The full model's pure-label loss is about 0.03, which depends on alpha.

    Median pure-label loss of the full model at the end, over the runs of both widths.
    """
    return over_shared(_of_both(seen, "none"), torch.median)


@claims("Fig 6 and its caption", "significantly lower", at_most(0.1), {"rank-two-12": 12, "rank-two-8": 8})
def rank_two(seen: Seen, width: int) -> Measurement:
    """Rank-2 models have a significantly lower pure-label loss than full ones (d = {width}).

    Median pure-label loss at rank 2 divided by that of the full model, at the end, d = {width}, over many more runs
    trained alike, since 20 runs do not settle the ratio; "significantly" is taken as an order of magnitude.
    """
    losses = seen.many[width]
    rows = torch.stack([losses["rank 2"], losses["none"]], dim=1)
    detail = f"rank 2: {spread(losses['rank 2'], 'runs')}"
    return over_shared(rows, lambda rows: rows[:, 0].median() / rows[:, 1].median(), "runs", detail)


@claim("Fig 6 and its caption", "very likely", at_least(0.75))
def rank_two_likely(seen: Seen) -> Measurement:
    """The rank-2 model very likely has the lower pure-label loss.

    Share of the runs of both widths in which rank 2 has the lower pure-label loss at the end.
    """
    lower = _of_both(seen, "rank 2") < _of_both(seen, "none")
    return over(lower.double().mean(dim=1), detail=f"{int(lower.sum())} of {lower.numel()} runs")


@claim("Fig 6 and its caption", "rank 3 and above are called full models", at_most(0.1))
def rank_three_full(seen: Seen) -> Measurement:
    """A model of rank 3 is like the full one.

    Distance of the pure-label loss at rank 3 from the full model's, divided by the full model's; median over the runs
    of both widths.
    """
    full = _of_both(seen, "none")
    return over_shared((_of_both(seen, "rank 3") - full).abs() / full, torch.median)


@claim("Fig 6 and its caption", "d = 12 steadier than d = 8", at_most(0.8))
def wider_steadier(seen: Seen) -> Measurement:
    """The larger dimension has the more stable results.

    Interquartile range of the logarithm of the rank-2 loss at the end, ratio of d = 12 to d = 8; over many more runs
    trained alike, since 20 runs hardly determine such a ratio.
    """
    logarithms = [seen.many[width]["rank 2"].log() for width in WIDTHS]
    wide, narrow = (float(_between_quartiles(values)) for values in logarithms)
    low, high = _resampled_ratio(logarithms)
    resampled = f"95 % of resamplings of {len(logarithms[0])} runs each give {low:.2g} to {high:.2g}"
    detail = f"{wide:.3g} over {narrow:.3g}; {resampled}"
    return Measurement(wide / narrow, detail=detail, interval=(low, high))  # a single run has no quartiles


@claim("appendix C.1, iii", "a low-rank subspace storing the noise", at_most(0.1), exact=True, theory=True)
def noise_subspace(seen: Seen) -> Measurement:
    """When n is large, orthogonal embeddings still induce a subspace of rank one that stores the noise.

    Pure-label loss of the matrix without the noise's subspace of rank one, divided by that of the full matrix; largest
    over {MANY} to 128 inputs, alphas from {ALPHA:g} on and the times 1e4 and 1e9 of the gradient flow.
    """
    flows = [one for (count, alpha), one in seen.flows.items() if count >= MANY and alpha >= ALPHA]
    return Measurement(max(float((one.loss_without_noise / one.loss).max()) for one in flows))


@claim("appendix C.1, iii", "alpha decides", within(1.0, 1.0), exact=True, theory=True)
def alpha_decides(seen: Seen) -> Measurement:
    """When n is large, alpha decides whether the noise's subspace belongs to the smallest singular value.

    Share of the numbers of inputs from {MANY} on for which the noise's subspace belongs to the smallest singular value
    at some alpha from 1e-4 to 0.4 but not at another; smallest over the times 1e4 and 1e9 of the gradient flow, as the
    paper names none.
    """
    large = [count for count in FLOW_INPUTS if count >= MANY]
    shares = {}
    for at, time in enumerate(FLOW_TIMES):
        smallest = {key: bool(flow.noise_value[at] < flow.signal_value[at]) for key, flow in seen.flows.items()}
        found = [{smallest[count, alpha] for alpha in FLOW_ALPHAS} for count in large]
        shares[time] = sum(len(both) == 2 for both in found) / len(found)
    detail = ", ".join(f"{share:g} at t = {time:g}" for time, share in shares.items())
    return Measurement(min(shares.values()), detail=detail)


def _quartiles(values: Float[Tensor, "member *rest"]) -> Float[Tensor, "quartile *rest"]:
    return values.double().quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64), dim=0)


def _between_quartiles(values: Float[Tensor, "member *rest"]) -> Float[Tensor, "*rest"]:
    quartiles = _quartiles(values)
    return quartiles[2] - quartiles[0]


def _resampled_ratio(logarithms: Sequence[Float[Tensor, "member"]]) -> tuple[float, float]:
    """Return the ends of the middle 95 % of ratios of interquartile ranges, over resamplings of each width's runs."""
    random = torch_generator(0, "resampling")
    wide, narrow = (
        _between_quartiles(values[torch.randint(len(values), (len(values), 4000), generator=random)])
        for values in logarithms
    )
    low, high = (wide / narrow).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def _singular_values(seen: Seen) -> MapFigure:
    ratios = [[seen.flows[count, alpha] for alpha in FLOW_ALPHAS] for count in FLOW_INPUTS]
    values = torch.tensor([[float(one.noise_value[0] / one.signal_value[0]) for one in row] for row in ratios])
    ticks = tuple(map(str, FLOW_INPUTS)), tuple(f"{alpha:.2g}" for alpha in FLOW_ALPHAS)
    return MapFigure(
        title="Singular value of the noise over those of the signal",
        caption=f"Orthonormal embeddings, gradient flow from zero at t = {FLOW_TIMES[0]:g}. Below 0 in the logarithm, "
        "the noise has the smallest singular value, and cutting the rank by one removes the noise; above 0 the noise "
        "has the largest.",
        maps=((Map("", grid(values.log10()), *ticks),),),
        x_label="α",
        y_label="n, inputs",
        value_label="log₁₀ of the ratio",
        value_range=(None, None),
        signed=True,
    )


def _panel(width: int, run: TrainedRun) -> LineFigure:
    lines, alpha = [], run.experiment.task.model_dump()["alpha"]
    for edit, label in CURVES.items():
        steps, values = along(run, "clean", "loss", edit)
        times = [run.experiment.recipe.optimiser.learning_rate * step for step in steps]
        low, middle, high = (as_numbers(row) for row in _quartiles(values))
        lines.append(Line(label, as_numbers(times), middle, low, high))
    return LineFigure(
        title=f"Pure-label loss along training, d = {width} (Fig 6, {'left' if width == WIDTHS[0] else 'right'})",
        caption=f"Cross-entropy without noise of models trained with α = {alpha}, at each rank to which the matrix is "
        "cut for evaluation only. Median and quartiles over runs, each with embeddings and a start of its own. Time is "
        "the learning rate times the step.",
        x_label="time",
        y_label="cross-entropy (nats)",
        lines=tuple(lines),
        log_x=True,
        log_y=True,
        references=(Reference("-log(1 - α)", -math.log(1 - alpha)),),
        drawn="line: median, band: between the quartiles",
    )


def _ends(seen: Seen) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for width, run in seen.runs.items():
        for edit, label in CURVES.items():
            quartiles = _quartiles(seen.losses[width][edit]).tolist()
            medians = (float(at_end(run, "clean", one, edit).median()) for one in ("right", "noise"))
            rows.append((width, label.removesuffix(" matrix"), *quartiles, *medians))
    return Table(
        title="The end of training, by width and rank",
        caption="Pure-label loss: lower quartile, median and upper quartile over runs. Probabilities: medians.",
        columns=("d", "kept", "lower quartile", "median loss", "upper quartile", "right output", "noise"),
        rows=tuple(rows),
    )


def _falls(seen: Seen) -> Table:
    rows: list[tuple[float, ...]] = []
    for width, run in seen.runs.items():
        steps, values = along(run, "clean", "loss", "rank 2")
        late = [index for index, step in enumerate(steps) if step >= steps[-1] / 10]
        law = fit_power_law(np.array(steps, dtype=float)[late], _quartiles(values)[1, late].numpy())
        rows.append((width, law.slope, law.low, law.high, 1 / run.experiment.task.model_dump()["inputs"] - 1))
    caption = (
        "Slope of the median loss against the step on logarithmic axes, from a tenth of training to its end, with a "
        "95 % confidence interval; the last column is the slope in the long run with orthonormal embeddings."
    )
    return Table("How the loss at rank 2 falls", caption, ("d", "slope", "from", "to", "orthonormal"), tuple(rows))


_SHARED = (
    "n = 3, α = 0.03, embeddings uniform on the sphere and the matrix from N(0, 1/d): all as in the paper, as are the "
    "widths and 20 runs; it does not give the learning rate and the number of steps. The loss at rank 2 and its "
    "spread are those of 600 more runs of each width."
)

STUDY = Study(
    "truncation/associative-memory",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(lambda seen: [_panel(*one) for one in seen.runs.items()], _singular_values, _ends, _falls),
    profiles={
        "quick": Profile(QUICK, _SHARED),
        "paper": Profile(
            PAPER, f"{_SHARED} Nearer to the gradient flow over the same time than the quick profile.", paper=True
        ),
    },
    smoke=replace(QUICK, steps=12, runs=3, drawn=12),
    chosen_on=SEARCHED,
)
