"""Three learners on the identity anchor function: the data each needs.

Sequences of nine tokens hold the anchor 3 once, and the answer is the token after it.

Source: anchor functions, section 4.1, Figure 4; settings in its appendix A.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Table, at_least, at_most
from anchorlab.models import DecoderSpec, FNNSpec, LSTMSpec
from anchorlab.papers.anchor import identity
from anchorlab.papers.anchor.identity import ENOUGH, FITTED, Curve, read_curve
from anchorlab.papers.anchor.settings import BATCH_NOTE, BATCH_OF_TEXT, Setting, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, over_shared, quick_recipe, reading
from anchorlab.studies.claim import Measurement, claim, measures_in, precondition
from anchorlab.studies.draws import Drawn
from anchorlab.studies.kit import MEAN_AND_RANGE, along_units, at_end, column_table, seed_table, training_curves
from anchorlab.tasks import task
from anchorlab.training import Experiment, TrainedRun

NAMES = {"decoder": "transformer", "lstm": "LSTM", "fnn": "FNN"}  # what the paper calls each kind of model
FIG_4 = "section 4.1 and Fig 4"
GENERALISED = 0.9  # the data that a learner needs is the smallest train size with at least this mean test accuracy


@dataclass(frozen=True)
class Learners:
    """Learners with the train sizes of each; with `shared`, the transformer of the identity study trains first.

    `remark` is appended to the labels of the learners' runs. With `key_rules` each learner trains twice: on keys drawn
    as in the paper, and as in the authors' code.
    """

    learners: tuple[Setting, ...]
    sizes: tuple[int, ...]
    shared: identity.Sizes | None = None
    remark: str = ""
    key_rules: bool = False


KEY_RULES = {"any item, as the paper says": False, "number plus position, as in the authors' code": True}
"""The task's `moving_keys` under each rule of drawing keys, named as in the labels of the runs."""

_LSTM = Setting(LSTMSpec(layers=2, width=64), quick_recipe(2000), seeds=14)
_FNN = Setting(FNNSpec(width=64, hidden=256), quick_recipe(2000), seeds=14)
_START = Setting(DecoderSpec(), paper_recipe(600, epochs=400, every=50), seeds=2)

QUICK = Learners((_LSTM, _FNN), (*identity.QUICK.sizes, 2000), identity.QUICK)
PAPER = Learners(
    tuple(Setting(model, paper_recipe(1000), seeds=10) for model in (DecoderSpec(), LSTMSpec(), FNNSpec())),
    identity.PAPER_SIZES,
)
PAPER_TEXT = replace(
    PAPER,
    learners=tuple(
        replace(one, recipe=one.recipe.replace(batch=BATCH_OF_TEXT[one.model.kind])) for one in PAPER.learners
    ),
    remark=", batches of the text",
)
PAPER_START = Learners((_START,), (300, 400, 500, 600), remark=", 400 epochs")
PAPER_START_KEYS = Learners((replace(_START, seeds=4),), (500,), remark=", 400 epochs", key_rules=True)
SMOKE = Learners(
    (_LSTM.shortened(8, seeds=1), _FNN.shortened(8, seeds=1)), (200, 600), identity.QUICK.shortened(8, (200, 600))
)


def experiments(setting: Learners) -> dict[tuple[str, int, str], Experiment]:
    """Return the experiments by kind of learner, train size and rule for keys, each learner's by rising size."""
    rules = KEY_RULES if setting.key_rules else {"": False}
    shared = [] if setting.shared is None else identity.experiments(setting.shared).values()
    found = {("decoder", one.recipe.data.size, ""): one for one in shared}  # type: ignore[union-attr]
    for one in setting.learners:
        for size in setting.sizes:
            for rule, moving in rules.items():
                words = f"{size} sequences{setting.remark}{', keys: ' * bool(rule)}{rule}"
                found[one.model.kind, size, rule] = one.on(size).experiment(
                    task("anchor/identity", moving_keys=moving), f"identity, {NAMES[one.model.kind]}, {words}"
                )
    return found


class Seen(Reading):
    """The curve of every kind of model after full training, or only the transformer's after its first epochs."""

    @reading
    def whole(self) -> dict[str, Curve]:
        """The curves of all three learners; empty if not all were trained."""
        by_kind = {kind: [run for (of, _, _), run in self.runs.items() if of == kind] for kind in NAMES}
        return {kind: read_curve(runs) for kind, runs in by_kind.items()} if all(by_kind.values()) else {}

    @reading
    def start(self) -> Curve | None:
        """The curve of the transformer if it was trained alone, on keys drawn as in the paper."""
        return None if self.whole or self.setting.key_rules else read_curve(self.runs.values())


def needed(sizes: Sequence[int], test: Float[Tensor, "size member"]) -> int | None:
    """Return the smallest train size at which a learner's mean test accuracy reaches `GENERALISED`, or None."""
    enough = test.mean(dim=1) >= GENERALISED
    return next((size for size, there in zip(sizes, enough.tolist(), strict=True) if there), None)


@claim(FIG_4, "similar to the transformer's, at about 2200", at_least(0.9))
def lstm_enough(seen: Seen) -> Float[Tensor, "seed"] | None:
    """The LSTM generalises with the largest training sets.

    Test accuracy of the LSTM at the largest train size, mean over seeds.
    """
    return seen.whole["lstm"].test[-1] if seen.whole else None


@claim(FIG_4, "3.7 times as much (about 2200 against 600)", at_least(1.5))
def lstm_needs_more(seen: Seen) -> Measurement | None:
    """The LSTM needs more data than the transformer.

    Smallest train size with a mean test accuracy of {GENERALISED:g}, ratio of LSTM to transformer, both over the seeds
    that both learners have.
    """
    if not seen.whole:
        return None
    lstm, transformer = seen.whole["lstm"], seen.whole["decoder"]
    count = min(one.test.shape[1] for one in (lstm, transformer))  # seeds of both, which have the same sequences

    def sizes(rows: Tensor) -> tuple[int | None, int | None]:
        test, of_lstm = rows.float().T, len(lstm.sizes)
        return needed(lstm.sizes, test[:of_lstm]), needed(transformer.sizes, test[of_lstm:])

    def ratio(rows: Tensor) -> float:
        # for one seed alone, or for a resample, no size may be enough: then the largest counts
        of_lstm, of_transformer = sizes(rows)
        return (of_lstm or lstm.sizes[-1]) / (of_transformer or transformer.sizes[-1])

    rows = torch.cat([lstm.test[:, :count], transformer.test[:, :count]]).T
    return None if None in sizes(rows) else over_shared(rows, ratio, "seeds of both")


@claim(FIG_4, "fails", at_most(0.1))
def fnn_never(seen: Seen) -> Float[Tensor, "seed"] | None:
    """The fully connected network generalises at no size.

    Test accuracy of the fully connected network, mean over seeds, highest over train sizes; judged only where it fits
    its training sequences.
    """
    if not seen.whole:
        return None
    test = seen.whole["fnn"].test
    return test[test.mean(dim=1).argmax()]


@precondition(
    "section 4.1",
    "implied: what they fail at is generalising",
    at_least(FITTED),
    of=("lstm-enough", "lstm-needs-more", "fnn-never"),
)
def fits(seen: Seen) -> Float[Tensor, "seed"] | None:
    """All three learners fit their training sequences.

    Training accuracy, mean over seeds, lowest over learners and sizes.
    """
    fitted = [at_size for curve in seen.whole.values() for at_size in curve.train]
    return min(fitted, key=torch.mean) if fitted else None


@claim("our question: how early?", "no value; about 1 in Fig 4, after 4000 epochs", at_least(0.9), own=True)
def start_enough(seen: Seen) -> Float[Tensor, "seed"] | None:
    """At full size, {ENOUGH} sequences are enough already after a tenth of the training.

    The transformer's test accuracy at {ENOUGH} training sequences after 400 epochs, mean over seeds; measured only in
    the profile `paper-start`.
    """
    return None if seen.start is None else seen.start.at(ENOUGH)


def _three_learners(seen: Seen) -> list[Drawn]:
    curves = seen.whole
    if not curves:
        return []
    against_size = identity.size_figure(
        "Test accuracy against train size (Fig 4)",
        {NAMES[kind]: curve for kind, curve in curves.items()},
        "the paper's transformer: about 1 by 600",
        "At the end of training. ",
    )
    needs = column_table(
        "Data needed",
        f"Smallest train size with a mean test accuracy of {GENERALISED:g}; a dash where no size reaches it.",
        {
            "learner": [NAMES[kind] for kind in curves],
            "seeds": [curve.test.shape[1] for curve in curves.values()],
            "training sequences needed": [needed(curve.sizes, curve.test) for curve in curves.values()],
            "highest mean test accuracy": [float(curve.test.mean(dim=1).max()) for curve in curves.values()],
            "lowest train mean": [float(curve.train.mean(dim=1).min()) for curve in curves.values()],
        },
    )
    rows = tuple(row for kind, curve in curves.items() for row in identity.size_rows(curve, NAMES[kind]))
    columns = ("learner", *identity.SIZE_COLUMNS)
    return [against_size, needs, Table("Accuracy by learner and train size", identity.SIZE_CAPTION, columns, rows)]


def _transformer_alone(seen: Seen) -> list[Drawn]:
    if seen.whole:
        return []
    by_rule = seen.setting.key_rules
    runs = {rule or f"{size} sequences": run for (_, size, rule), run in seen.runs.items()}
    first_epochs = training_curves(
        f"Test accuracy in the first epochs, by {'how keys are drawn' if by_rule else 'train size'}",
        runs,
        "test",
        caption=f"The transformer at full size. {MEAN_AND_RANGE}",
    )
    return [first_epochs, _rules(runs) if by_rule else _epochs(runs)]


def _epochs(runs: Mapping[str, TrainedRun]) -> Table:
    measured = [along_units(run, "test", "accuracy") for run in runs.values()]
    rows = zip(measured[0][0], *(values.mean(dim=0).tolist() for _, values in measured), strict=True)
    return Table(
        title="Test accuracy by epoch and train size",
        caption="The transformer at full size, mean over seeds.",
        columns=("epoch", *runs),
        rows=tuple((int(epoch), *values) for epoch, *values in rows),
    )


def _rules(runs: Mapping[str, TrainedRun]) -> Table:
    return seed_table(
        "Test accuracy after the first epochs, by how keys are drawn",
        "The transformer at full size.",
        next(iter(runs.values())).experiment.members.seeds,
        {rule: at_end(run, "test", "accuracy") for rule, run in runs.items()},
    )


STUDY = Study(
    "anchor/learners",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_three_learners, _transformer_alone),
    profiles={
        "quick": Profile(QUICK, "The decoder's runs are those of the identity study."),
        "paper": Profile(
            PAPER,
            "Setting and train sizes as in the identity study, one recipe for all. Batches of 50 for all three, as in "
            "the authors' code and logs; appendix A says 100 for the transformer and 10 for the other two (profile "
            "`paper-text`). For those two it prints a hidden size of 4; 400 gives the numbers of parameters of section "
            "4.1. The paper gives no weight decay; PyTorch's is used.",
            paper=True,
        ),
        "paper-text": Profile(
            PAPER_TEXT,
            "As `paper`, in the batches that appendix A prints: 100 for the transformer, 10 for the LSTM and the "
            "fully connected network, where the authors' logs have 50 for all three. The text does not decide "
            "between the two, so both profiles count as the paper's setting.",
            paper=True,
        ),
        "paper-start": Profile(PAPER_START, f"The transformer alone, while its learning rate rises. {BATCH_NOTE}"),
        "paper-start-keys": Profile(
            PAPER_START_KEYS,
            "As `paper-start`, for two rules of drawing the key: any item at any position, and as in the authors' "
            f"code, a number plus the position. {BATCH_NOTE}",
        ),
    },
    smoke=SMOKE,
    chosen_on=SEARCHED,
)
