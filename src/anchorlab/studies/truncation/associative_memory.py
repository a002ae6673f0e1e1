"""Noisy associative memory: without its smallest singular value the trained matrix forgets the noise.

Source: truncated weights, section 5, Figure 6 and appendix C.1.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from anchorlab.findings import Claim, ClaimResult, Findings, Line, LineFigure, Provenance, Reference, Table
from anchorlab.findings import numbers as as_numbers
from anchorlab.models import AssociativeSpec
from anchorlab.models.edits import Truncate
from anchorlab.rng import torch_generator
from anchorlab.studies.kit import along, at_end, spread
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.theory import fit_power_law
from anchorlab.training import SGD, Evaluation, Experiment, FixedSample, Members, Recipe, TrainedRun

INPUTS, ALPHA = 3, 0.03
WIDTHS = (12, 8)
"""The paper's two dimensions d, in the order of its panels."""

_EDITS = {f"rank {rank}": (Truncate(weight="memory.W_F", rank=rank),) for rank in (1, 2, 3, 4)}
_FULL = "none"
_CURVES = (_FULL, *_EDITS)

CLAIMS = (
    Claim(
        "truncation/associative-memory/full-loss",
        "The full model's pure-label loss is about 0.03, which depends on alpha",
        "truncated weights, appendix C.1",
        "about 0.03",
        "median pure-label loss of the full model at the end, over the runs of both widths",
        (0.025, 0.035),
    ),
    *(
        Claim(
            f"truncation/associative-memory/rank-two-{width}",
            f"Rank-2 models have a significantly lower pure-label loss than full ones (d = {width})",
            "truncated weights, Fig 6 and its caption",
            "significantly lower",
            "median pure-label loss at rank 2 over that of the full model, at the end; an order of magnitude is asked",
            (None, 0.1),
        )
        for width in WIDTHS
    ),
    Claim(
        "truncation/associative-memory/rank-two-likely",
        "It is very likely that the rank-2 model has the lower loss",
        "truncated weights, Fig 6 and its caption",
        "very likely",
        "share of the runs of both widths in which it has, at the end",
        (0.75, None),
    ),
    Claim(
        "truncation/associative-memory/rank-three-full",
        "A model of rank 3 is as the full one",
        "truncated weights, Fig 6 and its caption",
        "rank 3 and above are called full models",
        "median over the runs of both widths of the distance between both pure-label losses, over the full model's",
        (None, 0.1),
    ),
    Claim(
        "truncation/associative-memory/wider-steadier",
        "The larger dimension has the more stable results",
        "truncated weights, Fig 6 and its caption",
        "d = 12 steadier than d = 8",
        "distance between the quartiles of the logarithm of the rank-2 loss at the end, d = 12 over d = 8",
        (None, 0.8),
    ),
)


def _profile(note: str, *, learning_rate: float, steps: int, runs: int) -> Profile:
    moments = sorted({round(10 ** (tenth / 10)) for tenth in range(10 * math.ceil(math.log10(steps)))})

    def experiments() -> list[Experiment]:
        return [
            Experiment(
                task("associative/noisy", inputs=INPUTS, alpha=ALPHA),
                AssociativeSpec(width=width),
                Recipe(
                    data=FixedSample(size=INPUTS),
                    optimiser=SGD(learning_rate=learning_rate),
                    batch=INPUTS,
                    duration=steps,
                    evaluation=Evaluation(at=tuple(moments), size=INPUTS, splits=("clean",), edits=_EDITS),
                ),
                Members(seeds=tuple(range(runs))),
                label=f"d = {width}",
            )
            for width in WIDTHS
        ]

    return Profile(experiments, note)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Both panels of Figure 6, and a table of the end."""
    losses = [{edit: at_end(run, "clean", "loss", edit) for edit in _CURVES} for run in runs]
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="One matrix stores which output belongs with each of three inputs, and that one noise output comes "
        f"three times in a hundred whatever the input. It is cut to its best approximation of each rank. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge(losses, provenance.profile),
        figures=tuple(_panel(run, width) for run, width in zip(runs, WIDTHS, strict=True)),
        tables=(_table(runs), _falls(runs)),
    )


def judge(losses: Sequence[dict[str, Tensor]], profile: str) -> tuple[ClaimResult, ...]:
    """Every claim, from the pure-label losses at the end: of each width, by edit, `[member]`."""
    full, second, third = (torch.cat([one[edit] for one in losses]) for edit in (_FULL, "rank 2", "rank 3"))
    lower = (second < full).float()
    distance = (third - full).abs() / full
    ratios = [float(one["rank 2"].median() / one[_FULL].median()) for one in losses]
    logarithms = [one["rank 2"].log() for one in losses]
    wide, narrow = (float(_between_quartiles(each)) for each in logarithms)
    low, high = _resampled_ratio(logarithms)
    of = "runs"
    return (
        CLAIMS[0].judge(float(full.median()), profile, spread(full, of)),
        *(
            CLAIMS[1 + index].judge(ratio, profile, detail=f"rank 2: {spread(one['rank 2'], of)}")
            for index, (ratio, one) in enumerate(zip(ratios, losses, strict=True))
        ),
        CLAIMS[3].judge(float(lower.mean()), profile, detail=f"{int(lower.sum())} of {len(lower)} runs"),
        CLAIMS[4].judge(float(distance.median()), profile, spread(distance, of)),
        CLAIMS[5].judge(
            wide / narrow,
            profile,
            detail=f"{wide:.3g} over {narrow:.3g}; 95 % of resamplings of the runs give {low:.2g} to {high:.2g}",
        ),
    )


def _quartiles(values: Tensor) -> Tensor:
    """The lower quartile, the median and the upper quartile over members, `[3 ...]`."""
    return values.double().quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64), dim=0)


def _between_quartiles(values: Tensor) -> Tensor:
    low, _, high = _quartiles(values)
    distance: Tensor = high - low
    return distance


def _resampled_ratio(logarithms: Sequence[Tensor]) -> tuple[float, float]:
    """Where 95 % of the ratios of the distances between quartiles lie when each width's runs are drawn anew."""
    random = torch_generator(0, "resampling")
    wide, narrow = (
        _between_quartiles(values[torch.randint(len(values), (len(values), 4000), generator=random)])
        for values in logarithms
    )
    low, high = (wide / narrow).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def _times(run: TrainedRun, steps: Sequence[int]) -> tuple[float, ...]:
    """Gradient-flow times of optimiser steps."""
    return tuple(run.experiment.recipe.optimiser.learning_rate * step for step in steps)


def _panel(run: TrainedRun, width: int) -> LineFigure:
    lines: list[Line] = []
    for edit in _CURVES:
        steps, values = along(run, "clean", "loss", edit)
        low, middle, high = (as_numbers(row) for row in _quartiles(values))
        label = "full matrix" if edit == _FULL else edit
        lines.append(Line(label, _times(run, steps), middle, low, high))
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


def _table(runs: Sequence[TrainedRun]) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for run, width in zip(runs, WIDTHS, strict=True):
        for edit in _CURVES:
            low, middle, high = _quartiles(at_end(run, "clean", "loss", edit)).tolist()
            right, noise = (float(at_end(run, "clean", one, edit).median()) for one in ("right", "noise"))
            rows.append((width, "full" if edit == _FULL else edit, low, middle, high, right, noise))
    return Table(
        title="The end of training, by width and rank",
        caption="Pure-label loss: lower quartile, median and upper quartile over runs. Probabilities: medians.",
        columns=("d", "kept", "lower quartile", "median loss", "upper quartile", "right output", "noise"),
        rows=tuple(rows),
    )


def _falls(runs: Sequence[TrainedRun]) -> Table:
    """How fast the rank-2 loss falls, against the orthonormal case."""
    rows: list[tuple[str | float, ...]] = []
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


_SETTING = (
    "n = 3, α = 0.03, d = 12 and 8, 20 runs, embeddings uniform on the sphere and the matrix from N(0, 1/d): all as in "
    "the paper, which does not give the learning rate and the number of steps."
)

STUDY = Study(
    name="truncation/associative-memory",
    title="Associative memory: the smallest singular value stores the noise",
    claims=CLAIMS,
    profiles={
        "quick": _profile(
            f"Quick profile: {_SETTING} Here 20 and 1500.",
            learning_rate=20.0,
            steps=1500,
            runs=20,
        ),
        "paper": _profile(
            f"Paper profile: {_SETTING} Here 3 and 10,000, nearer to the gradient flow over the same time as in the "
            "quick profile.",
            learning_rate=3.0,
            steps=10_000,
            runs=20,
        ),
        "smoke": _profile(
            "Smoke profile: far too short to show anything; it only exercises the code.",
            learning_rate=20.0,
            steps=12,
            runs=3,
        ),
    },
    analyse=analyse,
)
