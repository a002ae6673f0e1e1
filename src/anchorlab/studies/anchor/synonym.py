"""The synonym task: an anchor that does the same as another teaches pairs that were never trained.

Source: anchor functions, section 4.6, Figure 9; settings in its appendix A.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, Line, LineFigure, Provenance, Table, line, numbers
from anchorlab.lens import first_crossing
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import along, judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import AnchorFunction, task
from anchorlab.training import Evaluation, Experiment, Members, TrainedRun

UNSEEN = ("4,9", "9,4")
TWINS = ("4,3", "3,4")
"""The same pairs with the synonym in place of 9, which are trained."""

ENOUGH = 0.9
"""The accuracy at which a pair counts as learned."""

FITTED = 0.95
"""Accuracy on trained pairs (test on data) from which on a size of plain data is judged."""

CLAIMS = (
    Claim(
        "anchor/synonym/enough-data",
        "With a synonym in the training data the unseen pairs (4, 9) and (9, 4) are answered, given enough of it",
        "anchor functions, section 4.6 and Fig 9a, red",
        "about 1 above a certain size",
        "accuracy of test on task at the largest total, mean over seeds",
        (0.95, None),
    ),
    Claim(
        "anchor/synonym/little-data",
        "Below that size they are not",
        "anchor functions, section 4.6 and Fig 9a, red",
        "no value in the text; the curve rises with data",
        "accuracy of test on task at the smallest total, mean over seeds",
        (None, 0.5),
    ),
    Claim(
        "anchor/synonym/plain-fails",
        "With as much data but no synonym they are answered wrongly at every size",
        "anchor functions, section 4.6 and Fig 9a, blue",
        "it struggles at different sizes; no value in the text",
        "accuracy of test on task without synonyms, the highest over totals of its mean over seeds; only totals at "
        f"which the trained pairs are learned (test on data at least {FITTED:g}, mean over seeds)",
        (None, 0.5),
    ),
    Claim(
        "anchor/synonym/helps",
        "The synonym is what makes the difference",
        "anchor functions, section 4.6 and Fig 9a",
        "significant; no value in the text",
        "accuracy of test on task with synonyms minus that without at the largest total, mean over seeds",
        (0.3, None),
    ),
    Claim(
        "anchor/synonym/later",
        "The unseen pairs are learned after the same pairs with the synonym, (4, 3) and (3, 4)",
        "anchor functions, section 4.6 and Fig 9b",
        "at both sizes",
        f"share of members, over the two sizes and seeds, whose unseen pairs reach {ENOUGH:g} later than (4, 3) "
        "and (3, 4); of those that reach it on both",
        (0.8, None),
    ),
    Claim(
        "anchor/synonym/slightly-later",
        "They are learned slightly after them",
        "anchor functions, section 4.6 and Fig 9b",
        "slightly; no value in the text",
        f"step at which the unseen pairs reach {ENOUGH:g} over that of (4, 3) and (3, 4), mean over the same members",
        (1.01, 1.5),
    ),
)


_STEPS = {1000: 450, 4000: 900, 10_000: 1500}


def quick_experiments(steps: Mapping[int, int] = _STEPS, seeds: int = 3, every: int = 75) -> list[Experiment]:
    """By total, with synonyms, smallest first, then without; the largest total with synonyms generalises.

    A larger sample is trained for more `steps`, as with the paper's epochs. Without synonyms the smallest total is left
    out: what is only memorised there is judged nowhere.
    """
    totals = tuple(steps)
    return [
        Experiment(
            task("anchor/synonym", total=total, synonyms=synonyms),
            quick_model(layers=4),
            quick_recipe(total, steps[total], batch=100, learning_rate=2e-3).replace(
                evaluation=Evaluation(every=every, size=1000)  # each pair is one of ten or sixteen
            ),
            Members(seeds=tuple(range(seeds))),
            _label(total, synonyms),
        )
        for synonyms, arm in ((True, totals), (False, totals[1:] or totals))
        for total in arm
    ]


def _label(total: int, synonyms: bool) -> str:
    return f"{'synonyms' if synonyms else 'plain'}, {total} sequences"


_QUICK = Profile(
    quick_experiments,
    "Quick profile: four layers of one head, width 64 (0.2 M parameters), 450, 900 and 1500 steps of batch 100 at "
    "1000, 4000 and 10000 sequences with learning rate 2e-3 and weight decay 0.3, three seeds; without synonyms at "
    "4000 and 10000 alone. The paper trains four layers of four heads, width 400 (5.65 M parameters), for 4000 epochs "
    "at up to 2e-4.",
)


def _paper() -> Profile:
    def experiments() -> list[Experiment]:
        return [
            Experiment(
                task("anchor/synonym", total=total, synonyms=synonyms),
                DecoderSpec(),
                paper_recipe(total, batch=100, every=20),
                Members(seeds=tuple(range(5))),
                _label(total, synonyms),
            )
            for synonyms in (True, False)
            for total in (1000, 2000, 3000, 4000, 6000, 8000, 10_000, 15_000, 20_000)
        ]

    return Profile(
        experiments,
        "Paper profile: the setting of appendix A and the reference code, batch 100, 4000 epochs. The paper shows "
        "totals from 1000 to 20000 and does not list them; nine are used here. It names no seeds (five here) and no "
        "weight decay (PyTorch's 0.01).",
    )


@dataclass(frozen=True)
class Arm:
    """The runs with or without synonyms, smallest total first; accuracies on each split are `[total member]`."""

    synonyms: bool
    runs: tuple[TrainedRun, ...]
    totals: tuple[int, ...]
    accuracy: dict[str, Tensor]

    @classmethod
    def of(cls, synonyms: bool, runs: Sequence[TrainedRun]) -> "Arm":
        """The numbers of one arm."""
        return cls(
            synonyms,
            tuple(runs),
            tuple(run.experiment.recipe.data.size for run in runs),  # type: ignore[union-attr]
            {
                split: torch.stack([at_end(run, split, "accuracy") for run in runs])
                for split in runs[0].experiment.task.splits
            },
        )

    @property
    def name(self) -> str:
        """The arm in words."""
        return "with synonyms" if self.synonyms else "plain data"


def _arms(runs: Sequence[TrainedRun]) -> tuple[Arm, Arm]:
    """The arm with synonyms, then that without."""
    told = [(_has_synonyms(run), run) for run in runs]
    return Arm.of(True, [run for has, run in told if has]), Arm.of(False, [run for has, run in told if not has])


def _has_synonyms(run: TrainedRun) -> bool:
    of = run.experiment.task
    assert isinstance(of, AnchorFunction)
    return TWINS[0] in of.shares


@dataclass(frozen=True)
class Timing:
    """At one total, when the unseen pairs and those with the synonym are learned: steps `[member]`, NaN for never."""

    total: int
    unseen: Tensor
    twins: Tensor

    @property
    def both(self) -> Tensor:
        """Which members learned both, `[member]`."""
        return self.unseen.isfinite() & self.twins.isfinite()


def _timing(run: TrainedRun, total: int) -> Timing:
    return Timing(
        total,
        first_crossing(*_pairs_along(run, "test on task", UNSEEN), ENOUGH),
        first_crossing(*_pairs_along(run, "test on data", TWINS), ENOUGH),
    )


def _pairs_along(run: TrainedRun, split: str, pairs: Sequence[str]) -> tuple[list[int], Tensor]:
    """The mean accuracy of pairs along training."""
    read = [along(run, split, "accuracy", group=pair) for pair in pairs]
    return read[0][0], torch.stack([values for _, values in read]).mean(dim=0)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Both panels of Figure 9; (b) at the two largest totals, or the paper's 3000 and 4000 where there are these."""
    with_synonyms, plain = _arms(runs)
    shown = [index for index, total in enumerate(with_synonyms.totals) if total in (3000, 4000)]
    shown = shown if len(shown) == 2 else list(range(len(with_synonyms.totals)))[-2:]
    timings = [_timing(with_synonyms.runs[index], with_synonyms.totals[index]) for index in shown]
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Two anchors follow a key, and the answer is the key under both operations in turn. The pairs (4, 9) "
        "and (9, 4) are never trained. With synonyms, the anchor 3 does what 9 does and is trained with 1, 2 and 4; "
        f"without, all of the same number of sequences are of pairs of 1, 2, 4 and 9. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(
            CLAIMS,
            _measured(with_synonyms, plain, timings),
            provenance.profile,
            dict.fromkeys(("later", "slightly-later"), "runs of both sizes"),
        ),
        figures=(
            _size_figure(with_synonyms, plain),
            *(_learning_figure(with_synonyms.runs[index], with_synonyms.totals[index]) for index in shown),
        ),
        tables=(_size_table((with_synonyms, plain)), _timing_table(timings, with_synonyms.runs[-1])),
    )


def _measured(with_synonyms: Arm, plain: Arm, timings: Sequence[Timing]) -> dict[str, Tensor | None]:
    red, blue = with_synonyms.accuracy["test on task"], plain.accuracy["test on task"]
    fitted = plain.accuracy["test on data"].mean(dim=1) >= FITTED
    unseen, twins = (torch.cat([getattr(one, name)[one.both] for one in timings]) for name in ("unseen", "twins"))
    return {
        "enough-data": red[-1],
        "little-data": red[0],
        "plain-fails": blue[fitted][blue[fitted].mean(dim=1).argmax()] if fitted.any() else None,
        "helps": red[-1] - blue[-1],
        "later": (unseen > twins).float() if len(unseen) else None,
        "slightly-later": unseen / twins.clamp(min=1) if len(unseen) else None,
    }


def _size_figure(with_synonyms: Arm, plain: Arm) -> LineFigure:
    return LineFigure(
        title="Accuracy on the unseen pairs (4, 9) and (9, 4) against data (Fig 9a)",
        caption="Mean over seeds; the band reaches from the lowest to the highest. The paper draws the curve with "
        "synonyms in red, that of as much plain data in blue.",
        x_label="training sequences",
        y_label="accuracy, test on task",
        lines=tuple(line(arm.name, arm.totals, arm.accuracy["test on task"].T) for arm in (with_synonyms, plain)),
        log_x=True,
        y_range=(0.0, 1.02),
    )


def _learning_figure(run: TrainedRun, total: int) -> LineFigure:
    unit = run.experiment.steps_per_unit
    lines = []
    for split, pairs in (("test on task", UNSEEN), ("test on data", TWINS)):
        for pair in pairs:
            steps, values = along(run, split, "accuracy", group=pair)
            moments = [step / unit for step in steps]
            lines.append(Line(f"({pair.replace(',', ', ')})", numbers(moments), numbers(values.mean(dim=0))))
    return LineFigure(
        title=f"Accuracy by pair along training, {total} sequences with synonyms (Fig 9b)",
        caption="Mean over seeds. (4, 9) and (9, 4) are never trained, (4, 3) and (3, 4) are and are tested on keys at "
        "unseen positions.",
        x_label=run.experiment.recipe.unit,
        y_label="test accuracy",
        lines=tuple(lines),
        y_range=(0.0, 1.02),
    )


def _size_table(arms: Sequence[Arm]) -> Table:
    return Table(
        title="Accuracy by number of training sequences",
        caption="Over seeds, at the end of training: on the unseen pairs (test on task) and on trained pairs with keys "
        "at unseen positions (test on data).",
        columns=(
            "data",
            "training sequences",
            "unseen pairs mean",
            "lowest",
            "highest",
            "trained pairs mean",
            "train mean",
        ),
        rows=tuple(
            (
                arm.name,
                total,
                float(arm.accuracy["test on task"][index].mean()),
                float(arm.accuracy["test on task"][index].min()),
                float(arm.accuracy["test on task"][index].max()),
                float(arm.accuracy["test on data"][index].mean()),
                float(arm.accuracy["train"][index].mean()),
            )
            for arm in arms
            for index, total in enumerate(arm.totals)
        ),
    )


def _timing_table(timings: Sequence[Timing], run: TrainedRun) -> Table:
    def step(value: Tensor) -> float | None:
        return float(value) if value.isfinite() else None

    return Table(
        title="When the pairs are learned, seed by seed",
        caption=f"Step at which the mean accuracy of a kind of pair first reaches {ENOUGH:g}, between two measurements "
        "as if straight; a dash where it never does.",
        columns=("training sequences", "seed", "(4, 3) and (3, 4)", "(4, 9) and (9, 4)", "later by"),
        rows=tuple(
            (
                timing.total,
                seed,
                step(timing.twins[member]),
                step(timing.unseen[member]),
                step(timing.unseen[member] - timing.twins[member]),
            )
            for timing in timings
            for member, seed in enumerate(run.experiment.members.seeds)
        ),
    )


STUDY = Study(
    name="anchor/synonym",
    title="Synonyms: pairs never trained are learned from an anchor that does the same",
    claims=CLAIMS,
    profiles={
        "quick": _QUICK,
        "paper": _paper(),
        "smoke": Profile(
            lambda: quick_experiments({1000: 2}, seeds=2, every=2),
            "Smoke profile: two steps, for tests.",
        ),
    },
    analyse=analyse,
)
