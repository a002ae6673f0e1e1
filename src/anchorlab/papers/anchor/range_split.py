"""Splits: holding out a range of keys is no test, holding out residues is.

The answer is the token after the anchor 3. The same model trains on two splits, which both hold out about an eighth of
the sequences: the keys 91 to 100 at every position, or each key at one position in eight.

Source: anchor functions, section 3.2.
"""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import at_least, at_most
from anchorlab.lens import look
from anchorlab.papers.anchor import identity
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting
from anchorlab.studies import SEARCHED, Profile, Reading, Study, claim, measures_in, precondition
from anchorlab.studies.draws import curves, seed_by_seed
from anchorlab.studies.readings import Quantity, at_end
from anchorlab.tasks import task
from anchorlab.tasks.anchor import AnchorBased
from anchorlab.training import Experiment, TrainedRun

HELD_OUT = (91, 100)
"""The range of keys held out for the test: ten of 81, about the share that one residue of eight holds out."""

RANGE, RESIDUE = "by range", "by residue"


def experiments(setting: Setting) -> Mapping[str, Experiment]:
    """Return an experiment for each split; the identity study has the one by residues, too."""
    by_residue = task("anchor/identity")
    by_range = by_residue.replace(separation=AnchorBased(held_out={3: (HELD_OUT,)}, covering=False))
    return {RANGE: setting.experiment(by_range, RANGE), RESIDUE: setting.experiment(by_residue, RESIDUE)}


def answers_in_range(run: TrainedRun) -> Float[Tensor, "member"]:
    """Return the share of test sequences that each member answers with one of the keys 91 to 100."""
    inputs = run.experiment.task.sample("test", identity.LOOKED_AT, seed=0).inputs
    last = look(run.ensemble(), inputs)["output"][:, :, -1].argmax(dim=-1)
    return ((last >= HELD_OUT[0]) & (last <= HELD_OUT[1])).float().mean(dim=1)


class Seen(Reading):
    """Accuracies at the end by split, and how often the answer is a key in the range `HELD_OUT`."""

    train = at_end("train", "accuracy", heading="training")
    test = at_end("test", "accuracy", heading="test")
    in_range = Quantity(answers_in_range, "answers 91 to 100")


@precondition("section 3.2", "implied", at_least(0.95))
def fits(seen: Seen) -> Float[Tensor, "seed"]:
    """Both splits are fitted.

    Accuracy on training sequences at the end, mean over seeds, of the split with the lower one.
    """
    return min(seen.train.values(), key=lambda accuracy: float(accuracy.mean()))


@claim("section 3.2", "the network fails to produce the key", at_most(0.1))
def range_fails(seen: Seen) -> Float[Tensor, "seed"]:
    """Keys of a range that training never shows are not answered.

    Test accuracy at the end on the keys {HELD_OUT[0]} to {HELD_OUT[1]}, mean over seeds.
    """
    return seen.test[RANGE]


@claim("section 3.2", "proposed in place of ranges", at_least(0.5))
def residue_works(seen: Seen) -> Float[Tensor, "seed"]:
    """Keys at unseen positions are answered where unseen keys are not.

    Test accuracy at the end on keys at held-out positions minus that on held-out keys, mean over seeds.
    """
    return seen.test[RESIDUE] - seen.test[RANGE]


@claim("section 3.2", "the encoding of these keys is not learned", at_most(0.1))
def never_said(seen: Seen) -> Float[Tensor, "seed"]:
    """A network hardly ever answers with a key that was no answer in training.

    Share of test sequences of the split by range that are answered with any of its keys, right or wrong, mean over
    seeds.
    """
    return seen.in_range[RANGE]


STUDY = Study(
    "anchor/range-split",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        curves("Test accuracy along training, by split", "test", "accuracy"),
        seed_by_seed(
            "Both splits, seed by seed",
            "Accuracies at the end of training, and the share of test sequences answered with one of the keys 91 to "
            "100. In training, items other than the key may be in this range.",
            Seen.train,
            Seen.test,
            Seen.in_range,
        ),
    ),
    profiles={
        "quick": Profile(identity.TWO_LAYERS, "Section 3.2 prints no setting."),
        "paper": Profile(
            identity.PAPER_TWO_LAYERS,
            "Section 3.2 prints no setting; these are the model and the recipe of section 5.1's two layers. "
            f"{BATCH_NOTE}",
        ),
    },
    smoke=identity.TWO_LAYERS.shortened(steps=2, size=100),
    chosen_on=SEARCHED,
)
