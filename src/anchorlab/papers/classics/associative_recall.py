"""Associative recall: a recurrent model needs more width for more pairs, attention does not.

Several key-value pairs are followed by their keys again, each a query for its value. Attention looks the pair up; a
recurrent model must keep all pairs in its state, whose size grows only with its width.

Source: Arora et al., Zoology: measuring and improving recall in efficient language models (2023), section 4, Figure 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab import training
from anchorlab.findings import LineFigure, Reference, Table, at_least
from anchorlab.models import DecoderSpec, LSTMSpec
from anchorlab.papers.anchor.settings import repeated
from anchorlab.studies import SEARCHED, Profile, Reading, Study, claim, fresh, measures_in, precondition, reading
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, at_end, curves_against, mean_table, seed_table
from anchorlab.studies.readings import Quantity
from anchorlab.tasks.classics.associative_recall import AssociativeRecall

SOLVED = 0.9  # a width suffices at this test accuracy


@dataclass(frozen=True)
class Learner:
    """A kind of model and its learning rates; the best rate of each seed counts."""

    name: str
    model: DecoderSpec | LSTMSpec
    rates: tuple[float, ...]

    def at(self, width: int) -> DecoderSpec | LSTMSpec:
        """Return the model at a width; an attention head has the same width."""
        own = {"width": width, "head_width": width} if isinstance(self.model, DecoderSpec) else {"width": width}
        return self.model.replace(**own)


@dataclass(frozen=True)
class Setting:
    """What a profile trains: both learners on every task at every width."""

    tasks: tuple[AssociativeRecall, ...]  # by rising number of pairs
    batches: tuple[int, ...]  # the batch on each task
    widths: tuple[int, ...]  # in rising order
    attention: Learner
    recurrent: Learner
    recipe: training.Recipe  # how both learn, apart from the batch and the learning rate
    seeds: int  # the number of members at each learning rate


def experiments(setting: Setting) -> dict[tuple[str, int, int], training.Experiment]:
    """Return attention's trainings, then the recurrent model's, each by rising number of pairs and rising width."""
    return {
        (learner.name, task.pairs, width): training.Experiment(
            task,
            learner.at(width),
            setting.recipe.replace(batch=batch),
            training.Members(
                seeds=fresh(setting.seeds) * len(learner.rates), learning_rate=repeated(learner.rates, setting.seeds)
            ),
            f"{learner.name}, {task.pairs} pairs, width {width}",
        )
        for learner in (setting.attention, setting.recurrent)
        for task, batch in zip(setting.tasks, setting.batches, strict=True)
        for width in setting.widths
    }


def _best(run: training.TrainedRun) -> Float[Tensor, "seed"]:
    rates = len(set(run.experiment.members.learning_rate or (None,)))
    return at_end(run, "test", "accuracy").reshape(rates, -1).amax(dim=0)


def _accuracy(learner: str) -> cached_property[Float[Tensor, "seed pairs width"]]:
    def read(seen: "Seen") -> Float[Tensor, "seed pairs width"]:
        name = getattr(seen.setting, learner).name
        found = torch.stack([value for label, value in seen.best.items() if label[0] == name], dim=-1)
        return found.reshape(-1, len(seen.pairs), len(seen.widths))

    return reading(read)


class Seen(Reading):
    """The test accuracy of both learners at the end, each seed at its best learning rate."""

    best = Quantity(_best)
    attention, recurrent = _accuracy("attention"), _accuracy("recurrent")

    @property
    def pairs(self) -> list[int]:
        """The numbers of pairs."""
        return [task.pairs for task in self.setting.tasks]

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths."""
        return tuple(self.setting.widths)

    @property
    def named(self) -> Mapping[str, Float[Tensor, "seed pairs width"]]:
        """Both accuracies by the learner's name."""
        return {self.setting.attention.name: self.attention, self.setting.recurrent.name: self.recurrent}

    @reading
    def known(self) -> Float[Tensor, "seed pairs width"]:
        """The share of queries that the recurrent model knows, if it guesses among a sequence's values otherwise.

        An accuracy of 1 / D, for D pairs, is a share of 0.
        """
        guessed = 1 / torch.tensor(self.pairs).unsqueeze(1)
        return (self.recurrent - guessed) / (1 - guessed)


def needed(widths: Sequence[int], accuracy: Float[Tensor, "seed pairs width"]) -> Float[Tensor, "seed pairs"]:
    """Return the smallest width at which each seed solves the task; NaN if it does at none."""
    there = accuracy >= SOLVED
    first = torch.tensor(widths, dtype=torch.float64)[there.int().argmax(dim=-1)]
    return torch.where(there.any(dim=-1), first, torch.nan)


@claim("section 4 and Fig 2", "about 1 at every width from 64 on, for 4 to 64 pairs", at_least(0.95))
def attention_solves(seen: Seen) -> Float[Tensor, "seed"]:
    """Attention solves the task at every width, however many pairs there are.

    Test accuracy of attention, each seed's lowest over all widths and numbers of pairs, mean over seeds.
    """
    return seen.attention.flatten(1).amin(dim=1)


@claim("section 4 and Fig 2", "the width needed grows with the length, and the pairs with it", at_least(2))
def width_grows(seen: Seen) -> Float[Tensor, "seed"] | None:
    """A model with a state of fixed size needs more width for more pairs.

    Smallest width at which the LSTM answers {SOLVED:g} of the queries, ratio of the most to the fewest pairs; if no
    width suffices for the most pairs, the largest one counts, so that the ratio is then a lower bound.
    """
    widths = needed(seen.widths, seen.recurrent)
    fewest, most = widths[:, 0], widths[:, -1].nan_to_num(nan=seen.widths[-1])
    return None if bool(fewest.isnan().any()) else most / fewest


@claim("section 4 and Fig 2", "at one width the accuracy falls as the length and the pairs grow", at_least(0.2))
def overflows(seen: Seen) -> Float[Tensor, "seed"]:
    """A model with a state of fixed size knows fewer of its pairs the more there are.

    Share of queries that the LSTM knows beyond guessing among a sequence's values, fewest minus most pairs, mean over
    widths.
    """
    return (seen.known[:, 0] - seen.known[:, -1]).mean(dim=1)


@claim("section 4 and Fig 2", "the accuracy rises with the width", at_least(0.2))
def wider_knows_more(seen: Seen) -> Float[Tensor, "seed"]:
    """A wider model with a state of fixed size knows more of its pairs.

    Share of queries that the LSTM knows beyond guessing among a sequence's values, widest minus narrowest, mean over
    numbers of pairs.
    """
    return (seen.known[:, :, -1] - seen.known[:, :, 0]).mean(dim=1)


@claim("section 4 and Fig 2", "attention about 1, the others far below on long sequences", at_least(0.3))
def attention_ahead(seen: Seen) -> Float[Tensor, "seed"]:
    """With little width and many pairs, attention recalls more than a model with a state of fixed size.

    Test accuracy at the smallest width with the most pairs, attention minus LSTM.
    """
    return (seen.attention - seen.recurrent)[:, -1, 0]


@precondition(
    "Fig 2",
    "about 1 for wide models on short sequences",
    at_least(SOLVED),
    of=("width-grows", "overflows", "wider-knows-more", "attention-ahead"),
)
def learns(seen: Seen) -> Float[Tensor, "seed"]:
    """The widest LSTM solves the task with the fewest pairs.

    Test accuracy of the widest LSTM with the fewest pairs, mean over seeds.
    """
    return seen.recurrent[:, 0, -1]


def _by_width(seen: Seen) -> list[LineFigure]:
    return [
        curves_against(
            f"Accuracy against width: {name} (Fig 2)",
            seen.widths,
            {f"{pairs} pairs": accuracy[:, row] for row, pairs in enumerate(seen.pairs)},
            x_label="width",
            y_label="test accuracy",
            caption=f"{MEAN_AND_RANGE} Guessing among the values of a sequence with D pairs gives 1 / D.",
            log_x=True,
            y_range=ACCURACY,
            references=[Reference("solved", SOLVED)],
        )
        for name, accuracy in seen.named.items()
    ]


def _needed(seen: Seen) -> LineFigure:
    return curves_against(
        "Width needed against number of pairs",
        seen.pairs,
        {name: needed(seen.widths, accuracy).nan_to_num(nan=seen.widths[-1]) for name, accuracy in seen.named.items()},
        x_label="key-value pairs",
        y_label="smallest width that suffices",
        caption=f"{MEAN_AND_RANGE} A width suffices at a test accuracy of {SOLVED:g}; where none does, the largest "
        "width counts.",
        y_range=(0, None),
    )


def _means(seen: Seen) -> Table:
    rows = {
        f"{name}, {pairs} pairs": {f"width {width}": accuracy[:, row, at] for at, width in enumerate(seen.widths)}
        for name, accuracy in seen.named.items()
        for row, pairs in enumerate(seen.pairs)
    }
    return mean_table("Test accuracy by model, number of pairs and width", "Mean over seeds.", "model", rows)


def _seeds(seen: Seen) -> Table:
    return seed_table(
        "Width needed, seed by seed",
        f"Smallest width with a test accuracy of {SOLVED:g}; a dash where no width has it.",
        fresh(len(seen.attention)),
        {
            f"{name}, {pairs} pairs": needed(seen.widths, accuracy)[:, row]
            for name, accuracy in seen.named.items()
            for row, pairs in enumerate(seen.pairs)
        },
    )


QUICK = Setting(
    tasks=tuple(AssociativeRecall(pairs=pairs, length=3 * pairs, vocabulary=8) for pairs in (2, 3, 4)),
    batches=(64,) * 3,
    widths=(16, 32, 64, 128),
    attention=Learner("attention", DecoderSpec(layers=2, heads=1, feed_forward=False, norm="pre"), (1e-3, 3e-3)),
    recurrent=Learner("LSTM", LSTMSpec(layers=1), (1e-2,)),
    recipe=training.Recipe(
        data=training.Stream(),
        optimiser=training.AdamW(weight_decay=0.0),
        schedule=training.WarmupCosine(warmup=50, horizon=2000, end=0.1),
        duration=2000,
        clip=1.0,
        evaluation=training.Evaluation(every=100, size=500, splits=("test",)),
        stop=training.Stop(metric="accuracy", value=0.99),
    ),
    seeds=3,
)
RATES = (1e-4, 4.64e-4, 2.15e-3, 1e-2)  # numpy.logspace(-4, -2, 4)
PAPER = Setting(
    tasks=tuple(
        AssociativeRecall(pairs=pairs, length=length, vocabulary=4096)
        for pairs, length in ((4, 64), (8, 128), (16, 256), (64, 512))
    ),
    batches=(512, 512, 256, 128),
    widths=(64, 128, 256, 512),
    attention=Learner(
        "attention",
        DecoderSpec(layers=2, heads=1, feed_forward=False, norm="pre", biases=True, tied=True, initialisation="gpt2"),
        RATES,
    ),
    recurrent=Learner("LSTM", LSTMSpec(layers=4), RATES),
    recipe=training.Recipe(
        data=training.FixedSample(size=100_000),
        unit="epochs",
        schedule=training.WarmupCosine(horizon=64),
        batch=512,
        duration=64,
        evaluation=training.Evaluation(every=1, size=3000, splits=("test",)),
        stop=training.Stop(metric="accuracy", value=0.99),
    ),
    seeds=1,
)

STUDY = Study(
    "classics/associative-recall",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_by_width, _needed, _means, _seeds),
    paper="Zoology",
    profiles={
        "quick": Profile(
            QUICK,
            "2, 3 and 4 pairs of 8 keys and 8 values, no blanks between queries; attention at the better of 1e-3 and "
            "3e-3 for each seed, the LSTM at 1e-2. The source has 4 to 64 pairs of 4096 keys and values in 64 to 512 "
            "positions, and no LSTM: its models with a state of fixed size are gated convolutions and RWKV.",
        ),
        "paper": Profile(
            PAPER,
            "The source's lengths, pairs, widths and batches, and PyTorch's weight decay; of four learning rates the "
            "best counts. The source's attention has a dropout of 0.1, and its models with a state of fixed size are "
            "other ones, so that outside a band nothing is contradicted.",
        ),
    },
    smoke=replace(
        QUICK,
        tasks=QUICK.tasks[:2],
        batches=QUICK.batches[:2],
        widths=(4, 8),
        recipe=QUICK.recipe.replace(
            duration=4,
            schedule=training.WarmupCosine(warmup=2, horizon=4),
            evaluation=training.Evaluation(every=2, size=50, splits=("test",)),
        ),
        seeds=2,
    ),
    chosen_on=SEARCHED,
)
