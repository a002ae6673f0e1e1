"""Nine tasks: each is fitted and generalises.

Anchors say which operation applies to the neighbouring tokens; each task has a claim of its own, three of them
in their own studies. In test, keys have positions or anchors that training never gives them.

Source: anchor functions, section 4, Figures 2 and 3; settings in its appendix A.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Line, LineFigure, Table, at_least, numbers
from anchorlab.papers.anchor import identity, multi_anchor, order, recitation, statistical, synonym, working_memory
from anchorlab.papers.anchor.composite import composite
from anchorlab.papers.anchor.reading_comprehension import reading_comprehension
from anchorlab.studies import SEARCHED, Measure, Profile, Study, fresh, kit
from anchorlab.studies.kit import ACCURACY, along, column_table, train_size
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.studies.readings import Reading, at_end, reading
from anchorlab.training import Evaluation, Experiment, FixedSample, Members

UNSEEN_PAIRS = ("composite", "synonym")
"""The tasks that also hold out pairs of anchors: `test on data` is judged with the others; `test on task` is judged in
their own studies."""

CLAIMED_ELSEWHERE = ("identity", "reading comprehension", "multi-anchor")
"""The tasks whose own studies claim that they generalise; multi-anchor does so for most, but not the outer, anchors."""

SEEDS = 14  # in the quick profile: the fewest that can decide a claim on a share of at least 0.8

_OWN: Mapping[str, tuple[Study[Any], Any]] = {
    "identity": (identity.STUDY, "identity, 2000 sequences"),
    "reading comprehension": (reading_comprehension.STUDY, "four pairs"),
    "classification": (order.STUDY, "classification"),
    "composite": (composite.STUDY, 4),
    "working memory": (working_memory.STUDY, "working memory"),
    "synonym": (synonym.STUDY, ("synonyms", 10_000)),
    "recitation": (recitation.STUDY, 7000),
    "statistical output": (statistical.STUDY, "first"),
    "multi-anchor": (multi_anchor.STUDY, "ten anchors"),
}
"""The tasks of section 4, each with its own study and the label of one experiment there."""

NAMES = tuple(_OWN)
JUDGED = tuple(name for name in NAMES if name not in CLAIMED_ELSEWHERE)


def _taken(profile: str, seeds: int) -> dict[str, Experiment]:
    """Return the experiment of each task in a profile of its own study, with other seeds."""
    found = {name: own.labelled(own.profile(profile).setting)[label] for name, (own, label) in _OWN.items()}
    return {name: replace(one, members=Members(seeds=fresh(seeds))) for name, one in found.items()}


_QUICK = _taken("quick", SEEDS)
_READING, _COMPOSITE = _QUICK["reading comprehension"], _QUICK["composite"]
QUICK = _QUICK | {
    "reading comprehension": replace(_READING, model=quick_model(), recipe=quick_recipe(1000, steps=1500)),
    # a single amount of data, so not nested
    "composite": replace(_COMPOSITE, recipe=_COMPOSITE.recipe.replace(data=FixedSample(size=8000))),
}
PAPER = {name: replace(one, label=name) for name, one in _taken("paper", seeds=5).items()}
_TINY = quick_recipe(200, steps=2).replace(evaluation=Evaluation(every=2, size=100))
SMOKE = {name: replace(one, recipe=_TINY, members=Members(seeds=fresh(1))) for name, one in QUICK.items()}


class Accuracies(Reading):
    """Accuracies at the end of training, by task."""

    train = at_end("train", "accuracy")

    @reading
    def held_out(self) -> dict[str, Float[Tensor, "member"]]:
        """The accuracies on held-out keys, by task."""
        return {name: kit.at_end(run, held_out(name), "accuracy") for name, run in self.runs.items()}

    @reading
    def unseen_pairs(self) -> dict[str, Float[Tensor, "member"]]:
        """The accuracies on pairs of anchors that training never shows."""
        return {name: kit.at_end(self.runs[name], "test on task", "accuracy") for name in UNSEEN_PAIRS}


def held_out(name: str) -> str:
    """Return the name of a task's split of held-out keys, on which all nine tasks are compared."""
    return "test on data" if name in UNSEEN_PAIRS else "test"


def _fitted(name: str) -> Measure[Accuracies]:
    """Return the precondition that a task is fitted, for its own claim."""
    return Measure(
        f"{name.replace(' ', '-')}-fitted",
        f"{name[0].upper()}{name[1:]} is fitted",
        at="section 4 and Fig 3",
        paper="about 1",
        measured_as="accuracy on training sequences at the end, mean over seeds",
        band=at_least(0.99),
        exact=False,
        function=lambda seen: seen.train[name],
        precondition=True,
        of=(name.replace(" ", "-"),),
    )


def _learned(name: str) -> Measure[Accuracies]:
    return Measure(
        name.replace(" ", "-"),
        f"{name[0].upper()}{name[1:]} is learned and generalises",
        at="section 4 and Fig 3",
        paper="about 1",
        measured_as=f"accuracy of {held_out(name)} at the end, mean over seeds",
        band=at_least(0.95),
        exact=False,
        function=lambda seen: seen.held_out[name],
    )


def _figure(seen: Accuracies, metric: str, title: str) -> LineFigure:
    lines = []
    for name, run in seen.runs.items():
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


def _table(seen: Accuracies) -> Table:
    runs, tests = seen.runs.values(), seen.held_out.values()
    pairs = [seen.unseen_pairs.get(name) for name in seen.runs]
    return column_table(
        "Accuracy at the end, task by task",
        "Means over seeds. Unseen pairs: sequences with the pair of anchors that training never shows.",
        {
            "task": list(seen.runs),
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
    "anchor/nine-tasks",
    __doc__,
    claims=(*map(_learned, JUDGED), *map(_fitted, JUDGED)),
    trains=lambda setting: setting,
    reads=Accuracies,
    draws=(
        lambda seen: _figure(seen, "accuracy", "Test accuracy along training (Fig 3b)"),
        lambda seen: _figure(seen, "loss", "Test loss along training (Fig 3a)"),
        _table,
    ),
    profiles={
        "quick": Profile(
            QUICK,
            "Each task in the setting of its own study, with the largest training set there; reading comprehension has "
            "one head in each layer, where its own study has four.",
        ),
        "paper": Profile(
            PAPER,
            "Train sizes, batches and epochs of section 4 and appendix A. Of tasks that the paper trains on several "
            "sizes (identity, synonym, recitation) one is taken: 2000, 10000 and 7000. The numbers of sequences of "
            "composite, working memory and multi-anchor are those of the authors' code. Batches: 50 for reading "
            "comprehension and classification, as sections 4.2 and 4.3 say, and for identity and statistical output, "
            "as in the authors' code of the identity task; 100 for the others, as appendix A says. The paper names "
            "neither seeds nor weight decay; PyTorch's is used.",
            paper=True,
        ),
    },
    smoke=SMOKE,
    chosen_on=SEARCHED,
)
