"""Reading comprehension: the question's anchor is looked up in the text.

The text is four pairs of an anchor and an item, (a1, x1, ..., a4, x4), the question a repeats one of the anchors, and
the answer is the item after it. In test every item is at a position where training never shows it.

Source: anchor functions, section 4.2 and Figure 3; settings in its appendix A.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import MapFigure, Table, at_least
from anchorlab.lens import look
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.reading_comprehension import answering
from anchorlab.papers.anchor.reading_comprehension.answering import Seen
from anchorlab.papers.anchor.settings import Setting, only, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Study, claim, kit, measures_in, precondition, quick_model, quick_recipe
from anchorlab.studies.draws import split_curves
from anchorlab.tasks import AnchorFunction, Task
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.training import Experiment, Times

FIG_3 = "section 4.2 and Fig 3"
QUESTION = "our question: does it work like the identity task?"
ON_IDENTITY = "on the identity task"

QUICK = Setting(quick_model(heads=4), quick_recipe(1000, steps=1500, evaluations=60, checkpoints=60), seeds=14)
PAPER = Setting(DecoderSpec(), paper_recipe(1000, epochs=1000).replace(checkpoints=Times(every=100)), seeds=5)


experiments = only("four pairs", "anchor/reading-comprehension", "reading comprehension")


def first_pair(experiment: Experiment) -> Task:
    """Return the control task whose answer is always the first pair's item, whatever the question."""
    own = experiment.task
    assert isinstance(own, AnchorFunction)
    rules = {name: Rule.parse(f"{rule.pattern.text} -> x1") for name, rule in own.rules.items()}
    return own.replace(name="anchor/reading-comprehension-first-pair", rules=rules)


@claim(FIG_3, "about 1", at_least(0.95))
def learned(seen: Seen) -> Float[Tensor, "seed"]:
    """Reading comprehension is learned and generalises.

    Test accuracy at the end, mean over seeds.
    """
    return seen.test


@precondition(FIG_3, "about 1", at_least(0.99))
def fits(seen: Seen) -> Float[Tensor, "seed"]:
    """The training sequences are fitted.

    Training accuracy at the end, mean over seeds.
    """
    return seen.train


@claim(QUESTION, f"no value; close to 1 in Fig 13a, {ON_IDENTITY}", at_least(0.7), own=True)
def shift_mass(seen: Seen) -> Float[Tensor, "seed"]:
    """Reading comprehension uses the shift: a head of layer 0 brings the anchor to the item that is asked for.

    Attention from the asked item to its anchor, in the head of layer 0 with the most of it, mean over test sequences
    and seeds that learned.
    """
    return seen.heads.to_anchor.amax(dim=-1)[seen.learned]


@claim(QUESTION, f"no value; close to 1 in Fig 13b, {ON_IDENTITY}", at_least(0.9), own=True)
def reading_mass(seen: Seen) -> Float[Tensor, "seed"]:
    """Reading comprehension uses the broadcast: nearly all attention of a later head goes to the item asked for.

    Attention from the question to the asked item, in the head of a later layer with the most of it, mean over test
    sequences and seeds that learned.
    """
    return seen.heads.to_item.flatten(1).amax(dim=-1)[seen.learned]


@claim(QUESTION, f"no value; critical in section 1, {ON_IDENTITY}", at_least(0.5), own=True)
def shift_critical(seen: Seen) -> Float[Tensor, "seed"]:
    """The shift is critical for reading comprehension.

    Test accuracy lost if the asked item cannot attend to its anchor in any head, minus that lost if another item cannot
    attend to its own; mean over seeds that learned.
    """
    return (seen.answers.lost(answering.FUSED) - seen.answers.lost(answering.OTHER_FUSED))[seen.learned]


@claim(QUESTION, f"no value; critical in section 1, {ON_IDENTITY}", at_least(0.5), own=True)
def broadcast_critical(seen: Seen) -> Float[Tensor, "seed"]:
    """The broadcast is critical for reading comprehension.

    Test accuracy lost if the question cannot attend to the asked item in any head, minus that lost if it cannot attend
    to another item; mean over seeds that learned.
    """
    return (seen.answers.lost(answering.READ) - seen.answers.lost(answering.OTHER_READ))[seen.learned]


def _of(values: Tensor, head: Tensor) -> Tensor:
    """Select one head for each member: from values `[member head ...]` to `[member ...]`."""
    return values[torch.arange(len(values)), head]


def _of_others(values: Tensor, head: Tensor) -> Tensor:
    """Return the mean over the other heads; not a number where there are none."""
    return (values.sum(dim=1) - _of(values, head)) / (values.shape[1] - 1)


def _reading_layer(seen: Seen, values: Tensor) -> Tensor:
    """Select the reading head's layer: from values `[member later head]` to `[member head]`."""
    return _of(values, seen.heads.reading[0])


def _maps(seen: Seen) -> MapFigure | None:
    run = seen.first
    if not run.has_weights:
        return None
    member, of = int(seen.test.argmax()), run.experiment.task
    batch = of.sample("test", answering.LOOKED_AT, seed=0)
    place, ticks = kit.example(of, batch, batch.latents["rule"] == 1)
    record = look(run.ensemble().select([member]), batch.inputs[[place]], record=[answering.PATTERNS], output=False)
    layers = [record[site][0, 0] for site in record]
    shifting, (later, reading) = int(seen.heads.shifting[member]), (int(one[member]) for one in seen.heads.reading)
    seed = run.experiment.members.seeds[member]
    return kit.attention_maps(
        "Attention of the two heads that answer",
        {
            f"layer 0, head {shifting}": layers[0][shifting],
            f"layer {later + 1}, head {reading}": layers[later + 1][reading],
        },
        ticks,
        caption=f"Seed {seed} on one test sequence whose question asks for the second "
        "pair. In the paper's mechanism each position of layer 0 attends to the one before (shift), and the question, "
        "in the last row of a later layer, reads the item after its anchor (broadcast).",
        seed=seed,
    )


def _heads(seen: Seen) -> Table:
    later, reading = seen.heads.reading
    return kit.seed_table(
        "The two heads, seed by seed",
        f"On {answering.LOOKED_AT} test sequences. The shifting head has the most attention from the asked item to its "
        "anchor in layer 0, the reading head the most from the question to that item in the later layers. Source: "
        "where the question reads most, counted from its anchor in the text. Without the shift or the broadcast: "
        "without this attention in any head.",
        seen.first.experiment.members.seeds,
        {
            "test accuracy": seen.test,
            "shifting head": seen.heads.shifting,
            "shifts by": _of(seen.heads.shifts, seen.heads.shifting),
            "item to anchor": seen.heads.to_anchor.amax(dim=-1),
            "reading layer": later + 1,
            "reading head": reading,
            "source": _of(_reading_layer(seen, seen.heads.sources), reading),
            "question to item": _of(_reading_layer(seen, seen.heads.to_item), reading),
            "question to anchor": _of(_reading_layer(seen, seen.heads.to_match), reading),
            "accuracy without the shift": seen.answers.cut[answering.FUSED][:, 0],
            "without the shifting head": _of(seen.answers.without_head[:, 0, :, 0], seen.heads.shifting),
            "without the broadcast": seen.answers.cut[answering.READ][:, 0],
        },
    )


def _answers(seen: Seen) -> Table:
    (later, reading), left = seen.heads.reading, seen.answers.without_head
    first, second = left[:, 0], _of(left[:, 1:], later)
    rows = {f"attention, {name}": shares for name, shares in seen.answers.cut.items()}
    rows |= {"the shifting head": _of(first, seen.heads.shifting), "the reading head": _of(second, reading)}
    if left.shape[2] > 1:
        rows["another head of layer 0"] = _of_others(first, seen.heads.shifting)
        rows["another head of the reading layer"] = _of_others(second, reading)
    means = torch.stack([shares.mean(dim=0) for shares in rows.values()])
    return kit.column_table(
        "What is answered without it",
        f"Shares of the answers to {answering.LOOKED_AT} test sequences, mean over seeds. Attention from one position "
        "to another is taken from every head; a head that is left out puts out its mean over the sequences at each "
        "position.",
        {"without": list(rows), **{name: means[:, kind] for kind, name in enumerate(answering.KINDS)}},
    )


STUDY = Study(
    "anchor/reading-comprehension",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        split_curves("Accuracy along training (Fig 3b)", {"train": "train", "test": "test"}),
        _maps,
        lambda seen: kit.curves_against(
            "What is answered along training",
            seen.along.steps[1:],
            {name: seen.along.values[name][:, 1:] for name in answering.KINDS},
            x_label="steps",
            y_label="share of answers",
            caption=f"On {answering.LOOKED_AT} test sequences. {kit.MEAN_AND_RANGE} Naming any of the text's four "
            "items gives a quarter of right answers.",
            log_x=True,
            y_range=kit.ACCURACY,
        ),
        _heads,
        _answers,
    ),
    profiles={
        "quick": Profile(QUICK),
        "paper": Profile(
            PAPER,
            "The setting of section 4.2 and appendix A. Batches of 50, as section 4.2 says of this task; appendix A "
            "says 100 for all tasks, and so do the authors' logs. The paper names neither seeds nor weight decay "
            "(PyTorch's is used), and does not explain this model's heads: what it says of two layers on the identity "
            "task is tested on layer 0 and the later layers.",
            paper=("learned", "fits"),
        ),
    },
    smoke=replace(QUICK.shortened(steps=2, size=100), model=quick_model(heads=2, width=16)),
    chosen_on=SEARCHED,
    other_task=first_pair,
    keeps=lambda run, setting: (answering.heads_of(run), answering.answers_of(run), answering.answers_along(run)),
)
