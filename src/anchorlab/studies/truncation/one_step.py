"""One gradient step from zero: what the feed-forward layer and the attention each learn of the noise.

Nothing is trained: sequences are drawn, the gradients at zero follow from counting, and theory says what to expect.
Source: truncated weights, section 4.1 (Theorem 1) and appendix D (Lemmas D.1 and D.2, Table 2).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anchorlab.findings import Band, Claim, Findings, Provenance
from anchorlab.studies.study import Profile, Study
from anchorlab.studies.truncation import margin_figures, printed_moments
from anchorlab.studies.truncation.judging import judge_numbers
from anchorlab.studies.truncation.margin_scans import (
    DELTA,
    LOGITS,
    Scan,
    Scanned,
    measure,
    measure_scan,
    samples_needed,
)
from anchorlab.studies.truncation.printed_moments import Drawn
from anchorlab.theory import PowerLaw, fit_power_law
from anchorlab.theory.uniform_recall import UniformRecall
from anchorlab.training import TrainedRun

_STUDY = "truncation/one-step"


@dataclass(frozen=True)
class Settings:
    """What is drawn: `batches` of `batch` sequences for Table 2, and `draws` training sets for each point of a scan.

    `needed` are the laws by N at which the samples needed are sought, among `needed_samples`.
    """

    table: UniformRecall
    batches: int
    batch: int
    draws: int
    scans: Mapping[str, Scan]
    needed: tuple[UniformRecall, ...]
    needed_samples: tuple[int, ...]


def _law(tokens: int, length: int) -> UniformRecall:
    return UniformRecall(tokens, length, alpha=0.5)


SETTINGS = {
    "quick": Settings(
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
        needed=tuple(_law(tokens, 256) for tokens in (64, 256, 1024, 4096)),
        needed_samples=(8, 16, 32, 64, 128, 256, 512, 1024),
    ),
    "paper": Settings(
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
        needed=tuple(_law(tokens, 512) for tokens in (64, 256, 1024, 4096, 16_384)),
        needed_samples=(8, 16, 32, 64, 128, 256, 512, 1024, 2048),
    ),
    "smoke": Settings(
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
    ),
}
"""What each profile draws."""


def _claim(name: str, statement: str, source: str, paper: str, measured_as: str, band: Band) -> Claim:
    return Claim(f"{_STUDY}/{name}", statement, f"truncated weights, {source}", paper, measured_as, band)


CLAIMS = (
    _claim(
        "means",
        "The projected gradients have the means that theory derives",
        "Lemmas D.1 and D.2",
        "Lemma D.1, Table 2",
        "largest distance of a drawn mean from the exact one, over the 12 entries, in standard errors",
        (None, 4.0),
    ),
    _claim(
        "variances",
        "They have the variances that theory derives",
        "Lemmas D.1 and D.2",
        "Lemma D.1, Table 2",
        "largest distance of a drawn variance from the exact one, over the 12 entries, in standard errors",
        (None, 4.0),
    ),
    _claim(
        "printed-means",
        "The means of Table 2 are right as printed",
        "Table 2",
        "all of them",
        "share of the readable printed means that agree with the derivation for T ≫ N, leaving signs aside",
        (1.0, 1.0),
    ),
    _claim(
        "printed-variances",
        "The variances of Table 2 are right as printed",
        "Table 2",
        "all of them",
        "share of the printed variances that agree with the derivation for T ≫ N",
        (1.0, 1.0),
    ),
    _claim(
        "lemma-bounds",
        "All projections keep within the bounds of Lemmas D.1 and D.2",
        "Lemmas D.1 and D.2",
        "with probability 1 - δ",
        f"share of training sets in which they do, with exact moments and δ = {printed_moments.DELTA:g}",
        (1 - printed_moments.DELTA, 1.0),
    ),
    _claim(
        "feedforward-margin",
        "After one step the feed-forward layer's margin is its learning rate times α",
        "Theorem 1",
        "α",
        "mean margin at the most samples, over α",
        (0.95, 1.05),
    ),
    _claim(
        "attention-margin",
        "The attention's margin is N times smaller",
        "Theorem 1",
        "(α²q + α(1 - q)) / N for a share q of noise in the test sequence",
        "mean margin at the most samples on test sequences drawn from the law, over this value",
        (0.95, 1.05),
    ),
    _claim(
        "feedforward-samples",
        "The feed-forward margin's spread falls as 1/√m",
        "Theorem 1",
        "power -1/2",
        "power of the standard deviation over training sets in m",
        (-0.55, -0.45),
    ),
    _claim(
        "attention-samples",
        "So does the attention's",
        "Theorem 1",
        "power -1/2",
        "power of the standard deviation over training sets in m, on test sequences drawn from the law",
        (-0.55, -0.45),
    ),
    _claim(
        "feedforward-tokens-length",
        "The feed-forward margin's spread depends on neither N nor T",
        "Theorem 1",
        "no power (but of a logarithm of N)",
        "largest power of the standard deviation in N or T, leaving signs aside",
        (None, 0.1),
    ),
    _claim(
        "attention-tokens",
        "For T ≫ N the attention margin's spread falls as 1/N",
        "Theorem 1",
        "power -1, from 1/N² under the root",
        "power of the standard deviation in N, on test sequences drawn from the law",
        (-1.1, -0.9),
    ),
    _claim(
        "attention-short-tokens",
        "For N ≫ T it falls as 1/√N on the hardest test sequence",
        "Theorem 1",
        "power -1/2, from 1/(TN) under the root",
        "power of the standard deviation in N, on one repeated token",
        (-0.6, -0.4),
    ),
    _claim(
        "attention-short-length",
        "There it falls as 1/√T",
        "Theorem 1",
        "power -1/2, from 1/(TN) under the root",
        "power of the standard deviation in T, on one repeated token",
        (-0.6, -0.4),
    ),
    _claim(
        "theorem-bounds",
        "Margins keep within the bounds of Theorem 1",
        "Theorem 1",
        "with probability 1 - δ, up to a constant",
        f"largest constant needed at any point, for either layer and any test sequence, with δ = {DELTA:g}; the "
        "inequality of Bernstein, from which the bounds come, has 2 before the root",
        (None, 2.0),
    ),
    _claim(
        "feedforward-few",
        "The feed-forward layer needs no more samples for more tokens",
        "section 4.1",
        "m = Ω(1)",
        "power in N of the samples with which 95 % of training sets have a margin within half of α",
        (-0.2, 0.2),
    ),
    _claim(
        "attention-many",
        "The attention needs many more, in proportion to N",
        "section 4.1",
        "m of order N, up to logarithms",
        "power in N of the samples with which 95 % have a margin within half of theory's value, on test sequences "
        "drawn from the law",
        (0.5, 1.5),
    ),
    _claim(
        "attention-many-hardest",
        "It does so on the hardest test sequence",
        "section 4.1",
        "m of order N, up to logarithms",
        "the same on one repeated token",
        (0.5, 1.5),
    ),
)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Draws everything; there are no runs to read."""
    began, settings = time.monotonic(), SETTINGS[provenance.profile]
    drawn = printed_moments.draw_moments(settings.table, settings.batches, settings.batch)
    scanned = {name: measure_scan(scan, settings.draws) for name, scan in settings.scans.items()}
    searched = [
        [measure(law, samples, settings.draws) for samples in settings.needed_samples] for law in settings.needed
    ]
    needed = {logit: [samples_needed(points, logit) for points in searched] for logit in LOGITS}
    provenance = replace(provenance, seeds="0", seconds=round(time.monotonic() - began, 1))
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="One layer of attention with a linear feed-forward layer takes one full-batch gradient step from zero. "
        f"Both learn the noise; the paper says how well, and here it is measured on drawn sequences. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_numbers(CLAIMS, _values(drawn, scanned, settings.needed, needed), provenance.profile),
        figures=(
            printed_moments.figure(drawn, means=True),
            printed_moments.figure(drawn, means=False),
            margin_figures.margins(scanned["samples"]),
            *map(margin_figures.spreads, scanned.values()),
            margin_figures.needed(settings.needed, needed),
        ),
        tables=(
            printed_moments.table(drawn, means=True),
            printed_moments.table(drawn, means=False),
            printed_moments.reach_table(drawn),
            margin_figures.powers(list(scanned.values())),
        ),
    )


def _values(
    drawn: Drawn, scanned: dict[str, Scanned], laws: Sequence[UniformRecall], needed: dict[str, list[float]]
) -> dict[str, float | PowerLaw | None]:
    """What was measured, by the last part of the claims' ids."""
    most = scanned["samples"].points[-1].margins
    points = [point for one in scanned.values() for point in one.points]
    flat = [scanned[name].power("feedforward").slope for name in scanned if name != "samples"]
    tokens = np.array([law.tokens for law in laws], dtype=np.float64)
    return {
        "means": float(np.abs(drawn.scores(means=True)).max()),
        "variances": float(np.abs(drawn.scores(means=False)).max()),
        "printed-means": printed_moments.share_right(means=True),
        "printed-variances": printed_moments.share_right(means=False),
        "lemma-bounds": drawn.kept,
        "feedforward-margin": float(most["feedforward"].values.mean()),
        "attention-margin": float(most["typical"].values.mean()),
        "feedforward-samples": scanned["samples"].power("feedforward"),
        "attention-samples": scanned["samples"].power("typical"),
        "feedforward-tokens-length": max(map(abs, flat)),
        "attention-tokens": scanned["tokens"].power("typical"),
        "attention-short-tokens": scanned["short tokens"].power("repeated"),
        "attention-short-length": scanned["short length"].power("repeated"),
        "theorem-bounds": max(margin.excess for point in points for margin in point.margins.values()),
        "feedforward-few": _power_or_nothing(tokens, needed["feedforward"]),
        "attention-many": _power_or_nothing(tokens, needed["typical"]),
        "attention-many-hardest": _power_or_nothing(tokens, needed["repeated"]),
    }


def _power_or_nothing(tokens: np.ndarray, needed: list[float]) -> PowerLaw | None:
    """The power of the samples needed in N; None where they were not found for every N."""
    return fit_power_law(tokens, np.array(needed)) if np.isfinite(needed).all() else None


STUDY = Study(
    name=_STUDY,
    title="One gradient step: the feed-forward layer learns the noise more surely than the attention",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            tuple,
            "Quick profile: N and T from 16 to 4096 and from 32 to 1024 with α = 0.5, 200 training sets of up to 4096 "
            "sequences at each point; Table 2 at N = 16, T = 64, α = 0.3 from a million sequences. The theorem asks "
            "for N, T ≫ 1.",
        ),
        "paper": Profile(
            tuple,
            "Paper profile: the theorem asks for N, T ≫ 1 and names no numbers. N from 32 to 16 384, T from 64 to "
            "4096, α = 0.5, 1000 training sets of up to 16 384 sequences at each point; Table 2 at N = 64, T = 1024, "
            "α = 0.3 from four million sequences.",
        ),
        "smoke": Profile(tuple, "Smoke profile: far too small to show anything; it only exercises the code."),
    },
    analyse=analyse,
)
