"""All three matrices trained together: what each learns, and when.

Gradient descent from zero trains all three matrices of one attention layer with a linear feed-forward layer, W_F, W_V
and W_KQ, until the model copies from the context. The paper's theory covers the first steps; section 6 iii leaves the
phases after them open.

Source: truncated weights, sections 4.1, 4.2 and 6 iii. Only the sequences are random: a sequence enters as its token
counts, and gradients are exact for a training set.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.findings import LineFigure, at_least, at_most
from anchorlab.lens import first_crossing
from anchorlab.rng import generator
from anchorlab.studies import Measurement, Profile, Reading, Study, claim, curves_against, measures_in, over, reading
from anchorlab.theory.one_layer import probabilities, train
from anchorlab.theory.uniform_recall import TRIGGER, Sequences, UniformRecall

LEVEL = 1.0
"""How far apart, in nats, a matrix must move logits or scores to count as learned."""

SETS = "training sets"
OPEN = "our question; section 6 iii", "nothing: it leaves the phases after the first steps open"
"""Where our own questions come from, and what the paper says on them."""


@dataclass(frozen=True)
class Setting:
    """Gradient descent with learning rate 1 on `sets` training sets of `samples` sequences each."""

    law: UniformRecall
    samples: int
    sets: int
    steps: int


class Seen(Reading):
    """Every quantity along training, `[set step]`; all sequences are drawn from seed 0."""

    seeds = "0"

    @reading
    def steps(self) -> list[int]:
        """When the matrices are looked at: at the start and about evenly on a logarithmic axis."""
        return sorted({0, *np.geomspace(1, self.setting.steps, 120).astype(int).tolist()})

    @reading
    def along(self) -> Mapping[str, Float[Tensor, "set step"]]:
        """What the matrices hold, and what they predict on a test set of the same size, by name."""
        sets = [_follow(self.setting, self.steps, index) for index in range(self.setting.sets)]
        return {name: torch.tensor([each[name] for each in sets], dtype=torch.float64) for name in sets[0]}

    @reading
    def attention_alone(self) -> Mapping[str, Float[Tensor, "set"]]:
        """What the matrices hold and predict at the end of training without W_F, by name."""
        sets = [_without_layer(self.setting, index) for index in range(self.setting.sets)]
        return {name: torch.tensor([each[name] for each in sets], dtype=torch.float64) for name in sets[0]}

    @reading
    def noise_learned(self) -> Int[Tensor, "set"]:
        """The index in `steps` at which the noise's probability first reaches 0.9 α; the last index if never."""
        learned = self.along["noise"] >= 0.9 * float(self.setting.law.alpha)
        return learned.int().argmax(dim=1).where(learned.any(dim=1), learned.shape[1] - 1)

    def when_learned(self, name: str) -> Float[Tensor, "set"]:
        """Return a quantity at the time when the noise is learned."""
        return self.along[name].gather(1, self.noise_learned[:, None])[:, 0]

    def passed(self, name: str, falling: bool = False) -> Float[Tensor, "set"]:
        """Return the step at which a quantity rises to `LEVEL`, or, if `falling`, falls to -`LEVEL`; NaN if never."""
        return first_crossing(self.steps, self.along[name], -LEVEL if falling else LEVEL, falling)


def _draw(setting: Setting, index: int) -> tuple[Sequences, Sequences, Float[np.ndarray, "sample token"]]:
    """Return a training set, a test set of the same size, and the share of each token in each test sequence."""
    law = setting.law
    random = generator(0, "joint dynamics", law.tokens, law.length, index)
    trained, tested = (law.draw(random, setting.samples) for _ in range(2))
    return trained, tested, (tested.counts(law.tokens) / law.length).astype(np.float32)


def _without_layer(setting: Setting, index: int) -> dict[str, float]:
    """Train on one set with W_F held at zero; return what attention to the trigger does at the end."""
    trained, _, shares = _draw(setting, index)
    weights = train(setting.law, trained, rate=1.0, at={setting.steps}, feed_forward=False)[setting.steps]
    attention, attended = weights.attend(shares)
    parts, without_row = (attention * weights.value[-1]).mean(axis=0), weights.value.copy()
    without_row[-1] = 0
    return {
        "attention to trigger": float(attention[:, TRIGGER].mean() / shares[:, TRIGGER].mean()),
        "part of trigger": float(parts[TRIGGER] / parts.sum()),
        "noise": float(probabilities(attended)[:, -1].mean()),
        "noise without row": float(probabilities(attention @ without_row.T)[:, -1].mean()),
    }


def _follow(setting: Setting, steps: list[int], index: int) -> dict[str, list[float]]:
    """Train on one set; return every quantity at the given steps."""
    law, found = setting.law, dict[str, list[float]]()
    trained, tested, shares = _draw(setting, index)
    rows, ordinary = np.arange(setting.samples), slice(TRIGGER + 1, law.noise_token)
    for weights in train(law, trained, rate=1.0, at=set(steps)).values():
        attention, attended = weights.attend(shares)
        full, alone = probabilities(attended + weights.feedforward), probabilities(attended)
        score, copied = weights.key_query, weights.value[ordinary, ordinary]
        own = np.diagonal(copied).mean()
        now = {
            "W_F, noise": weights.feedforward[-1] - weights.feedforward[ordinary].mean(),
            "W_V, noise": (attended[:, -1] - attended[:, ordinary].mean(axis=1)).mean(),
            "W_V, copying": own - (copied.sum() / len(copied) - own) / (len(copied) - 1),
            "W_KQ, noise": score[-1] - score[ordinary].mean(),
            "W_KQ, trigger": score[TRIGGER] - score[ordinary].mean(),
            "attention to noise": attention[:, -1].mean() / shares[:, -1].mean(),
            "noise": full[:, -1].mean(),
            "right": full[rows, tested.outputs].mean(),
            "noise without W_F": alone[:, -1].mean(),
            "right without W_F": alone[rows, tested.outputs].mean(),
        }
        for name, value in now.items():
            found.setdefault(name, []).append(float(value))
    return found


@claim("section 4.1", "feed-forward layers are more likely to pick up the noise", at_most(0.2), theory=True)
def feedforward_first(seen: Seen) -> Measurement:
    """When the noise is learned, it is W_F that predicts it.

    Margin of the noise over ordinary tokens in the logits from W_V, divided by the margin in the logits from W_F, when
    the noise's probability first reaches 0.9 α.
    """
    return over(seen.when_learned("W_V, noise") / seen.when_learned("W_F, noise"), SETS)


@claim("section 4.1", "attention will be slower, and may learn the induction head", at_least(10.0), theory=True)
def attention_later(seen: Seen) -> Measurement:
    """Copying from the context is learned long after the noise.

    Step at which W_V's logit of a token's own output is {LEVEL:g} above other outputs, divided by the step at which the
    noise's probability first reaches 0.9 α; where training ends before, its last step is taken.
    """
    copied = seen.passed("W_V, copying").nan_to_num(nan=seen.steps[-1])
    return over(copied / torch.tensor(seen.steps, dtype=torch.float64)[seen.noise_learned].clamp(min=1), SETS)


@claim("section 4.2", "W_KQ moves negative in the direction of the noise", at_most(-0.01), theory=True)
def avoids_first(seen: Seen) -> Measurement:
    """When the noise is learned, W_KQ has moved away from the noise token.

    Score of the noise token minus the mean score of ordinary tokens, times N², when the noise's probability first
    reaches 0.9 α.
    """
    return over(seen.when_learned("W_KQ, noise") * seen.setting.law.tokens**2, SETS)


@claim(*OPEN, at_most(0.0), own=True)
def avoids_throughout(seen: Seen) -> Measurement:
    """Between the first steps and copying, W_KQ never favours the noise token.

    Highest score of the noise token minus the mean score of ordinary tokens, from the time when the noise's probability
    first reaches 0.9 α to the end.
    """
    later = torch.arange(len(seen.steps)) >= seen.noise_learned[:, None]
    return over(seen.along["W_KQ, noise"].where(later, -torch.inf).amax(dim=1), SETS)


@claim(*OPEN, at_most(0.1), own=True)
def avoids_at_end(seen: Seen) -> Measurement:
    """Once the context is copied, attention avoids the noise token.

    Mean attention to the noise token divided by its share of the sequence, at the end.
    """
    return over(seen.along["attention to noise"][:, -1], SETS)


@claim(*OPEN, at_least(0.8), own=True)
def in_order(seen: Seen) -> Measurement:
    """First W_F learns the noise, then W_V copies, then W_KQ avoids the noise.

    Share of training sets in which W_F's margin for the noise, W_V's for a token's own output and W_KQ's for ordinary
    tokens over the noise reach {LEVEL:g} in this order before training ends.
    """
    passed = seen.passed("W_F, noise"), seen.passed("W_V, copying"), seen.passed("W_KQ, noise", falling=True)
    forward, copied, avoided = passed
    detail = "mean steps " + ", ".join(f"{float(one.nanmean()):.3g}" for one in passed)
    return over((forward < copied) & (copied < avoided), SETS, detail=detail)  # NaN, for never, is in no order


@claim(*OPEN, at_most(0.25), own=True)
def noise_stays(seen: Seen) -> Measurement:
    """In every phase W_F alone holds the noise.

    Highest probability of the noise without W_F along training, divided by α.
    """
    return over(seen.along["noise without W_F"].amax(dim=1) / seen.setting.law.alpha, SETS)


@claim(*OPEN, at_least(1.5), own=True)
def right_without(seen: Seen) -> Measurement:
    """Dropping W_F makes the right token more probable.

    Probability of the right token without W_F divided by its probability with all matrices, at the end.
    """
    return over(seen.along["right without W_F"][:, -1] / seen.along["right"][:, -1], SETS)


SINKS = "our question; section 6 ii", "nothing: it asks whether attention sinks hold global associations"
"""Where our questions on attention sinks come from, and what the paper says on them."""


@claim(*SINKS, at_least(2.0), own=True)
def trigger_attended(seen: Seen) -> Measurement:
    """Without a feed-forward layer, the trigger becomes an attention sink.

    Mean attention to the trigger divided by its share of the sequence, at the end of training with W_F held at zero.
    """
    return over(seen.attention_alone["attention to trigger"], SETS)


@claim(*SINKS, at_least(0.5), own=True)
def trigger_holds_noise(seen: Seen) -> Measurement:
    """Without a feed-forward layer, the trigger's value holds most of the noise.

    Part of the noise's mean logit that comes from attention to the trigger, at the end of training with W_F held at
    zero.
    """
    return over(seen.attention_alone["part of trigger"], SETS)


@claim(*SINKS, at_most(0.25), own=True)
def row_removes_noise(seen: Seen) -> Measurement:
    """Without a feed-forward layer, one row of W_V holds the noise.

    Probability of the noise without the row W_U(N+1)ᵀ W_V, a part of rank one, divided by the probability with it, at
    the end of training with W_F held at zero.
    """
    alone = seen.attention_alone
    return over(alone["noise without row"] / alone["noise"], SETS)


def _figure(seen: Seen, title: str, names: tuple[str, ...], y_label: str) -> LineFigure:
    return curves_against(
        title,
        [step + 1 for step in seen.steps],
        {name: seen.along[name] for name in names},
        x_label="step + 1",
        y_label=y_label,
        caption="Mean and range over training sets. The axis starts at 1 for the zero matrices.",
        log_x=True,
    )


_MARGINS = ("W_F, noise", "W_V, noise", "W_V, copying", "W_KQ, noise", "W_KQ, trigger")
_PREDICTED = ("noise", "right", "noise without W_F", "right without W_F")

STUDY = Study(
    "truncation/joint-dynamics",
    __doc__,
    measures_in(__name__),
    reads=Seen,
    draws=(
        lambda seen: _figure(seen, "What each matrix holds", _MARGINS, "margin (nats)"),
        lambda seen: _figure(seen, "What is predicted", _PREDICTED, "probability"),
    ),
    profiles={
        "quick": Profile(
            Setting(UniformRecall(16, 1024, 0.5), samples=2048, sets=14, steps=6000),
            "Quick profile: N = 16, T = 64 N, α = 0.5, 14 training sets of 2048 sequences and as many to test on, 6000 "
            "steps of gradient descent with learning rate 1 for all matrices. The paper names no sizes.",
        ),
        "paper": Profile(
            Setting(UniformRecall(32, 2048, 0.5), samples=2048, sets=14, steps=40_000),
            "Paper profile: the paper names no sizes. N = 32, T = 64 N, α = 0.5, 14 training sets of 2048 sequences "
            "and as many to test on, 40 000 steps of gradient descent with learning rate 1. All sizes are ours.",
        ),
    },
    smoke=Setting(UniformRecall(5, 20, 0.5), samples=32, sets=3, steps=30),
)
