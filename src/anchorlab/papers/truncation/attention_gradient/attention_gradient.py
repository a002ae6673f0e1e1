"""Attention avoids the noise: the gradient of the key-query matrix after one step.

After one gradient step from zero the feed-forward layer and the value matrix have moved. The gradient of the key-query
matrix, zero until then, now leads attention away from the noise token.

Source: truncated weights, section 4.2 and appendix A.2. Nothing is trained: the first step follows the exact expected
gradient, and the next gradient is averaged over drawn sequences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import torch

from anchorlab.findings import at_least, at_most, within
from anchorlab.papers.truncation.attention_gradient import projections
from anchorlab.papers.truncation.attention_gradient.projections import ALPHA, LEARNING_RATE, Gradient
from anchorlab.studies import Measurement, Profile, Reading, Study, claim, measures_in, over, over_shared, reading
from anchorlab.theory import PowerLaw, fit_power_law
from anchorlab.theory.attention_gradient import first_step, leading_order, pull_by_output
from anchorlab.theory.noise_logit import noise_logits, safe_rate, target_logit
from anchorlab.theory.one_step import feedforward_moments, value_moments
from anchorlab.theory.uniform_recall import NOISE_KIND, OTHER_KIND, TRIGGER, TRIGGER_KIND, UniformRecall

SHARES = (0.0, 0.25, 1.0, 3.0)
"""The probabilities that the noise replaces another token, as multiples of 1/N, to vary the noise's frequency."""

PRINTED = UniformRecall(65, 256, ALPHA)
"""The law at the sizes of section 4, where the paper trains on Shakespeare; appendix A.2 asks for N, T ≫ 1."""

LONG = 40
"""The ratio T / N² at which T is taken to be far above N²."""

BATCHES = "batches"
"""The independent units of the projections, as results name them."""


@dataclass(frozen=True)
class Setting:
    """The samples: `batches` batches of `batch` sequences at each point of two series.

    One series has N from `tokens` and T = `ratio` N; the other has T/N from `ratios` and N = `ratios_at`.
    """

    tokens: tuple[int, ...]
    ratio: int
    ratios: tuple[int, ...]
    ratios_at: int
    batches: int
    batch: int


QUICK = Setting((64, 96, 128, 192, 256, 384), 16, (1, 2, 3, 4, 6, 8, 16, 32, 64), 64, 8, 512)
PAPER = Setting((128, 192, 256, 384, 512, 768, 1024), 64, (1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256), 128, 16, 1024)
SMOKE = Setting((8, 12, 16), 4, (1, 2, 4), 8, 3, 32)


class Seen(Reading):
    """The gradients after one step; all sequences are drawn from seed 0."""

    seeds = "0"

    def _measured(self, law: UniformRecall) -> Gradient:
        return projections.measure(law, self.setting.batches, self.setting.batch)

    @reading
    def by_tokens(self) -> Sequence[Gradient]:
        """The gradients at every N, in ascending order."""
        return [self._measured(UniformRecall(n, self.setting.ratio * n, ALPHA)) for n in self.setting.tokens]

    @reading
    def by_ratio(self) -> Sequence[Gradient]:
        """The gradients at every T/N."""
        n = self.setting.ratios_at
        return [self._measured(UniformRecall(n, ratio * n, ALPHA)) for ratio in self.setting.ratios]

    @reading
    def by_share(self) -> Mapping[float, float]:
        """The projection on the noise at the smallest N, for each of `SHARES`."""
        law = self.by_tokens[0].law
        samples = self.setting.batches * self.setting.batch
        return {share: projections.measure_with_noise(law, share, samples) for share in SHARES}

    @reading
    def printed(self) -> Gradient:
        """The gradient at the paper's size of sequences."""
        return self._measured(PRINTED)

    @reading
    def moves(self) -> dict[str, list[float]]:
        """How far each matrix moves, by N: the exact first step of W_F and W_V, and the gradient of W_KQ after it."""
        laws = [one.law for one in self.by_tokens]
        return {
            "W_F": [-LEARNING_RATE * feedforward_moments(law, "noise").mean for law in laws],
            "W_V": [-LEARNING_RATE * value_moments(law, ("noise", "other")).mean for law in laws],
            "W_KQ": [-one.mean("noise") for one in self.by_tokens],
        }

    @reading
    def powers(self) -> dict[str, PowerLaw | None]:
        """The power in N of every quantity in `projections.POWERS`; None if its values are not all positive."""
        tokens = np.array([one.law.tokens for one in self.by_tokens], dtype=np.float64)
        values = self.moves | {token: [one.mean(token) for one in self.by_tokens] for token in ("trigger", "other")}
        return {name: fit_power_law(tokens, np.array(one)) if min(one) > 0 else None for name, one in values.items()}


@claim("appendix A.2", "below 0", at_most(-0.01), theory=True)
def noise_avoided(seen: Seen) -> Measurement:
    """W_KQ moves away from the noise token.

    Largest projection on W_E(N+1) W_E(q)ᵀ over N, times N².
    """
    rows = torch.stack([one.drawn("noise") * one.law.tokens**2 for one in seen.by_tokens], dim=1)
    return over_shared(rows, lambda rows: rows.mean(dim=0).max(), BATCHES)


@claim("appendix A.2", "Θ(1/N²)", within(-2.1, -1.9), theory=True)
def noise_order(seen: Seen) -> PowerLaw | None:
    """W_KQ moves away from the noise token by an amount of order 1/N².

    Power in N of the projection on W_E(N+1) W_E(q)ᵀ, at a fixed T/N.
    """
    return seen.powers["W_KQ"]


@claim("appendix A.2", "its (α/N) c (α - 1), with c = ηα/N after one step", within(0.9, 1.1), theory=True)
def noise_leading(seen: Seen) -> Measurement:
    """The projection on the noise has the size -η α² (1 - α) (α - p) / N², with p = P(noise) after one step.

    Projection on W_E(N+1) W_E(q)ᵀ divided by -η α² (1 - α) (α - p) / N², at the largest N.
    """
    return over(seen.by_tokens[-1].drawn("noise") / seen.by_tokens[-1].derived("noise"), BATCHES)


@claim("appendix A.2", "above 0", at_least(0.01), theory=True)
def others_attended(seen: Seen) -> Measurement:
    """Where T is well above N, W_KQ moves towards the other tokens.

    Mean projection on W_E(k) W_E(q)ᵀ over tokens k other than noise and trigger, times N³, smallest over N.
    """
    rows = torch.stack([one.drawn("other") * one.law.tokens**3 for one in seen.by_tokens], dim=1)
    return over_shared(rows, lambda rows: rows.mean(dim=0).min(), BATCHES)


@claim(
    "our question; the sizes are of section 4",
    "nothing at these sizes: appendix A.2 asks for N, T ≫ 1",
    at_least(0.01),
    own=True,
)
def others_attended_as_trained(seen: Seen) -> Measurement:
    """At the sizes of the Shakespeare experiment, N = 65 and T = 256, W_KQ moves towards the other tokens, too.

    Mean projection on W_E(k) W_E(q)ᵀ over tokens k other than noise and trigger, times N³, at N = 65 and T = 256.
    """
    return over(seen.printed.drawn("other") * PRINTED.tokens**3, BATCHES)


@claim("appendix A.2", "Θ(1/N³)", within(-3.1, -2.9), theory=True)
def others_order(seen: Seen) -> PowerLaw | None:
    """Where T is well above N, W_KQ moves towards the other tokens by an amount of order 1/N³.

    Power in N of the mean projection on W_E(k) W_E(q)ᵀ, k other than noise and trigger, at a fixed T/N.
    """
    return seen.powers["other"]


@claim("appendix A.2", "uniformly", within(0.5, 2.0), exact=True)
def uniform(seen: Seen) -> Measurement:
    """Where T is well above N, but below N², W_KQ moves alike towards all tokens of [N], the trigger among them.

    Ratio of the projection on W_E(q) W_E(q)ᵀ to that for the other tokens, at the largest N, from the derived leading
    orders; the detail gives the same from random sequences.
    """
    last = seen.by_tokens[-1]
    drawn = last.mean("trigger") / last.mean("other")
    return Measurement(last.derived("trigger") / last.derived("other"), detail=f"{drawn:.3g} drawn")


@claim("appendix A.2", "uniformly", within(0.5, 2.0), exact=True)
def uniform_where_long(seen: Seen) -> float:
    """Where T is far above N², W_KQ moves alike towards all tokens of [N], the trigger among them.

    Ratio of the projection on W_E(q) W_E(q)ᵀ to that for the other tokens, at the largest N and T = {LONG} N², from the
    derived leading orders.
    """
    tokens = seen.by_tokens[-1].law.tokens
    orders = leading_order(UniformRecall(tokens, LONG * tokens**2, ALPHA), LEARNING_RATE)
    return orders.trigger / orders.other


@claim("appendix A.2", "powers 0, -1 and -2", at_most(0.1), theory=True)
def three_speeds(seen: Seen) -> Measurement | None:
    """W_F moves by an amount of order 1, W_V of order 1/N and W_KQ of order 1/N².

    Largest distance of the powers in N of the moves of W_F, W_V and W_KQ from 0, -1 and -2; the moves of W_F and W_V
    are those of the exact first step.
    """
    powers = {name: seen.powers[name] for name in ("W_F", "W_V", "W_KQ")}
    papers = projections.POWERS
    known = [(abs(law.slope - papers[name]), law.apart(papers[name])) for name, law in powers.items() if law]
    if len(known) < len(powers):
        return None
    farthest, interval = max(known)
    return Measurement(farthest, interval=interval)


@claim("appendix A.2, under equation (3)", "Θ(1/N³) for the noise, Θ(1/N⁴) for others", at_most(0.1), exact=True)
def term_a(seen: Seen) -> Measurement:
    """Predicting ordinary tokens moves W_KQ less than predicting the noise, by a factor of order 1/N.

    Largest distance from -3 and -4 of the powers in N of the projections of equation (3)'s term A on the noise and on
    an ordinary token, sign aside, from exact moments; the detail gives the power for the predicted token itself.
    """
    laws = [one.law for one in seen.by_tokens]
    tokens = np.array([law.tokens for law in laws], dtype=np.float64)
    predicted, other = TRIGGER + 1, TRIGGER + 2
    terms = np.abs([pull_by_output(law, LEARNING_RATE)[predicted, [-1, other, predicted]] for law in laws])
    noise, ordinary, same = (fit_power_law(tokens, each).slope for each in terms.T)
    return Measurement(max(abs(noise + 3), abs(ordinary + 4)), detail=f"{noise:.3g}, {ordinary:.3g}; itself {same:.3g}")


@claim("appendix A.2, observation iii", "the opposite result", at_least(1e-3), theory=True)
def opposite_with_more_noise(seen: Seen) -> Measurement:
    """Where the noise appears more often than other tokens, attention moves towards it instead.

    Projection on W_E(N+1) W_E(q)ᵀ, times N², at the smallest N, when the noise also replaces three tokens in N; the
    detail gives the same for other shares.
    """
    each = {share: value * seen.by_tokens[0].law.tokens ** 2 for share, value in seen.by_share.items()}
    detail = ", ".join(f"{value:.3g} at {share:g} in N" for share, value in each.items())
    return Measurement(each.get(SHARES[-1]), detail=detail)


@claim("appendix A.2, assumption i", "dominates, compared with W_V", at_most(0.05), exact=True)
def feedforward_dominates(seen: Seen) -> float:
    """After the first step W_F dominates the logit of the noise.

    Ratio of W_V's part to W_F's part in the mean logit of the noise, after the exact first step, largest over N.
    """
    return max(_first_logits(one.law)[1] / _first_logits(one.law)[0] for one in seen.by_tokens)


@claim(
    "appendix A.2, assumption ii", "smaller than the noise's by a factor of order 1/N", within(-1.1, -0.9), exact=True
)
def others_near_zero(seen: Seen) -> PowerLaw:
    """The logits of all other tokens are close to 0.

    Power in N of the ratio of the largest other logit to the noise's, both from W_F, after the exact first step.
    """
    found = [first_step(one.law, LEARNING_RATE).feedforward for one in seen.by_tokens]
    tokens = np.array([one.law.tokens for one in seen.by_tokens], dtype=np.float64)
    return fit_power_law(tokens, np.array([np.abs(one[:-1]).max() / abs(one[-1]) for one in found]))


@claim("appendix A.2, assumption iii", "suffices for alpha below 0.5", within(1.0, 1.0), exact=True)
def stays_below_alpha(seen: Seen) -> Measurement:
    """With a learning rate of at most 1 / (α (1 - α)) the probability of the noise stays below alpha.

    Share of settings in which the noise's probability stays below alpha for 2000 steps, over N = 16 to 4096, alpha =
    0.1 to 0.49 and learning rates up to 1 / (α (1 - α)); the detail gives the share at three times this rate.
    """
    shares = [_never_above(factor) for factor in (1.0, 3.0)]
    return Measurement(shares[0], detail=f"{shares[1]:.3g} at three times this rate")


@claim("appendix A.2, assumption iii", "η = O(log N)", at_most(0.0), exact=True)
def logarithmic_rate(seen: Seen) -> float:
    """A learning rate of log N still leaves the noise below alpha after one step.

    How far the noise's logit lies above its target after one step with η = log N, largest over N = 64 to 4096 and alpha
    = 0.1 to 0.5.
    """
    settings = [(tokens, alpha) for tokens in (64, 256, 1024, 4096) for alpha in (0.1, 0.3, 0.5)]
    return max(float(noise_logits(n, alpha, log(n), 1)[1]) - target_logit(n, alpha) for n, alpha in settings)


def _first_logits(law: UniformRecall) -> tuple[float, float]:
    """Return the parts of W_F and W_V in the mean logit of the noise after the exact first step."""
    weights, means = first_step(law, LEARNING_RATE), law.moments.mean / law.length
    row = weights.value[law.noise_token]
    kinds = {NOISE_KIND: law.noise_token, TRIGGER_KIND: TRIGGER}
    attended = sum(means[kind] * row[token] for kind, token in kinds.items())
    return float(weights.feedforward[-1]), float(attended + (law.tokens - 1) * means[OTHER_KIND] * row[TRIGGER + 1])


def _never_above(factor: float) -> float:
    """Return the share of settings whose noise logit stays below its target, at up to `factor` times the safe rate."""
    settings = [(n, alpha) for n in (16, 64, 256, 1024, 4096) for alpha in (0.1, 0.2, 0.3, 0.4, 0.49)]
    below = [
        bool((noise_logits(n, alpha, share * factor * safe_rate(alpha), 2000) <= target_logit(n, alpha) + 1e-9).all())
        for n, alpha in settings
        for share in (0.1, 0.5, 1.0)
    ]
    return sum(below) / len(below)


STUDY = Study(
    "truncation/attention-gradient",
    __doc__,
    measures_in(__name__),
    reads=Seen,
    draws=(
        lambda seen: projections.against_tokens(seen.by_tokens, seen.setting.ratio),
        lambda seen: projections.against_ratio(seen.by_ratio),
        lambda seen: projections.speeds(seen.moves, seen.by_tokens),
        lambda seen: projections.projection_table([*seen.by_tokens, *seen.by_ratio, seen.printed]),
        lambda seen: projections.power_table(seen.powers),
    ),
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: N from 64 to 384 with T = 16 N, and N = 64 with T from N to 64 N; 4096 sequences at each. "
            "The paper's argument asks for N, T ≫ 1 and the gradient of the expected loss.",
        ),
        "paper": Profile(
            PAPER,
            "Paper profile: the paper's argument asks for N, T ≫ 1 and the gradient of the expected loss, without "
            "numbers. N from 128 to 1024 with T = 64 N, and N = 128 with T from N to 256 N; 16 384 sequences at each. "
            "All sizes are ours.",
        ),
    },
    smoke=SMOKE,
)
