"""Noisy recall with several noise tokens: by chance, or by trigger.

The paper asks what happens where there are more places and ways to choose between the context and global associations.
Here the noise after the trigger is one of four noise tokens by chance, or each of five triggers has a noise token of
its own. Does the second feed-forward layer hold them all?

Source: truncated weights, section 6 i.
"""

from collections.abc import Callable
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Table, at_least, at_most
from anchorlab.papers.truncation import noisy_recall as noisy
from anchorlab.studies import Reading, measures_in, metrics_alone
from anchorlab.studies.claim import claims
from anchorlab.studies.kit import mean_table
from anchorlab.studies.readings import Quantity
from anchorlab.training import Experiment

CHANCE, TRIGGER = "four noise tokens by chance", "five noise tokens by trigger"
OPEN = "our question; section 6 i", "nothing: it asks for truncation in richer data models"
"""Where our own questions come from, and what the paper says on them."""


def experiments(setting: noisy.Setting) -> dict[str, Experiment]:
    """Return the other studies' training with several appended noise tokens, by chance and by trigger."""
    one, five = setting.experiment(CHANCE), setting.experiment(TRIGGER, triggers=noisy.FIVE)
    return {
        CHANCE: replace(one, task=one.task.replace(noise="appended", noises=4)),
        TRIGGER: replace(five, task=five.task.replace(noise="appended", noises=len(noisy.FIVE), by_trigger=True)),
    }


class Seen(Reading):
    """What each model predicts on clean sequences at the end, full and cut; noise is any noise token."""

    ends = Quantity(noisy.clean_ends)


@claims(*OPEN, at_least(0.5), {"chance-gain": CHANCE, "trigger-gain": TRIGGER}, own=True)
def gain(seen: Seen, label: str) -> Float[Tensor, "seed"]:
    """With {label}, dropping F_2 makes the right token more probable.

    Probability of the right token without F_2 minus that of the full model, on clean sequences at the end, divided by
    alpha, the most that can be gained; mean over seeds.
    """
    return seen.ends[label].gain(noisy.WITHOUT_F2) / noisy.alpha_of(seen.runs[label])


@claims(*OPEN, at_most(0.1), {"chance-noise": CHANCE, "trigger-noise": TRIGGER}, own=True)
def noise(seen: Seen, label: str) -> Float[Tensor, "seed"]:
    """With {label}, hardly any noise is predicted without F_2.

    Probability of all noise tokens together without F_2, on clean sequences at the end, mean over seeds.
    """
    return seen.ends[label].noise[noisy.WITHOUT_F2]


def _panel(label: str) -> Callable[[Seen], LineFigure]:
    edits = {noisy.FULL: "full model", noisy.WITHOUT_F1: "without F₁", noisy.WITHOUT_F2: "without F₂"}
    title = f"Probability of the right token, {label}"
    caption = "On sequences without noise (α = 0), along training with α = {alpha}. Mean and range over seeds."
    return lambda seen: noisy.clean_panel(seen.runs[label], "right", edits, title, caption)


def _table(seen: Seen) -> Table:
    rows = {
        f"{label}, {edit}": seen.ends[label].row(edit)
        for label in (CHANCE, TRIGGER)
        for edit in (noisy.FULL, noisy.WITHOUT_F1, noisy.WITHOUT_F2)
    }
    return mean_table("The end of training", "Means over seeds on clean sequences; none: full model.", "model", rows)


STUDY = noisy.noisy_study(
    "truncation/richer-noise",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_panel(CHANCE), _panel(TRIGGER), _table),
    keeps=metrics_alone,
    seeds=5,
)
