"""Nine tasks: each is fitted and generalises.

Anchors say which operation applies to the neighbouring tokens; each task has a claim of its own, three of them
in their own studies. In test, keys have positions or anchors that training never gives them.

Source: anchor functions, section 4, Figures 2 and 3; settings in its appendix A.
"""

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Line, LineFigure, Table, at_least, numbers
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor import identity, multi_anchor, order, recitation, statistical, synonym, working_memory
from anchorlab.papers.anchor.composite import composite
from anchorlab.papers.anchor.settings import Setting, paper_recipe
from anchorlab.studies import SEARCHED, Measure, Profile, Study, fresh, kit
from anchorlab.studies.kit import ACCURACY, along, column_table, train_size
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.studies.readings import Reading, at_end, reading
from anchorlab.tasks import Task, task
from anchorlab.training import Evaluation, FixedSample, Members, Recipe, Times

UNSEEN_PAIRS = ("composite", "synonym")
"""The tasks that also hold out pairs of anchors: `test on data` is judged with the others; `test on task` is judged in
their own studies."""

CLAIMED_ELSEWHERE = ("identity", "reading comprehension", "multi-anchor")
"""The tasks whose own studies claim that they generalise; multi-anchor does so for most, but not the outer, anchors."""

SEEDS = 14
"""The seeds in the quick profile: the fewest that can decide a claim on a share of at least 0.8."""

_COMPOSITE = replace(
    composite.QUICK,
    recipe=composite.QUICK.recipe.replace(data=FixedSample(size=8000)),  # a single amount of data, so not nested
    depths=(4,),
    more=None,
)
_OWN = {
    "identity": identity.experiment(identity.TWO_LAYERS),
    "reading comprehension": Setting(quick_model(), quick_recipe(1000, steps=1500), SEEDS).experiment(
        task("anchor/reading-comprehension"), "reading comprehension"
    ),
    "classification": order.experiments(order.QUICK)["classification"],
    "composite": composite.experiments(_COMPOSITE)[4],
    "working memory": working_memory.experiments(working_memory.QUICK)["working memory"],
    "synonym": synonym.experiments(synonym.QUICK)["synonyms", 10_000],
    "recitation": recitation.experiments(recitation.QUICK)[7000],
    "statistical output": statistical.experiments(statistical.QUICK)["first"],
    "multi-anchor": multi_anchor.experiments(multi_anchor.QUICK)["ten anchors"],
}
QUICK = {name: replace(one, members=Members(seeds=fresh(SEEDS))) for name, one in _OWN.items()}
"""The tasks of section 4, each as in its own study."""

NAMES = tuple(QUICK)
"""The names of the tasks."""

JUDGED = tuple(name for name in NAMES if name not in CLAIMED_ELSEWHERE)

_TRAINED: dict[str, tuple[Task, Recipe]] = {
    "identity": (task("anchor/identity"), paper_recipe(2000)),
    "reading comprehension": (
        task("anchor/reading-comprehension"),
        paper_recipe(1000, epochs=1000).replace(checkpoints=Times(every=100)),
    ),
    "classification": (task("anchor/classification"), paper_recipe(30_000).replace(checkpoints=Times(at=(0,)))),
    "composite": (task("anchor/composite"), paper_recipe(8000, batch=100, every=1)),
    "working memory": (task("anchor/working-memory"), paper_recipe(40_000, epochs=300, batch=100, every=10)),
    "synonym": (task("anchor/synonym", total=10_000), paper_recipe(10_000, batch=100, every=20)),
    "recitation": (task("anchor/recitation"), paper_recipe(7000, batch=100)),
    "statistical output": (task("anchor/statistical", kind="first"), paper_recipe(9000)),
    "multi-anchor": (task("anchor/multi-anchor"), paper_recipe(20_000, epochs=1000, batch=100, every=20)),
}
PAPER = {
    name: Setting(DecoderSpec(), recipe, seeds=5).experiment(chosen, name)
    for name, (chosen, recipe) in _TRAINED.items()
}
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
