"""Nine tasks: each is fitted and generalises.

Anchors say which operation applies to the neighbouring tokens; each task has a claim of its own. In test, keys are at
positions, or with anchors, at which training never shows them.

Source: anchor functions, section 4, Figures 2 and 3; settings in its appendix A.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from anchorlab.findings import Line, LineFigure, Table, numbers, within
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor import (
    identity,
    multi_anchor,
    order,
    recitation,
    statistical,
    synonym,
    working_memory,
)
from anchorlab.papers.anchor.composite import study as composite
from anchorlab.papers.anchor.settings import Setting, paper_recipe
from anchorlab.studies.claim import Measure, Measurement, claim, precondition
from anchorlab.studies.kit import ACCURACY, along, at_end, column_table, train_size
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.studies.seeds import SEARCHED, fresh
from anchorlab.studies.shared_seeds import over_shared
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.tasks import Task, task
from anchorlab.training import Evaluation, Experiment, Members, Recipe, Times, TrainedRun

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
"""The tasks in the order of section 4, the order of every profile's experiments."""

UNSEEN_PAIRS = ("composite", "synonym")
"""The tasks that also hold pairs of anchors back: their test on data is judged with the others, that on task apart."""

CLAIMED_ELSEWHERE = ("identity", "reading comprehension", "multi-anchor")
"""The tasks whose own studies claim that they generalise: the last with most anchors, since the outer ones do not."""

QUICK = (
    identity.experiment(identity.TWO_LAYERS),
    Setting(quick_model(), quick_recipe(1000, steps=1500), seeds=3).experiment(
        task("anchor/reading-comprehension"), "reading comprehension"
    ),
    *order.experiments(replace(order.QUICK, seeds=1)).values(),
    *composite.experiments(replace(composite.QUICK, depths=(4,), seeds=1)),
    *working_memory.experiments(replace(working_memory.QUICK, seeds=1)).values(),
    *synonym.experiments(synonym.Sizes(synonym.QUICK.synonyms[-1:], plain=())).values(),
    *recitation.experiments(replace(recitation.QUICK, sizes=(7000,))),
    statistical.experiments(statistical.QUICK)["first"],
    *multi_anchor.experiments(replace(multi_anchor.QUICK, seeds=1)).values(),
)
"""Each task as in its own study; with one seed where a run takes more than half a minute."""

_TRAINED: tuple[tuple[Task, Recipe], ...] = (
    (task("anchor/identity"), paper_recipe(2000)),
    (task("anchor/reading-comprehension"), paper_recipe(1000, epochs=1000).replace(checkpoints=Times(every=100))),
    (task("anchor/classification"), paper_recipe(30_000).replace(checkpoints=Times(at=(0,)))),
    (task("anchor/composite"), paper_recipe(8000, batch=100, every=1)),
    (task("anchor/working-memory"), paper_recipe(40_000, epochs=300, batch=100, every=10)),
    (task("anchor/synonym", total=10_000), paper_recipe(10_000, batch=100, every=20)),
    (task("anchor/recitation"), paper_recipe(7000, batch=100)),
    (task("anchor/statistical", kind="first"), paper_recipe(9000)),
    (task("anchor/multi-anchor"), paper_recipe(20_000, epochs=1000, batch=100, every=20)),
)
PAPER = tuple(
    Setting(DecoderSpec(), recipe, seeds=5).experiment(chosen, name)
    for name, (chosen, recipe) in zip(NAMES, _TRAINED, strict=True)
)
_ONE = Members(seeds=fresh(1))
_TINY = quick_recipe(200, steps=2).replace(evaluation=Evaluation(every=2, size=100))
SMOKE = tuple(replace(one, recipe=_TINY, members=_ONE) for one in QUICK)


def experiments(setting: Sequence[Experiment]) -> Sequence[Experiment]:
    """Return one experiment for each task."""
    return setting


@dataclass(frozen=True)
class Accuracies:
    """Accuracies at the end of training, by task."""

    train: Mapping[str, Float[Tensor, "member"]]
    held_out: Mapping[str, Float[Tensor, "member"]]  # with keys at places that training never shows
    unseen_pairs: Mapping[str, Float[Tensor, "member"]]  # on pairs of anchors that training never shows


def held_out(name: str) -> str:
    """Return the split of a task on which all nine are compared."""
    return "test on data" if name in UNSEEN_PAIRS else "test"


def see(runs: Sequence[TrainedRun]) -> Accuracies:
    """Read the accuracies of all tasks, in the order of `NAMES`."""
    by_task = dict(zip(NAMES, runs, strict=True))
    return Accuracies(
        train={name: at_end(run, "train", "accuracy") for name, run in by_task.items()},
        held_out={name: at_end(run, held_out(name), "accuracy") for name, run in by_task.items()},
        unseen_pairs={name: at_end(by_task[name], "test on task", "accuracy") for name in UNSEEN_PAIRS},
    )


def _learned(name: str) -> Measure[Accuracies]:
    return Measure(
        name.replace(" ", "-"),
        f"{name[0].upper()}{name[1:]} is learned and generalises",
        at="section 4 and Fig 3",
        paper="about 1",
        measured_as=f"accuracy of {held_out(name)} at the end, mean over seeds",
        band=within(0.95, 1.0),
        exact=False,
        function=lambda seen: seen.held_out[name],
    )


@claim("sections 4.4 and 4.6", "high; no value in the text", within(0.9, 1.0))
def unseen_pairs(seen: Accuracies) -> Measurement:
    """Where pairs of anchors are held back, these are answered too.

    Accuracy on the split `test on task` at the end, mean over the composite and the synonym task and seeds.
    """
    both = pad_sequence(list(seen.unseen_pairs.values()), padding_value=torch.nan)  # a task may have fewer seeds
    return over_shared(both, torch.nanmean)


@precondition("section 4 and Fig 3", "about 1", within(0.99, 1.0))
def fits(seen: Accuracies) -> Float[Tensor, "seed"]:
    """All nine are fitted.

    Accuracy on training sequences at the end, mean over seeds, lowest over tasks.
    """
    return min(seen.train.values(), key=torch.mean)


def analyse(runs: Sequence[TrainedRun], setting: Sequence[Experiment]) -> Analysis:
    """Draw loss and accuracy of every task along training, and list their final values."""
    seen, by_task = see(runs), dict(zip(NAMES, runs, strict=True))
    accuracy = _figure(by_task, "accuracy", "Test accuracy along training (Fig 3b)")
    loss = _figure(by_task, "loss", "Test loss along training (Fig 3a)")
    return Analysis(seen, [accuracy, loss], [_table(seen, by_task)])


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
        y_range=ACCURACY if metric == "accuracy" else (None, None),
    )


def _table(seen: Accuracies, by_task: Mapping[str, TrainedRun]) -> Table:
    runs, tests = by_task.values(), seen.held_out.values()
    pairs = [seen.unseen_pairs.get(name) for name in by_task]
    return column_table(
        "Accuracy at the end, task by task",
        "Means over seeds. Unseen pairs: sequences with the pair of anchors that training never shows.",
        {
            "task": list(by_task),
            "training sequences": [train_size(run) for run in runs],
            "steps": [run.experiment.steps for run in runs],
            "seeds": [len(run.experiment.members) for run in runs],
            "train": [float(accuracy.mean()) for accuracy in seen.train.values()],
            "test": [float(accuracy.mean()) for accuracy in tests],
            "test, lowest seed": [float(accuracy.min()) for accuracy in tests],
            "unseen pairs": [None if accuracy is None else float(accuracy.mean()) for accuracy in pairs],
        },
    )


STUDY = Study(
    name="anchor/nine-tasks",
    doc=__doc__,
    claims=(*(_learned(name) for name in NAMES if name not in CLAIMED_ELSEWHERE), unseen_pairs, fits),
    experiments=experiments,
    analyse=analyse,
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: narrow transformers of two to four layers, width 64, trained for 600 to 6000 steps; each "
            "task in the setting of its own study, with the largest training set there, and one seed for "
            "classification, composite, working memory and multi-anchor, whose runs are long and whose own studies "
            "have more, else three to ten; reading comprehension has one head in each layer, where its own study "
            "has four, and three seeds. The paper trains four layers of four heads, width 400 (5.65 M parameters), for "
            "up to 4000 epochs.",
        ),
        "paper": Profile(
            PAPER,
            "Paper profile: four layers of four heads, width 400; train sizes, batches and epochs of section 4 and "
            "appendix A. Of tasks that the paper trains on several sizes (identity, synonym, recitation) one is "
            "taken: 2000, 10000 and 7000. The numbers of sequences of composite, working memory and multi-anchor are "
            "those of the authors' code. Batches: 50 for reading comprehension and classification, as sections 4.2 "
            "and 4.3 say, and for identity and statistical output, as in the authors' code of the identity task; 100 "
            "for the others, as appendix A says. The paper names no seeds (five here) and no weight decay (PyTorch's "
            "0.01).",
            paper=True,
        ),
    },
    smoke=SMOKE,
    chosen_on=SEARCHED,
)
