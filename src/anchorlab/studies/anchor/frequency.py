"""Low and high frequency: of two anchors that do the same, or not quite, the first is learned sooner.

Source: anchor functions, section 6.1, Figure 18.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from anchorlab.findings.findings import Claim, Findings, LineFigure, Provenance, Reference, Table, line
from anchorlab.lens import first_crossing
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import along, judge_means, member_values
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, TrainedRun

LEVELS = ("low", "high")
FITTED, GENERALISED = 0.5, 0.9  # the training loss below, and the test accuracy above which a task counts as learned

_SOURCE = "anchor functions, section 6.1 and Fig 18"

CLAIMS = (
    Claim(
        "anchor/frequency/loss-first",
        "The training loss of the low-frequency task falls first",
        _SOURCE,
        "the low-frequency task is fitted faster",
        f"share of seeds whose low-frequency training loss is the first below {FITTED}",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/frequency/accuracy-first",
        "The low-frequency task generalises first",
        _SOURCE,
        "its test accuracy rises faster",
        f"share of seeds whose low-frequency test accuracy is the first above {GENERALISED}; judged only where every "
        "member of both tasks gets there",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/frequency/slower",
        "The high-frequency task takes longer",
        _SOURCE,
        "slower; no value in the text",
        f"steps until the training loss is below {FITTED}, high over low frequency, mean over seeds",
        (1.05, None),
    ),
    Claim(
        "anchor/frequency/both-learned",
        "Both are learned in the end",
        "anchor functions, Fig 18",
        "test accuracy about 1 for both",
        "test accuracy at the end, mean over seeds of the worse of the two tasks",
        (0.9, 1.0),
    ),
)


def quick_experiments(steps: int = 1200, seeds: int = 6) -> list[Experiment]:
    """Both tasks under the quick setting: 2000 sequences, measured eighty times."""
    recipe = quick_recipe(2000, steps, evaluations=80)
    return [
        Experiment(
            task("anchor/frequency", level=level),
            quick_model(),
            recipe.replace(evaluation=recipe.evaluation.replace(size=250)),
            Members(seeds=tuple(range(seeds))),
            f"{level} frequency",
        )
        for level in LEVELS
    ]


def _quick(steps: int = 1200, seeds: int = 6) -> Profile:
    return Profile(
        lambda: quick_experiments(steps, seeds),
        f"Quick profile: two layers of one head, width 64, {steps} steps of batch 50 on 2000 sequences, learning rate "
        "6e-3, weight decay 0.3. Measured on 250 sequences.",
    )


def _paper() -> Profile:
    def experiments() -> list[Experiment]:
        recipe = paper_recipe(1000, epochs=1000, every=5)
        return [
            Experiment(
                task("anchor/frequency", level=level),
                DecoderSpec(),
                recipe,
                Members(seeds=tuple(range(5))),
                f"{level} frequency",
            )
            for level in LEVELS
        ]

    return Profile(
        experiments,
        "Paper profile: 1000 sequences, batch 50, 1000 epochs, four layers of four heads, width 400. The paper gives "
        "1000 to 2000 sequences and 300 to 1000 epochs, and no number of seeds; 1000, 1000 and five are used.",
    )


def crossings(runs: Mapping[str, TrainedRun]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """By task, the step `[member]` at which each is first fitted, and first generalises; NaN where never."""
    fitted, generalised = {}, {}
    for level, run in runs.items():
        fitted[level] = first_crossing(*along(run, "train", "loss"), FITTED, falling=True)
        generalised[level] = first_crossing(*along(run, "test", "accuracy"), GENERALISED)
    return fitted, generalised


def measure(
    fitted: Mapping[str, Tensor], generalised: Mapping[str, Tensor], final: Mapping[str, Tensor]
) -> dict[str, Tensor | None]:
    """What the claims are judged by, from steps and final accuracies `[member]` of both tasks."""
    measured: dict[str, Tensor | None] = {"both-learned": torch.minimum(final["low"], final["high"])}
    all_fitted = not any(value.isnan().any() for value in fitted.values())
    measured["loss-first"] = (fitted["low"] < fitted["high"]).float() if all_fitted else None
    measured["slower"] = fitted["high"] / fitted["low"] if all_fitted else None
    all_there = not any(value.isnan().any() for value in generalised.values())
    measured["accuracy-first"] = (generalised["low"] < generalised["high"]).float() if all_there else None
    return measured


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Both panels of Figure 18, and who crosses first, seed by seed."""
    by_level = dict(zip(LEVELS, runs, strict=True))
    fitted, generalised = crossings(by_level)
    final = {level: member_values(run, "test", "accuracy") for level, run in by_level.items()}
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Two anchors stand for the same operation (low frequency: the key for both) or for two that differ "
        f"(high frequency: the key for one, its successor for the other). {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measure(fitted, generalised, final), provenance.profile),
        figures=(
            _figure(by_level, "train", "loss", "Training loss of both tasks (Fig 18, left)", FITTED),
            _figure(by_level, "test", "accuracy", "Test accuracy of both tasks (Fig 18, right)", GENERALISED),
        ),
        tables=(_table(by_level, fitted, generalised, final),),
        views=(),
    )


def _figure(runs: Mapping[str, TrainedRun], split: str, metric: str, title: str, level: float) -> LineFigure:
    lines = []
    for name, run in runs.items():
        steps, values = along(run, split, metric)
        unit = run.experiment.steps_per_unit
        lines.append(line(f"{name} frequency", [step / unit for step in steps], values))
    first = next(iter(runs.values()))
    return LineFigure(
        title=title,
        caption="Mean over seeds; the band reaches from the lowest to the highest. The dashed line is the level whose "
        "first crossing is compared.",
        x_label=first.experiment.recipe.unit,
        y_label="training loss (nats)" if metric == "loss" else "test accuracy",
        lines=tuple(lines),
        y_range=(None, None) if metric == "loss" else (0.0, 1.02),
        log_y=metric == "loss",
        references=(Reference("learned", level, "y"),),
    )


def _table(
    runs: Mapping[str, TrainedRun],
    fitted: Mapping[str, Tensor],
    generalised: Mapping[str, Tensor],
    final: Mapping[str, Tensor],
) -> Table:
    seeds = runs["low"].experiment.members.seeds
    columns = [of[level] for of in (fitted, generalised, final) for level in LEVELS]
    return Table(
        title="When each task is learned, seed by seed",
        caption=f"The optimiser step, between two measurements by interpolation, at which the training loss is first "
        f"below {FITTED} and the test accuracy first above {GENERALISED}; and the test accuracy at the end.",
        columns=(
            "seed",
            "fitted, low",
            "fitted, high",
            "generalises, low",
            "generalises, high",
            "end, low",
            "end, high",
        ),
        rows=tuple(
            (seed, *(float(value[index]) if value[index].isfinite() else None for value in columns))
            for index, seed in enumerate(seeds)
        ),
    )


STUDY = Study(
    name="anchor/frequency",
    title="Low frequency is learned before high frequency",
    claims=CLAIMS,
    profiles={"quick": _quick(), "paper": _paper(), "smoke": _quick(steps=40, seeds=2)},
    analyse=analyse,
)
