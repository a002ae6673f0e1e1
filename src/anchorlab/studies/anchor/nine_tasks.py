"""The nine tasks of the anchor-function paper side by side: each is fitted and generalises.

Source: anchor functions, section 4, Figures 2 and 3; settings in its appendix A.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, Line, LineFigure, Provenance, Table, numbers
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor import (
    composite,
    identity,
    multi_anchor,
    order,
    recitation,
    statistical,
    synonym,
    working_memory,
)
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import along, judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, Recipe, Times, TrainedRun

NAMES = (
    "identity",
    "reading comprehension",
    "classification",
    "composite",
    "working memory",
    "synonym",
    "recitation",
    "statistical output",
    "multi-anchor",
)
"""The tasks in the order of section 4, which is that of every profile's experiments."""

UNSEEN_PAIRS = ("composite", "synonym")
"""The tasks that also hold pairs of anchors back: their test on data is judged with the others, that on task apart."""

_SOURCE = "anchor functions, section 4 and Fig 3"


def _id(name: str) -> str:
    return name.replace(" ", "-")


CLAIMS = (
    *(
        Claim(
            f"anchor/nine-tasks/{_id(name)}",
            f"{name[0].upper()}{name[1:]} is learned and generalises",
            _SOURCE,
            "about 1",
            f"accuracy of {'test on data' if name in UNSEEN_PAIRS else 'test'} at the end, mean over seeds",
            (0.95, 1.0),
        )
        for name in NAMES
    ),
    Claim(
        "anchor/nine-tasks/unseen-pairs",
        "Where pairs of anchors are held back, these are answered too",
        "anchor functions, sections 4.4 and 4.6",
        "high; no value in the text",
        "accuracy of test on task at the end, mean over the composite and the synonym task and seeds",
        (0.9, 1.0),
    ),
    Claim(
        "anchor/nine-tasks/fits",
        "All nine are fitted",
        _SOURCE,
        "about 1",
        "lowest accuracy on training sequences over tasks at the end, each a mean over seeds",
        (0.99, 1.0),
    ),
)


def quick_experiments() -> list[Experiment]:
    """One experiment per task, as in the task's own study; with one seed where a run takes more than half a minute."""
    return [
        *identity.quick_experiments(sizes=(2000,)),
        _reading_comprehension(),
        *order.quick_experiments(seeds=1),
        *composite.quick_experiments(depths=(4,), seeds=1),
        *working_memory.quick_experiments(seeds=1),
        synonym.quick_experiments({10_000: 1500})[0],
        *recitation.quick_experiments(sizes=(7000,)),
        statistical.quick_experiments()[0],
        *multi_anchor.quick_experiments(seeds=1),
    ]


def _reading_comprehension() -> Experiment:
    return Experiment(
        task("anchor/reading-comprehension"),
        quick_model(),
        quick_recipe(1000, steps=1500),
        Members(seeds=tuple(range(3))),
        "reading comprehension",
    )


def _paper_experiments() -> list[Experiment]:
    settings: tuple[tuple[str, dict[str, str | int], Recipe], ...] = (
        ("identity", {}, paper_recipe(2000)),
        ("reading-comprehension", {}, paper_recipe(1000, epochs=1000)),
        ("classification", {}, paper_recipe(30_000).replace(checkpoints=Times(at=(0,)))),
        ("composite", {}, paper_recipe(8000, batch=100, every=20)),
        ("working-memory", {}, paper_recipe(40_000, epochs=300, batch=100, every=10)),
        ("synonym", {"total": 10_000}, paper_recipe(10_000, batch=100, every=20)),
        ("recitation", {}, paper_recipe(7000, batch=100)),
        ("statistical", {"kind": "first"}, paper_recipe(9000)),
        ("multi-anchor", {}, paper_recipe(20_000, epochs=1000, batch=100, every=20)),
    )
    return [
        Experiment(task(f"anchor/{name}", **fields), DecoderSpec(), recipe, Members(seeds=tuple(range(5))), shown)
        for shown, (name, fields, recipe) in zip(NAMES, settings, strict=True)
    ]


def _smoke_experiments() -> list[Experiment]:
    members = Members(seeds=(0,))
    return [
        Experiment(one.task, one.model, quick_recipe(200, 2, evaluations=1), members, one.label)
        for one in quick_experiments()
    ]


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Loss and accuracy of every task along training, and where each ends."""
    by_task = dict(zip(NAMES, runs, strict=True))
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Anchors say what is to be done with the tokens beside them; each task has a decision of its own. "
        f"In test keys stand where training never shows them, or under anchors that they were never shown with. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, _measured(by_task), provenance.profile, {"unseen-pairs": "seeds of both tasks"}),
        figures=(
            _figure(by_task, "accuracy", "Test accuracy along training (Fig 3b)"),
            _figure(by_task, "loss", "Test loss along training (Fig 3a)"),
        ),
        tables=(_table(by_task),),
    )


def _measured(by_task: Mapping[str, TrainedRun]) -> dict[str, Tensor | None]:
    unseen = [at_end(by_task[name], "test on task", "accuracy") for name in UNSEEN_PAIRS]
    fitted = [at_end(run, "train", "accuracy").mean() for run in by_task.values()]
    return {
        **{_id(name): at_end(run, held_out(name), "accuracy") for name, run in by_task.items()},
        "unseen-pairs": torch.cat(unseen),
        "fits": torch.stack(fitted).min().reshape(1),
    }


def held_out(name: str) -> str:
    """The split of a task on which all nine are compared: keys where training never shows them."""
    return "test on data" if name in UNSEEN_PAIRS else "test"


def _figure(by_task: Mapping[str, TrainedRun], metric: str, title: str) -> LineFigure:
    lines = []
    for name, run in by_task.items():
        steps, values = along(run, held_out(name), metric)
        share = [100 * step / run.experiment.steps for step in steps]
        lines.append(Line(name, numbers(share), numbers(values.mean(dim=0))))
    return LineFigure(
        title=title,
        caption="Mean over seeds, on sequences whose keys stand where training never shows them; for multi-anchor, "
        "keys that it never shows with their anchor. The labels of statistical output leave a loss of 0.50 at best.",
        x_label="part of the training, %",
        y_label=metric,
        lines=tuple(lines),
        log_y=metric == "loss",
        y_range=(0.0, 1.02) if metric == "accuracy" else (None, None),
    )


def _table(by_task: Mapping[str, TrainedRun]) -> Table:
    rows = []
    for name, run in by_task.items():
        accuracy = at_end(run, held_out(name), "accuracy")
        pairs = name in UNSEEN_PAIRS
        rows.append(
            (
                name,
                run.experiment.recipe.data.size,  # type: ignore[union-attr]
                run.experiment.steps,
                len(accuracy),
                float(at_end(run, "train", "accuracy").mean()),
                float(accuracy.mean()),
                float(accuracy.min()),
                float(at_end(run, "test on task", "accuracy").mean()) if pairs else None,
            )
        )
    return Table(
        title="Accuracy at the end, task by task",
        caption="Means over seeds. Unseen pairs: sequences with the pair of anchors that training never shows.",
        columns=("task", "training sequences", "steps", "seeds", "train", "test", "test, lowest seed", "unseen pairs"),
        rows=tuple(rows),
    )


STUDY = Study(
    name="anchor/nine-tasks",
    title="Nine tasks: each is fitted and generalises",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            quick_experiments,
            "Quick profile: narrow transformers of two to four layers, width 64, trained for 600 to 6000 steps; each "
            "task in the setting of its own study, with the largest training set there, and one seed for "
            "classification, composite, working memory and multi-anchor, whose runs are long and whose own studies "
            "have more, else three to ten; reading comprehension, which has no study, on the paper's 1000 sequences "
            "for 1500 steps with three. The paper trains four layers of four heads, width 400 (5.65 M parameters), for "
            "up to 4000 epochs.",
        ),
        "paper": Profile(
            _paper_experiments,
            "Paper profile: four layers of four heads, width 400; train sizes, batches and epochs of section 4 and "
            "appendix A. Of tasks that the paper trains on several sizes (identity, synonym, recitation) one is taken: "
            "2000, 10000 and 7000. The paper names no seeds (five here) and no weight decay (PyTorch's 0.01).",
        ),
        "smoke": Profile(_smoke_experiments, "Smoke profile: two steps, for tests."),
    },
    analyse=analyse,
)
