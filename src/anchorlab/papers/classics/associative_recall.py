"""Associative recall: a recurrent model needs more width for more pairs, attention does not.

Several key-value pairs are followed by their keys again, each a query for its value. Attention looks the pair up; a
recurrent model must keep all pairs in its state, whose size grows only with its width.

Source: Arora et al., Zoology: measuring and improving recall in efficient language models (2023), section 4, Figure 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab import training
from anchorlab.findings import LineFigure, Reference, Table, at_least
from anchorlab.models import DecoderSpec, GatedLinearAttentionSpec, LSTMSpec, MambaSpec, ModelSpec
from anchorlab.papers.anchor.settings import repeated
from anchorlab.studies import SEARCHED, Profile, Reading, Study, claim, fresh, measures_in, reading
from anchorlab.studies.claim import Measure, claims
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, at_end, curves_against, mean_table, seed_table
from anchorlab.studies.readings import Quantity
from anchorlab.tasks.classics.associative_recall import AssociativeRecall

SOLVED = 0.9  # a width suffices at this test accuracy
ATTENTION = "attention"
RECURRENT = {"": "LSTM", "-mamba": "Mamba", "-gated": "gated linear attention"}  # by the ending of their claims' names


@dataclass(frozen=True)
class Learner:
    """A kind of model and how it is trained; for each seed, the best of the learning rates counts."""

    name: str
    model: ModelSpec
    rates: tuple[float, ...]
    widths: tuple[int, ...]  # in rising order
    recipe: training.Recipe  # apart from the batch and the learning rate
    seeds: int  # the number of members at each learning rate

    def experiment(self, task: AssociativeRecall, batch: int, width: int) -> training.Experiment:
        """Return the experiment on a task at one width; an attention head is as wide as the model."""
        own = {"width": width, "head_width": width} if isinstance(self.model, DecoderSpec) else {"width": width}
        return training.Experiment(
            task,
            self.model.replace(**own),
            self.recipe.replace(batch=batch),
            training.Members(seeds=fresh(self.seeds) * len(self.rates), learning_rate=repeated(self.rates, self.seeds)),
            f"{self.name}, {task.pairs} pairs, width {width}",
        )


@dataclass(frozen=True)
class Setting:
    """What a profile trains: every learner on every task at each of its widths."""

    tasks: tuple[AssociativeRecall, ...]  # by rising number of pairs
    batches: tuple[int, ...]  # the batch on each task
    learners: tuple[Learner, ...]  # with the same smallest width


def experiments(setting: Setting) -> dict[tuple[str, int, int], training.Experiment]:
    """Return the experiments by learner, number of pairs and width: learner by learner, with both numbers rising."""
    return {
        (learner.name, task.pairs, width): learner.experiment(task, batch, width)
        for learner in setting.learners
        for task, batch in zip(setting.tasks, setting.batches, strict=True)
        for width in learner.widths
    }


def _best(run: training.TrainedRun) -> Float[Tensor, "seed"]:
    rates = len(set(run.experiment.members.learning_rate or (None,)))
    return at_end(run, "test", "accuracy").reshape(rates, -1).amax(dim=0)


class Seen(Reading):
    """The test accuracy of each learner at the end, each seed at its best learning rate."""

    best = Quantity(_best)
    pairs = reading(lambda seen: [task.pairs for task in seen.setting.tasks])  # the numbers of pairs
    widths = reading(lambda seen: {one.name: one.widths for one in seen.setting.learners})  # by learner

    @reading
    def accuracy(self) -> Mapping[str, Float[Tensor, "seed pairs width"]]:
        """The accuracy of each learner, by its name."""
        return {
            name: torch.stack([self.best[name, *at] for at in product(self.pairs, widths)], dim=-1).reshape(
                -1, len(self.pairs), len(widths)
            )
            for name, widths in self.widths.items()
        }

    @reading
    def known(self) -> Mapping[str, Float[Tensor, "seed pairs width"]]:
        """The share of queries that each learner knows, if it answers the others by guessing among a sequence's values.

        An accuracy of 1 / D, for D pairs, means a share of 0.
        """
        guessed = 1 / torch.tensor(self.pairs).unsqueeze(1)
        return {name: (accuracy - guessed) / (1 - guessed) for name, accuracy in self.accuracy.items()}


def needed(widths: Sequence[int], accuracy: Float[Tensor, "seed pairs width"]) -> Float[Tensor, "seed pairs"]:
    """Return the smallest width at which each seed solves the task; NaN if there is none."""
    there = accuracy >= SOLVED
    first = torch.tensor(widths, dtype=torch.float64)[there.int().argmax(dim=-1)]
    return torch.where(there.any(dim=-1), first, torch.nan)


def _each(name: str) -> dict[str, str]:
    """Return the learners with a state of fixed size, by the name of the claim on each."""
    return {name + ending: learner for ending, learner in RECURRENT.items()}


@claim("section 4 and Fig 2", "about 1 at every width from 64 on, for 4 to 64 pairs", at_least(0.95))
def attention_solves(seen: Seen) -> Float[Tensor, "seed"]:
    """Attention solves the task at every width, however many pairs there are.

    Test accuracy of attention, each seed's lowest over all widths and numbers of pairs, mean over seeds.
    """
    return seen.accuracy[ATTENTION].flatten(1).amin(dim=1)


@claims(
    "section 4 and Fig 2",
    "the width needed grows with the length, and the pairs with it",
    at_least(2),
    _each("width-grows"),
)
def width_grows(seen: Seen, learner: str) -> Float[Tensor, "seed"] | None:
    """A model with a state of fixed size needs more width for more pairs ({learner}).

    Smallest width at which the model answers {SOLVED:g} of the queries, ratio of the most to the fewest pairs; if no
    width suffices for the most pairs, the largest one counts, so that the ratio is then a lower bound.
    """
    widths = needed(seen.widths[learner], seen.accuracy[learner])
    fewest, most = widths[:, 0], widths[:, -1].nan_to_num(nan=seen.widths[learner][-1])
    return None if bool(fewest.isnan().any()) else most / fewest


@claims(
    "section 4 and Fig 2",
    "at one width the accuracy falls as the length and the pairs grow",
    at_least(0.2),
    _each("overflows"),
)
def overflows(seen: Seen, learner: str) -> Float[Tensor, "seed"]:
    """A model with a state of fixed size knows fewer of its pairs the more there are ({learner}).

    Share of queries that the model knows beyond guessing among a sequence's values, fewest minus most pairs, mean over
    widths.
    """
    return (seen.known[learner][:, 0] - seen.known[learner][:, -1]).mean(dim=1)


@claims("section 4 and Fig 2", "the accuracy rises with the width", at_least(0.2), _each("wider-knows-more"))
def wider_knows_more(seen: Seen, learner: str) -> Float[Tensor, "seed"]:
    """A wider model with a state of fixed size knows more of its pairs ({learner}).

    Share of queries that the model knows beyond guessing among a sequence's values, widest minus narrowest, mean over
    numbers of pairs.
    """
    return (seen.known[learner][:, :, -1] - seen.known[learner][:, :, 0]).mean(dim=1)


@claims(
    "section 4 and Fig 2",
    "attention about 1, the others far below on long sequences",
    at_least(0.3),
    _each("attention-ahead"),
)
def attention_ahead(seen: Seen, learner: str) -> Float[Tensor, "seed"]:
    """With little width and many pairs, attention recalls more than a model with a state of fixed size ({learner}).

    Test accuracy at the smallest width with the most pairs, attention minus the model, over the seeds of both.
    """
    ahead, behind = seen.accuracy[ATTENTION][:, -1, 0], seen.accuracy[learner][:, -1, 0]
    both = min(len(ahead), len(behind))  # the first seeds are the same
    return ahead[:both] - behind[:both]


def _preconditions(found: tuple[Measure[Seen], ...]) -> tuple[Measure[Seen], ...]:
    """Make the measure of each learner the precondition of the claims on it."""
    presupposing = zip(width_grows, overflows, wider_knows_more, attention_ahead, strict=True)
    return tuple(
        replace(one, precondition=True, of=tuple(each.name for each in of))
        for one, of in zip(found, presupposing, strict=True)
    )


@_preconditions
@claims("Fig 2", "about 1 for wide models on short sequences", at_least(SOLVED), _each("learns"))
def learns(seen: Seen, learner: str) -> Float[Tensor, "seed"]:
    """The widest model solves the task with the fewest pairs ({learner}).

    Test accuracy of the widest model with the fewest pairs, mean over seeds.
    """
    return seen.accuracy[learner][:, 0, -1]


def _by_width(seen: Seen) -> list[LineFigure]:
    return [
        curves_against(
            f"Accuracy against width: {name} (Fig 2)",
            seen.widths[name],
            {f"{pairs} pairs": accuracy[:, row] for row, pairs in enumerate(seen.pairs)},
            x_label="width",
            y_label="test accuracy",
            caption=f"{MEAN_AND_RANGE} Guessing among the values of a sequence with D pairs gives 1 / D.",
            log_x=True,
            y_range=ACCURACY,
            references=[Reference("solved", SOLVED)],
        )
        for name, accuracy in seen.accuracy.items()
    ]


def _needed(seen: Seen) -> LineFigure:
    return curves_against(
        "Width needed against number of pairs",
        seen.pairs,
        {
            name: needed(seen.widths[name], accuracy).nan_to_num(nan=seen.widths[name][-1])
            for name, accuracy in seen.accuracy.items()
        },
        x_label="key-value pairs",
        y_label="smallest width that suffices",
        caption=f"{MEAN_AND_RANGE} A width suffices at a test accuracy of {SOLVED:g}; where none does, the largest "
        "width that was trained counts.",
        y_range=(0, None),
    )


def _tables(seen: Seen) -> list[Table]:
    by_pairs = {f"{pairs} pairs": row for row, pairs in enumerate(seen.pairs)}
    means = [
        mean_table(
            f"Test accuracy by number of pairs and width: {name}",
            "Mean over seeds.",
            "pairs",
            {
                label: {f"width {width}": accuracy[:, row, at] for at, width in enumerate(seen.widths[name])}
                for label, row in by_pairs.items()
            },
        )
        for name, accuracy in seen.accuracy.items()
    ]
    seeds = [
        seed_table(
            f"Width needed, seed by seed: {name}",
            f"Smallest width with a test accuracy of {SOLVED:g}; a dash where no width has it.",
            fresh(len(accuracy)),
            {label: needed(seen.widths[name], accuracy)[:, row] for label, row in by_pairs.items()},
        )
        for name, accuracy in seen.accuracy.items()
    ]
    return means + seeds


_GATED = GatedLinearAttentionSpec(layers=2, feed_forward=False)
_DECODER = DecoderSpec(layers=2, heads=1, feed_forward=False, norm="pre")
_QUICK = training.Recipe(
    data=training.Stream(),
    optimiser=training.AdamW(weight_decay=0.0),
    schedule=training.WarmupCosine(warmup=50, horizon=2000, end=0.1),
    duration=2000,
    clip=1.0,
    evaluation=training.Evaluation(every=100, size=500, splits=("test",)),
    stop=training.Stop(metric="accuracy", value=0.99),
)
_SHORTER = _QUICK.replace(schedule=_QUICK.schedule.replace(horizon=800), duration=800)
_WIDTHS = (16, 32, 64, 128)
QUICK = Setting(
    tasks=tuple(AssociativeRecall(pairs=pairs, length=3 * pairs, vocabulary=8) for pairs in (2, 3, 4)),
    batches=(64,) * 3,
    learners=(
        Learner(ATTENTION, _DECODER, (1e-3, 3e-3), _WIDTHS, _QUICK, seeds=3),
        Learner("LSTM", LSTMSpec(layers=1), (1e-2,), _WIDTHS, _QUICK, seeds=3),
        Learner("Mamba", MambaSpec(layers=1), (1e-2,), _WIDTHS[:-1], _SHORTER, seeds=14),
        Learner("gated linear attention", _GATED, (1e-2,), _WIDTHS[:-1], _SHORTER, seeds=14),
    ),
)
_PAPER = training.Recipe(
    data=training.FixedSample(size=100_000),
    unit="epochs",
    schedule=training.WarmupCosine(horizon=64),
    batch=512,
    duration=64,
    evaluation=training.Evaluation(every=1, size=3000, splits=("test",)),
    stop=training.Stop(metric="accuracy", value=0.99),
)
RATES = (1e-4, 4.64e-4, 2.15e-3, 1e-2)  # numpy.logspace(-4, -2, 4)
PAPER = Setting(
    tasks=tuple(
        AssociativeRecall(pairs=pairs, length=length, vocabulary=4096)
        for pairs, length in ((4, 64), (8, 128), (16, 256), (64, 512))
    ),
    batches=(512, 512, 256, 128),
    learners=tuple(
        Learner(name, model, RATES, (64, 128, 256, 512), _PAPER, seeds=1)
        for name, model in {
            ATTENTION: _DECODER.replace(biases=True, tied=True, initialisation="gpt2"),
            "LSTM": LSTMSpec(layers=4),
            "Mamba": MambaSpec(layers=4),
            "gated linear attention": _GATED.replace(layers=4),
        }.items()
    ),
)

STUDY = Study(
    "classics/associative-recall",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_by_width, _needed, _tables),
    paper="Zoology",
    profiles={
        "quick": Profile(
            QUICK,
            "2, 3 and 4 pairs of 8 keys and 8 values, no blanks between queries; attention at the better of 1e-3 and "
            "3e-3 for each seed, the others at 1e-2. The source has 4 to 64 pairs of 4096 keys and values in 64 to 512 "
            "positions, and other models with a state of fixed size: gated convolutions and RWKV.",
        ),
        "paper": Profile(
            PAPER,
            "The source's lengths, pairs, widths and batches, and PyTorch's weight decay; of four learning rates the "
            "best counts. The source's attention has a dropout of 0.1, and its models with a state of fixed size are "
            "other ones, so that outside a band nothing is contradicted.",
        ),
    },
    smoke=Setting(
        QUICK.tasks[:2],
        QUICK.batches[:2],
        tuple(
            replace(
                one,
                widths=(4, 8),
                recipe=_QUICK.replace(
                    duration=4,
                    schedule=training.WarmupCosine(warmup=2, horizon=4),
                    evaluation=training.Evaluation(every=2, size=50, splits=("test",)),
                ),
                seeds=2,
            )
            for one in QUICK.learners
        ),
    ),
    chosen_on=SEARCHED,
)
