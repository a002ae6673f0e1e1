"""What the studies of noisy in-context recall have in common: the setting of each profile, and the truncations."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import first_crossing
from anchorlab.models import RecallSpec
from anchorlab.models.edits import Edit, Remove, Truncate
from anchorlab.models.recall import FeedForwardKind
from anchorlab.studies.kit import along
from anchorlab.studies.study import Profile
from anchorlab.tasks import task
from anchorlab.training import (
    SGD,
    Constant,
    Evaluation,
    Experiment,
    Members,
    Recipe,
    Stream,
    Times,
    TrainedRun,
    WarmupCosine,
)

ALPHA = 0.5
SPACE = 1
"""The most frequent character of tiny Shakespeare: the one trigger."""

FIVE = (1, 39, 43, 53, 58)
"""Space, a, e, o and t: the five triggers of Figure 8."""

EARLY = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
"""Steps at which the noise is learned, long before anything else; measured in every run."""

FRACTIONS = (0.5, 0.25, 0.1, 0.05)
"""The parts rho of the rank of F_2's input matrix that are kept, beside all of it and nothing."""

OUTPUT_FRACTIONS = (0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.0)
"""The parts rho of the rank of W_O of the first layer that are kept where there is no feed-forward layer."""

FULL, WITHOUT_F1, WITHOUT_F2 = "none", "without F1", "without F2"
"""Names of edits in every run: the weights as they are, and either feed-forward layer dropped."""

FIRST = 10
"""The first steps, in which the noise is to be learned: "the first few (~ 5)", "very early"."""

_LEARNED = {"right": (1 - ALPHA) / 2, "noise": ALPHA}
"""The probabilities at which recall and noise count as learned."""

FeedForwards = tuple[FeedForwardKind, FeedForwardKind]


@dataclass(frozen=True)
class Setting:
    """How noisy recall is learned under one profile; `tuning` counts the steps of a fine-tuning, at `tuning_rate`."""

    width: int
    hidden: int
    length: int
    batch: int
    steps: int
    tuning: int
    every: int
    seeds: int
    size: int
    noise: Literal["appended", "existing"]
    scored: Literal["last", "after_trigger"]
    max_scored: int
    learning_rate: float
    tuning_rate: float
    weight_decay: float
    decay: bool
    factored: bool


SETTINGS = {
    "quick": Setting(
        width=128, hidden=256, length=64, batch=64, steps=1500, tuning=600, every=150, seeds=3, size=128,
        noise="existing", scored="after_trigger", max_scored=12, learning_rate=0.05, tuning_rate=0.03,
        weight_decay=0.0, decay=True, factored=True,
    ),
    "paper": Setting(
        width=256, hidden=1024, length=256, batch=512, steps=2000, tuning=2000, every=50, seeds=5, size=1024,
        noise="appended", scored="last", max_scored=0, learning_rate=0.03, tuning_rate=0.03,
        weight_decay=1e-4, decay=False, factored=False,
    ),
    "smoke": Setting(
        width=32, hidden=64, length=64, batch=16, steps=12, tuning=8, every=6, seeds=2, size=32,
        noise="existing", scored="after_trigger", max_scored=12, learning_rate=0.03, tuning_rate=0.03,
        weight_decay=0.0, decay=False, factored=True,
    ),
}  # fmt: skip

NOTES = {
    "quick": "Quick profile: width 128, 256 hidden units, T = 64, batch 64, learning rate 0.05 with a cosine down to "
    "0.001; from the authors' public code: value maps of two factors, '!' for noise, and the loss after every second "
    "and later trigger, the last dozen of them. The paper's text has width 256, T = 256, batch 512, 2000 steps at "
    "0.001 to 0.03, one value matrix, a noise token of its own, and takes the loss at the last position alone.",
    "paper": "Paper profile: the text of section 4 and appendix A.5, with the upper learning rate of its range (0.03) "
    "and one value matrix per layer. Not in the text: momentum 0.9, weight decay 1e-4 and 1024 hidden units, from the "
    "authors' public code; the trigger, which is the most frequent character; five seeds, 1024 sequences for each "
    "measurement, and the fractions ρ.",
    "smoke": "Smoke profile: far too short to show anything; it only exercises the code.",
}
"""How far each profile is from the paper; the studies add their own steps."""


def noisy_recall(
    profile: str,
    label: str,
    *,
    alpha: float = ALPHA,
    feed_forward: FeedForwards = ("mlp", "mlp"),
    triggers: tuple[int, ...] = (SPACE,),
    steps: int | None = None,
    start: Experiment | None = None,
) -> Experiment:
    """A recall model trained under a profile's setting, all its truncations measured beside training.

    Equal arguments give one experiment, whichever study asks for it, so that it is trained once. Without feed-forward
    layers the value maps have two factors, as Figure 12 needs.
    """
    setting = SETTINGS[profile]
    steps = setting.steps if steps is None else steps
    model = RecallSpec(
        width=setting.width,
        hidden=setting.hidden,
        feed_forward_1=feed_forward[0],
        feed_forward_2=feed_forward[1],
        factored_values=setting.factored or feed_forward == ("none", "none"),
    )
    recipe = Recipe(
        data=Stream(),
        optimiser=SGD(
            learning_rate=setting.learning_rate if start is None else setting.tuning_rate,
            momentum=0.9,
            weight_decay=setting.weight_decay,
        ),
        schedule=WarmupCosine(horizon=steps, end=0.02) if setting.decay else Constant(),
        batch=setting.batch,
        duration=steps,
        evaluation=Evaluation(every=setting.every, at=EARLY, size=setting.size, edits=truncations(feed_forward)),
        checkpoints=Times(every=setting.every, at=EARLY),
    )
    return Experiment(
        task(
            "recall/noisy",
            length=setting.length,
            alpha=alpha,
            scored=setting.scored,
            noise=setting.noise,
            triggers=triggers,
            max_scored=setting.max_scored * (2 if len(triggers) > 1 else 1),
        ),
        model,
        recipe,
        Members(seeds=tuple(range(setting.seeds))),
        label=label,
        start=start,
    )


def noisy_and_tuned(profile: str) -> list[Experiment]:
    """Trained with noise from the start, and trained without noise, then fine-tuned with it (Figures 4 and 5)."""
    tuning = SETTINGS[profile].tuning
    clean = noisy_recall(profile, "clean recall", alpha=0.0, steps=tuning)
    return [
        noisy_recall(profile, "noisy recall"),
        noisy_recall(profile, "clean recall, then noisy", steps=tuning, start=clean),
    ]


def profiles(experiments: Callable[[str], list[Experiment]], *, tuned: bool = False) -> dict[str, Profile]:
    """A study's profiles from the experiments of each by name; with `tuned`, their notes tell of fine-tuning too."""

    def note(name: str, setting: Setting) -> str:
        tuning = (
            f" {setting.tuning} steps without noise, and {setting.tuning} of fine-tuning from a learning rate of "
            f"{setting.tuning_rate:g}."
        )
        return f"{NOTES[name]} {setting.steps} steps.{tuning if tuned else ''}"

    return {name: Profile(partial(experiments, name), note(name, setting)) for name, setting in SETTINGS.items()}


def noise_peak(run: TrainedRun, split: str) -> Float[Tensor, "member"]:
    """The highest probability of the noise after 1 to `FIRST` steps."""
    steps, noise = along(run, split, "noise")
    return noise[:, [index for index, step in enumerate(steps) if 0 < step <= FIRST]].amax(dim=1)


def recall_delay(run: TrainedRun) -> Float[Tensor, "member"] | None:
    """How many times later than the noise the recall is learned; None where a member learned only one of them.

    On clean sequences: the step at which the right token reaches half of 1 - alpha over that at which the noise reaches
    alpha, by interpolation.
    """
    right, noise = (first_crossing(*along(run, "clean", name), level) for name, level in _LEARNED.items())
    delay = right / noise.clamp(min=1)
    return None if bool(delay.isnan().any()) else delay


def truncations(feed_forward: FeedForwards) -> dict[str, tuple[Edit, ...]]:
    """The truncations measured beside training: what the paper drops or cuts for this choice of F_1 and F_2."""
    first, second = feed_forward
    edits: dict[str, tuple[Edit, ...]] = {}
    if second == "mlp":
        edits |= {f"rho={rho:g}": (Truncate(weight="blocks.1.mlp.W_in", fraction=rho),) for rho in FRACTIONS}
    if first != "none":
        edits[WITHOUT_F1] = (Remove(weight="blocks.0.mlp"),)
    if second != "none":
        edits[WITHOUT_F2] = (Remove(weight="blocks.1.mlp"),)
    if not edits:
        edits = {f"rho={rho:g}": (Truncate(weight="blocks.0.attn.W_O", fraction=rho),) for rho in OUTPUT_FRACTIONS}
    return edits
