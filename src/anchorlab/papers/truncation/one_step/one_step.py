"""One gradient step: the feed-forward layer learns the noise more surely than the attention.

One layer of attention with a linear feed-forward layer takes one full-batch gradient step from zero. Both learn the
noise; the paper says how well, and here it is measured on random sequences.

Source: truncated weights, section 4.1 (Theorem 1) and appendix D (Lemmas D.1 and D.2, Table 2). Nothing is trained: the
gradients at zero follow from counting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from anchorlab.findings import at_least, at_most, within
from anchorlab.papers.truncation.one_step import margins, moments
from anchorlab.studies import Measurement, Profile, Reading, Study, claim, claims, measures_in, over, reading
from anchorlab.theory import PowerLaw, fit_power_law, margin_scans, table_2
from anchorlab.theory.margin_scans import LOGITS, Scan, Scanned, measure, measure_scan, samples_needed
from anchorlab.theory.uniform_recall import UniformRecall

DELTA_LEMMAS, DELTA_THEOREM = table_2.DELTA, margin_scans.DELTA


@dataclass(frozen=True)
class Setting:
    """The samples to draw."""

    table: UniformRecall  # the law for the check of Table 2
    batches: int  # the number of batches for the table
    batch: int  # the number of sequences in each batch
    draws: int  # the number of training sets at each point of a scan
    scans: Mapping[str, Scan]  # the scans of the margins, by name
    needed: tuple[UniformRecall, ...]  # laws, by N, for which the samples needed are sought
    needed_samples: tuple[int, ...]  # the numbers of samples among which they are sought


def _law(tokens: int, length: int) -> UniformRecall:
    return UniformRecall(tokens, length, alpha=0.5)


QUICK = Setting(
    table=UniformRecall(16, 64, 0.3),  # at 0.5 one entry of Table 2 vanishes
    batches=64,
    batch=16_384,
    draws=200,
    scans={
        "samples": Scan(_law(64, 256), 1, "samples", (64, 128, 256, 512, 1024, 2048, 4096)),
        "tokens": Scan(_law(32, 512), 256, "tokens", (16, 24, 32, 48, 64, 96, 128)),
        "length": Scan(_law(32, 512), 256, "length", (64, 128, 256, 512, 1024)),
        "short tokens": Scan(_law(4096, 64), 2048, "tokens", (512, 724, 1024, 1448, 2048, 2896, 4096)),
        "short length": Scan(_law(4096, 64), 2048, "length", (32, 45, 64, 91, 128, 181, 256)),
    },
    needed=tuple(_law(2**power, 256) for power in range(6, 13)),
    needed_samples=(8, 16, 32, 64, 128, 256, 512, 1024),
)
PAPER = Setting(
    table=UniformRecall(64, 1024, 0.3),
    batches=256,
    batch=16_384,
    draws=1000,
    scans={
        "samples": Scan(_law(256, 1024), 1, "samples", (256, 512, 1024, 2048, 4096, 8192, 16_384)),
        "tokens": Scan(_law(64, 2048), 1024, "tokens", (32, 48, 64, 96, 128, 192, 256)),
        "length": Scan(_law(64, 2048), 1024, "length", (256, 512, 1024, 2048, 4096)),
        "short tokens": Scan(_law(16_384, 128), 8192, "tokens", (2048, 2896, 4096, 5793, 8192, 11_585, 16_384)),
        "short length": Scan(_law(16_384, 128), 8192, "length", (64, 91, 128, 181, 256, 362, 512)),
    },
    needed=tuple(_law(2**power, 512) for power in range(6, 15)),
    needed_samples=(8, 16, 32, 64, 128, 256, 512, 1024, 2048),
)
SMOKE = Setting(
    table=UniformRecall(8, 16, 0.3),
    batches=4,
    batch=64,
    draws=4,
    scans={
        "samples": Scan(_law(8, 16), 1, "samples", (8, 16, 32)),
        "tokens": Scan(_law(8, 32), 16, "tokens", (8, 12, 16)),
        "length": Scan(_law(8, 32), 16, "length", (16, 32, 64)),
        "short tokens": Scan(_law(64, 16), 64, "tokens", (32, 64, 128)),
        "short length": Scan(_law(64, 16), 64, "length", (8, 16, 32)),
    },
    needed=tuple(_law(tokens, 32) for tokens in (8, 16, 32)),
    needed_samples=(8, 16, 32),
)


class Seen(Reading):
    """Sampled gradients and margins; all sequences are drawn from seed 0."""

    seeds = "0"

    @reading
    def drawn(self) -> table_2.Drawn:
        """The sampled gradients of Table 2."""
        return table_2.draw_moments(self.setting.table, self.setting.batches, self.setting.batch)

    @reading
    def scanned(self) -> Mapping[str, Scanned]:
        """The margins along each scan."""
        return {name: measure_scan(scan, self.setting.draws) for name, scan in self.setting.scans.items()}

    @reading
    def needed(self) -> Mapping[str, Sequence[float]]:
        """The samples that each law needs, by the name of the logit."""
        among, draws = self.setting.needed_samples, self.setting.draws
        searched = [[measure(law, samples, draws) for samples in among] for law in self.setting.needed]
        return {logit: [samples_needed(points, logit) for points in searched] for logit in LOGITS}

    def needed_power(self, logit: str) -> PowerLaw | None:
        """Return the power in N of the samples needed; None if they were not found for every N."""
        needed, tokens = np.array(self.needed[logit]), np.array([float(law.tokens) for law in self.setting.needed])
        return fit_power_law(tokens, needed) if np.isfinite(needed).all() else None


@claims(
    "our derivation for Lemmas D.1 and D.2",
    "no value: these are not the printed entries",
    at_most(4.0),
    {"means": "mean", "variances": "variance"},
    own=True,
    theory=True,
)
def projected(seen: Seen, moment: str) -> float:
    """The projected gradients have the {moment}s that we derive for Lemmas D.1 and D.2.

    Largest distance of a sampled {moment} from the exact one, over the 12 entries, in standard errors.
    """
    return float(np.abs(seen.drawn.scores(means=moment == "mean")).max())


@claim("Table 2", "all of them", within(1.0, 1.0), exact=True)
def printed_means(seen: Seen) -> float:
    """The means of Table 2 are right as printed.

    Share of the legible printed means that agree with the derivation for T ≫ N, ignoring signs.
    """
    return table_2.share_right(means=True)


@claim("Table 2", "all of them", within(1.0, 1.0), exact=True)
def printed_variances(seen: Seen) -> float:
    """The variances of Table 2 are right as printed.

    Share of the legible printed variances that agree with the derivation for T ≫ N.
    """
    return table_2.share_right(means=False)


@claim("Lemmas D.1 and D.2", "with probability 1 - δ", at_least(1 - DELTA_LEMMAS), theory=True)
def lemma_bounds(seen: Seen) -> Measurement:
    """All projections keep within the bounds of Lemmas D.1 and D.2.

    Share of training sets with all projections within the bounds, for exact moments and δ = {DELTA_LEMMAS:g}.
    """
    return over(torch.from_numpy(seen.drawn.kept), "training sets")


@claim("Theorem 1", "α", within(0.95, 1.05), theory=True)
def feedforward_margin(seen: Seen) -> Measurement:
    """After one step the feed-forward layer's margin is its learning rate times α.

    Mean margin of the feed-forward layer at the largest sample size, divided by α.
    """
    return _margin(seen, "feedforward")


@claim("Theorem 1", "(α²q + α(1 - q)) / N for a share q of noise in the test sequence", within(0.95, 1.05), theory=True)
def attention_margin(seen: Seen) -> Measurement:
    """The attention's margin is N times smaller than the feed-forward layer's.

    Mean margin of the attention at the largest sample size, divided by theory's value, on test sequences from the law.
    """
    return _margin(seen, "typical")


def _margin(seen: Seen, logit: str) -> Measurement:
    """Return the margin over theory's value at the largest sample size, one for each training set."""
    most_samples = seen.scanned["samples"].points[-1]
    return over(torch.from_numpy(most_samples.margins[logit].values).mean(dim=1), "training sets")


@claim("Theorem 1", "no power (but of a logarithm of N)", at_most(0.1), theory=True)
def feedforward_tokens_length(seen: Seen) -> Measurement:
    """The feed-forward margin's spread depends on neither N nor T.

    Largest absolute power, in N or T, of the feed-forward margin's standard deviation.
    """
    found = [one.power("feedforward") for name, one in seen.scanned.items() if name != "samples"]
    largest = max(found, key=lambda one: abs(one.slope))
    return Measurement(abs(largest.slope), interval=largest.apart(0.0))


@claim("Theorem 1", "power -1, from 1/N² under the root", within(-1.1, -0.9), theory=True)
def attention_tokens(seen: Seen) -> PowerLaw:
    """For T ≫ N the attention margin's spread falls as 1/N.

    Power in N of the attention margin's standard deviation, on test sequences drawn from the law.
    """
    return seen.scanned["tokens"].power("typical")


@claim("Theorem 1", "power -1/2, from 1/(TN) under the root", within(-0.6, -0.4), theory=True)
def attention_short_tokens(seen: Seen) -> PowerLaw:
    """For N ≫ T the attention margin's spread falls as 1/√N on the hardest test sequence.

    Power in N of the attention margin's standard deviation, on one repeated token.
    """
    return seen.scanned["short tokens"].power("repeated")


@claim("Theorem 1", "power -1/2, from 1/(TN) under the root", within(-0.6, -0.4), theory=True)
def attention_short_length(seen: Seen) -> PowerLaw:
    """For N ≫ T the attention margin's spread falls as 1/√T on the hardest test sequence.

    Power in T of the attention margin's standard deviation, on one repeated token.
    """
    return seen.scanned["short length"].power("repeated")


@claim("Theorem 1", "with probability 1 - δ, up to a constant", at_most(2.0), theory=True)
def theorem_bounds(seen: Seen) -> float:
    """Margins keep within the bounds of Theorem 1.

    Largest constant factor that the bounds need at any point, for either layer and any test sequence, with δ =
    {DELTA_THEOREM:g}; Bernstein's inequality, from which the bounds come, has 2 before the root.
    """
    points = [point for one in seen.scanned.values() for point in one.points]
    return max(margin.excess for point in points for margin in point.margins.values())


@claim("section 4.1", "enough signal from m = Ω(1)", at_most(0.2), theory=True)
def feedforward_few(seen: Seen) -> PowerLaw | None:
    """The feed-forward layer needs equally many samples for any number of tokens.

    Power in N of the number of samples with which 95 % of training sets have a margin within 50 % of α.
    """
    return seen.needed_power("feedforward")


@claim("section 4.1", "m = Ω(N) up to logarithms, at the cost of many more samples", within(0.5, 1.5), theory=True)
def attention_many(seen: Seen) -> PowerLaw | None:
    """The attention needs samples in proportion to the number of tokens.

    Power in N of the number of samples with which 95 % of training sets have a margin within 50 % of theory's value, on
    test sequences drawn from the law.
    """
    return seen.needed_power("typical")


@claim("section 4.1", "m = Ω(N) up to logarithms, at the cost of many more samples", within(0.5, 1.5), theory=True)
def attention_many_hardest(seen: Seen) -> PowerLaw | None:
    """On the hardest test sequence, too, the attention needs samples in proportion to the number of tokens.

    Power in N of the number of samples with which 95 % of training sets have a margin within 50 % of theory's value, on
    one repeated token.
    """
    return seen.needed_power("repeated")


STUDY = Study(
    "truncation/one-step",
    __doc__,
    measures_in(__name__),
    reads=Seen,
    draws=(
        lambda seen: [moments.moments(seen.drawn, means) for means in (True, False)],
        lambda seen: margins.margins(seen.scanned["samples"]),
        lambda seen: [margins.spreads(scanned) for scanned in seen.scanned.values()],
        lambda seen: margins.needed(seen.setting.needed, seen.needed),
        lambda seen: [moments.moments_table(seen.drawn, means) for means in (True, False)],
        lambda seen: moments.reach_table(seen.drawn),
        lambda seen: margins.powers(list(seen.scanned.values())),
    ),
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: N and T from 16 to 4096 and from 32 to 1024 with α = 0.5, 200 training sets of up to 4096 "
            "sequences at each point; Table 2 at N = 16, T = 64, α = 0.3 from a million sequences. The theorem asks "
            "for N, T ≫ 1.",
        ),
        "paper": Profile(
            PAPER,
            "Paper profile: the theorem asks for N, T ≫ 1 and names no numbers. N from 32 to 16 384, T from 64 to "
            "4096, α = 0.5, 1000 training sets of up to 16 384 sequences at each point; Table 2 at N = 64, T = 1024, "
            "α = 0.3 from four million sequences. All sizes are ours.",
        ),
    },
    smoke=SMOKE,
)
