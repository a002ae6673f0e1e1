"""Loss on every token against loss on the answer alone: which learns the rule, which the surface.

Models that differ only in the positions that training scores learn the identity function and the composite function.
In the composite function, the pair (4, 3) is trained on key - 6 in place of key - 10, and the pair (3, 4) is never
trained: by the rule, (3, 4) gives key - 10; by the surface, key - 6, as the symmetric pair (4, 3) does. The other
tokens follow a fixed chain, so that the loss on every token has something to learn from them, as in a text.

Source: Lin, Zhang and Xu, Reasoning Bias of Next Token Prediction Training (2025), abstract; the tasks are those of
anchor functions, sections 4.1 and 4.4.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import LineFigure, Table, at_least, at_most, line
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.composite.depths import DATA, SPLITS, TASK, TRAIN, first_reached
from anchorlab.papers.anchor.identity import PAPER_SIZES, read_curve
from anchorlab.papers.anchor.perturbed import MOVE, MOVES, kept_under_noise, on_own_sequences, rise_in_loss
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, quick_model, quick_recipe, reading, training_curves
from anchorlab.studies.claim import Measurement, claim, measures_in, precondition
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, along, along_units, at_end, column_table, curves_against
from anchorlab.studies.shared_seeds import mean_of_known, over_shared
from anchorlab.tasks import task
from anchorlab.training import Experiment, TrainedRun

EVERY, ALONE = "every token", "the answer"
LOSSES = {EVERY: True, ALONE: False}  # the two losses, and whether each scores every token
ANSWERED = 0.9  # the accuracy from which a split counts as answered, and a member is judged under perturbation
STRENGTHS = (0.25, 0.5, 1.0, 2.0)  # of noise on the embeddings, in units of their root mean square
IDENTITY, COMPOSITE = "identity", "composite"

SUCCESSORS = 4
"""How many of the 81 items may follow an item of noise. In a text most tokens can be predicted from those before them;
with independent noise only the answer could be, one token in nine."""


@dataclass(frozen=True)
class Tasks:
    """The settings of both tasks; identity is trained on several numbers of sequences, the largest last."""

    identity: Setting
    sizes: tuple[int, ...]
    composite: Setting


QUICK = Tasks(
    Setting(quick_model(), quick_recipe(1000, steps=1200), seeds=8),
    (400, 500, 600, 1000),
    Setting(
        quick_model(layers=4),
        quick_recipe(8000, steps=6000, batch=100, learning_rate=2e-3, weight_decay=0.03, evaluations=20),
        seeds=8,
    ),
)
PAPER = Tasks(
    Setting(DecoderSpec(), paper_recipe(1000), seeds=5),
    PAPER_SIZES,
    Setting(DecoderSpec(), paper_recipe(8000, batch=100, every=20), seeds=5),
)


def experiments(setting: Tasks) -> dict[tuple[str, int | str], Experiment]:
    """Return for each loss an experiment for each size of the identity function and one for the composite function."""
    found: dict[tuple[str, int | str], Experiment] = {}
    for loss, every_token in LOSSES.items():
        identity = task("anchor/identity", every_token=every_token, successors=SUCCESSORS)
        composite = task("anchor/composite", exceptions={"4,3": "-6"}, every_token=every_token, successors=SUCCESSORS)
        for size in setting.sizes:
            found[loss, size] = setting.identity.on(size).experiment(identity, f"identity, {size} sequences, {loss}")
        found[loss, COMPOSITE] = setting.composite.experiment(composite, f"composite, {loss}")
    return found


class Learned(Reading):
    """Results of the models trained with one loss; single values of the identity function are at its largest size."""

    # the share of (3, 4) answered as the symmetric pair
    symmetric = reading(lambda seen: at_end(seen.runs[COMPOSITE], TASK, "agrees: symmetric"))

    # the accuracies on the identity function by train size
    identity = reading(lambda seen: read_curve(run for of, run in seen.runs.items() if of != COMPOSITE))

    @reading
    def accuracy(self) -> dict[str, Float[Tensor, "member"]]:
        """The accuracy on the composite function at the end, by split."""
        return {split: at_end(self.runs[COMPOSITE], split, "accuracy") for split in SPLITS}

    @reading
    def reached(self) -> dict[str, Float[Tensor, "member"]]:
        """The first measured step at which the composite function reaches `ANSWERED`, by split; infinite if never."""
        run = self.runs[COMPOSITE]
        return {split: first_reached(*along(run, split, "accuracy"), ANSWERED) for split in SPLITS}

    @reading
    def kept(self) -> dict[str, Float[Tensor, "strength member"]]:
        """The share of right answers that stay right under noise, by task."""
        return {of: on_own_sequences(kept_under_noise, run, STRENGTHS) for of, run in self._largest.items()}

    @reading
    def rise(self) -> dict[str, Float[Tensor, "move member"]]:
        """The rise of the loss when all weights move, by task."""
        return {of: on_own_sequences(rise_in_loss, run, MOVES) for of, run in self._largest.items()}

    @property
    def _largest(self) -> dict[str, TrainedRun]:
        return {IDENTITY: self.runs[self.identity.sizes[-1]], COMPOSITE: self.runs[COMPOSITE]}

    @property
    def fitted(self) -> Float[Tensor, "task member"]:
        """The accuracy on training sequences, at each size of the identity function, then of the composite function."""
        return torch.cat([self.identity.train, self.accuracy[TRAIN][None]])

    def judged(self, of: str) -> Bool[Tensor, "member"]:
        """Return which members reach `ANSWERED` on the training sequences of a task."""
        return (self.identity.train[-1] if of == IDENTITY else self.accuracy[TRAIN]) >= ANSWERED


class Seen(Reading):
    """What was learned under each loss; the same seeds under both, in the same order."""

    @reading
    def under(self) -> dict[str, Learned]:
        """What was learned, by loss."""
        return {
            loss: Learned({of: run for (name, of), run in self.runs.items() if name == loss}, self.setting)
            for loss in LOSSES
        }


def _where_both_fit(seen: Seen, values: Mapping[str, Float[Tensor, "member"]]) -> Float[Tensor, "judged_member task"]:
    """Return each task's values, NaN for seeds that do not answer its training sequences under both losses.

    A seed that is NaN in both tasks is left out.
    """
    judged = {
        of: seen.under[EVERY].judged(of) & seen.under[ALONE].judged(of) & value.isfinite()
        for of, value in values.items()
    }
    found = torch.stack([value.where(judged[of], torch.nan) for of, value in values.items()], dim=1)
    return found[found.isfinite().any(dim=1)]


@precondition("", "about 1", at_least(0.95))
def fits(seen: Seen) -> Float[Tensor, "seed"]:
    """Under both losses the training sequences are answered.

    Accuracy on the first 500 training sequences, mean over seeds, lowest over losses, tasks and sizes.
    """
    fitted = torch.cat([learned.fitted for learned in seen.under.values()])
    return fitted[int(fitted.mean(dim=1).argmin())]


@claim("abstract", "enhanced generalization; no value", at_least(0.02))
def generalises(seen: Seen) -> Float[Tensor, "seed"]:
    """The loss on every token generalises better: identity from few sequences.

    Test accuracy with the loss on every token minus that with the loss on the answer alone, mean over train sizes and
    seeds.
    """
    return (seen.under[EVERY].identity.test - seen.under[ALONE].identity.test).mean(dim=0)


@claim("abstract", "surpasses in reasoning ability; no value", at_least(0.1))
def composes(seen: Seen) -> Float[Tensor, "seed"]:
    """The loss on every token reasons better: it composes the unseen pair more often.

    Share of (3, 4) inputs answered by composing, -10, with the loss on every token minus that with the loss on the
    answer alone, mean over seeds.
    """
    return seen.under[EVERY].accuracy[TASK] - seen.under[ALONE].accuracy[TASK]


@claim("abstract", "greater resilience to perturbations; no value", at_least(0.02))
def resilient(seen: Seen) -> Measurement:
    """The loss on every token makes more resilient models: noise on the embeddings costs fewer answers.

    Share of right answers to training sequences that stay right under noise with the loss on every token minus that
    with the loss on the answer alone, mean over both tasks, four strengths and the seeds that answer at least
    {ANSWERED:g} of these sequences under both.
    """
    kept = {of: (seen.under[EVERY].kept[of] - seen.under[ALONE].kept[of]).mean(dim=0) for of in (IDENTITY, COMPOSITE)}
    return mean_of_known(_where_both_fit(seen, kept))


@claim("abstract", "flatter loss minima; no value", at_most(0.9))
def flatter(seen: Seen) -> Measurement:
    """The loss on every token leads to flatter minima.

    Rise of the loss at the answer of training sequences when all weights move by {MOVE:g} of their norm, after training
    on every token, divided by the rise after training on the answer alone; median over both tasks and the seeds that
    answer at least {ANSWERED:g} of these sequences under both.
    """
    at = MOVES.index(MOVE)
    ratios = {of: seen.under[EVERY].rise[of][at] / seen.under[ALONE].rise[of][at] for of in (IDENTITY, COMPOSITE)}
    return over_shared(_where_both_fit(seen, ratios), torch.nanmedian)


def _composite_runs(seen: Seen) -> dict[str, TrainedRun]:
    return {loss: learned.runs[COMPOSITE] for loss, learned in seen.under.items()}


def _by_task(seen: Seen, values: Callable[[Learned], Mapping[str, Tensor]]) -> dict[str, Float[Tensor, "member x"]]:
    return {
        f"{of}, {loss}": values(learned)[of].T.nan_to_num()
        for of in (IDENTITY, COMPOSITE)
        for loss, learned in seen.under.items()
    }


def _identity_table(seen: Seen) -> Table:
    sizes = seen.under[EVERY].identity.sizes
    return column_table(
        "Identity by train size",
        "Accuracy at the end, means over seeds.",
        {
            "loss on": [name for name in LOSSES for _ in sizes],
            "training sequences": [*sizes] * len(LOSSES),
            "training": torch.cat([learned.identity.train.mean(dim=1) for learned in seen.under.values()]),
            "test": torch.cat([learned.identity.test.mean(dim=1) for learned in seen.under.values()]),
        },
    )


def _composite_table(seen: Seen) -> Table:
    members = [(loss, seed) for loss in seen.under for seed in seen.last.experiment.members.seeds]

    def of_both(values: Callable[[Learned], Tensor]) -> Tensor:
        return torch.cat([values(learned) for learned in seen.under.values()])

    return column_table(
        "Composite seed by seed",
        f"At the end. Steps are those at which an accuracy of {ANSWERED:g} is first measured; none where it never is.",
        {
            "loss on": [loss for loss, _ in members],
            "seed": [seed for _, seed in members],
            "training, accuracy": of_both(lambda learned: learned.accuracy[TRAIN]),
            f"{DATA}, accuracy": of_both(lambda learned: learned.accuracy[DATA]),
            "(3, 4), composed": of_both(lambda learned: learned.accuracy[TASK]),
            "(3, 4), symmetric": of_both(lambda learned: learned.symmetric),
            "training, step": of_both(lambda learned: learned.reached[TRAIN]),
            f"{DATA}, step": of_both(lambda learned: learned.reached[DATA]),
            "(3, 4), composed, step": of_both(lambda learned: learned.reached[TASK]),
        },
    )


STUDY = Study(
    "anchor/every-token",
    __doc__,
    measures_in(__name__),
    paper="Reasoning bias",
    trains=experiments,
    reads=Seen,
    draws=(
        lambda seen: curves_against(
            "Identity: test accuracy against train size",
            seen.under[EVERY].identity.sizes,
            {loss: learned.identity.test.T for loss, learned in seen.under.items()},
            x_label="training sequences",
            y_label="test accuracy",
            y_range=ACCURACY,
        ),
        lambda seen: training_curves(
            "Trained pairs along training",
            _composite_runs(seen),
            DATA,
            caption=f"Accuracy on keys at positions where training never shows them. {MEAN_AND_RANGE}",
        ),
        lambda seen: LineFigure(
            title="What the unseen pair (3, 4) is answered by along training",
            caption=f"Composed: key - 10, the rule. Symmetric: key - 6, the answer of (4, 3). {MEAN_AND_RANGE}",
            x_label=seen.last.experiment.recipe.unit,
            y_label="share of test inputs",
            lines=tuple(
                line(f"{rule}, {loss}", *along_units(run, TASK, f"agrees: {rule}"))
                for rule in ("composed", "symmetric")
                for loss, run in _composite_runs(seen).items()
            ),
            y_range=ACCURACY,
        ),
        lambda seen: curves_against(
            "Right answers that stay right under noise on the embeddings",
            STRENGTHS,
            _by_task(seen, lambda learned: learned.kept),
            x_label="noise, in units of the embeddings' root mean square",
            y_label="share of right answers",
            caption=f"On the first 500 training sequences; 0 where none is answered rightly. {MEAN_AND_RANGE}",
            log_x=True,
            y_range=ACCURACY,
        ),
        lambda seen: curves_against(
            "Rise of the loss where all weights move at random",
            MOVES,
            _by_task(seen, lambda learned: learned.rise),
            x_label="move, in units of each weight tensor's norm",
            y_label="rise of the loss at the answer (nats)",
            caption=f"On the first 500 training sequences, mean over directions. {MEAN_AND_RANGE}",
            log_x=True,
            log_y=True,
        ),
        _identity_table,
        _composite_table,
    ),
    profiles={
        "quick": Profile(
            QUICK,
            "The larger models, batches and numbers of steps are for the composite function, on 8000 sequences. Both "
            "losses are trained for the same number of steps.",
        ),
        "paper": Profile(
            PAPER,
            "Anchor functions, appendix A, as in the studies of its identity and composite function. The setting of "
            "the source itself is not known to us, so a value outside a band contradicts nothing. Composite "
            "function: batches of 100, as appendix A says, and the 8000 sequences of the authors' code. Identity: "
            f"{BATCH_NOTE[0].lower()}{BATCH_NOTE[1:]}",
        ),
    },
    smoke=Tasks(
        QUICK.identity.shortened(2, seeds=1),
        (60, 100),
        replace(QUICK.composite.shortened(2, seeds=1, size=100), model=quick_model()),
    ),
    chosen_on=SEARCHED,
)
