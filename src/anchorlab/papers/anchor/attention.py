"""Attention and softmax: what the identity task needs of them, layer by layer.

The answer is the token after the anchor 3. The two layers attend by a softmax of scores, by the scores themselves, or
not at all: each position then takes the mean of the positions that it sees, in both layers or in one.

Source: anchor functions, section 7, Table 1.
"""

from collections.abc import Mapping
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import at_least, at_most
from anchorlab.lens import first_crossing
from anchorlab.models.decoder import AttentionKind
from anchorlab.papers.anchor import identity
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting
from anchorlab.studies import SEARCHED, Profile, Reading, Study, claim, kit, measures_in, metrics_alone, precondition
from anchorlab.studies.draws import curves, seed_by_seed
from anchorlab.studies.readings import Quantity, at_end
from anchorlab.tasks import task
from anchorlab.training import Experiment

SOFTMAX, LINEAR, EQUAL = "softmax", "no softmax", "equal weights"
IN_0, IN_1 = "equal weights in layer 0", "equal weights in layer 1"

KINDS: Mapping[str, AttentionKind | tuple[AttentionKind, AttentionKind]] = {
    SOFTMAX: "softmax",
    LINEAR: "linear",
    EQUAL: "uniform",
    IN_0: ("uniform", "softmax"),
    IN_1: ("softmax", "uniform"),
}
"""How the two layers attend, by the name of the experiment."""

TABLE_1 = "section 7, Table 1"
ASKED = "what is the effect; no value"
LEARNED = 0.9  # test accuracy
FITTED = 0.95  # training accuracy

QUICK = replace(identity.TWO_LAYERS, seeds=40)


def experiments(setting: Setting) -> dict[str, Experiment]:
    """Return an experiment for each kind of attention; the first has the identity study's two layers."""
    return {
        name: replace(setting, model=setting.model.replace(attention=kind)).experiment(task("anchor/identity"), name)
        for name, kind in KINDS.items()
    }


class Seen(Reading):
    """Accuracies at the end, and how long learning takes."""

    train = at_end("train", "accuracy", heading="training")
    test = at_end("test", "accuracy", heading="test")
    # the step at which test accuracy reaches `LEARNED`; the length of training if it never does
    until = Quantity(
        lambda run: first_crossing(*kit.along(run, "test", "accuracy"), LEARNED).nan_to_num(nan=run.experiment.steps),
        "steps",
    )


@precondition(TABLE_1, "implied", at_least(FITTED))
def fits(seen: Seen) -> Float[Tensor, "seed"]:
    """Every model with a softmax in some layer, and the one with equal weights, fits its training sequences.

    Accuracy on training sequences at the end, mean over seeds, of the lowest of these models.
    """
    return min((seen.train[name] for name in KINDS if name != LINEAR), key=lambda accuracy: float(accuracy.mean()))


@claim(TABLE_1, ASKED, at_most(0.5))
def attention_needed(seen: Seen) -> Float[Tensor, "seed"]:
    """Without attention, by a mean over the positions in both layers, two layers do not generalise.

    Test accuracy at the end with equal weights in both layers, mean over seeds.
    """
    return seen.test[EQUAL]


@claim(TABLE_1, ASKED, at_most(0.5))
def layer_0_alone_fails(seen: Seen) -> Float[Tensor, "seed"]:
    """Attention in layer 0 alone does not suffice.

    Test accuracy at the end with equal weights in layer 1, mean over seeds.
    """
    return seen.test[IN_1]


@claim(TABLE_1, ASKED, at_least(LEARNED))
def layer_1_alone_suffices(seen: Seen) -> Float[Tensor, "seed"]:
    """Attention in layer 1 alone suffices.

    Test accuracy at the end with equal weights in layer 0, mean over seeds.
    """
    return seen.test[IN_0]


@claim(TABLE_1, ASKED, at_least(LEARNED))
def softmax_not_needed(seen: Seen) -> Float[Tensor, "fitted"]:
    """Without a softmax, a model that fits its training sequences generalises.

    Test accuracy at the end with scores as weights, mean over seeds that fit their training sequences (training
    accuracy at least {FITTED:g}).
    """
    return seen.test[LINEAR][seen.train[LINEAR] >= FITTED]


@claim(TABLE_1, ASKED, at_most(0.9))
def softmax_sooner(seen: Seen) -> Float[Tensor, "seed"]:
    """With a softmax the task is learned sooner.

    Steps until test accuracy {LEARNED:g} with a softmax, divided by those with scores as weights, mean over seeds; the
    whole training if it is never reached.
    """
    return seen.until[SOFTMAX] / seen.until[LINEAR]


STUDY = Study(
    "anchor/attention",
    __doc__,
    measures_in(__name__),
    own=True,  # the table asks, the paper does not answer
    trains=experiments,
    reads=Seen,
    draws=(
        curves("Test accuracy along training, by attention", "test", "accuracy"),
        seed_by_seed(
            "Every kind of attention, seed by seed",
            "Accuracies at the end of training, and the step at which test accuracy reaches 0.9 (the last step if it "
            "never does).",
            Seen.train,
            Seen.test,
            Seen.until,
        ),
    ),
    keeps=metrics_alone,
    profiles={
        "quick": Profile(QUICK, "Table 1 asks the question, and prints no setting."),
        "paper": Profile(
            identity.PAPER_TWO_LAYERS,
            f"Table 1 prints no setting; these are the model and the recipe of section 5.1's two layers. {BATCH_NOTE}",
        ),
    },
    smoke=QUICK.shortened(steps=2, size=100),
    chosen_on=SEARCHED,
)
