"""How attention begins to avoid the noise: the gradient of W_KQ after the first step.

Nothing is trained: the first step follows the exact expected gradient, and the next gradient is averaged over drawn
sequences. Source: truncated weights, section 4.2 and appendix A.2.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from anchorlab.findings import (
    Claim,
    ClaimResult,
    Findings,
    Line,
    LineFigure,
    Provenance,
    Reference,
    Table,
    line,
)
from anchorlab.rng import generator
from anchorlab.studies.study import Profile, Study
from anchorlab.studies.truncation.judging import judge_numbers
from anchorlab.theory import PowerLaw, fit_power_law
from anchorlab.theory.attention_gradient import LeadingOrder, first_step, key_query_gradient, leading_order
from anchorlab.theory.one_step import feedforward_moments, value_moments
from anchorlab.theory.uniform_recall import UniformRecall
from anchorlab.training import TrainedRun

ALPHA, LEARNING_RATE = 0.5, 1.0
_STUDY = "truncation/attention-gradient"
_TOKENS = ("noise", "trigger", "other")
_LABELS = {"noise": "noise token", "trigger": "trigger", "other": "every other token"}


@dataclass(frozen=True)
class Settings:
    """`tokens` are the N along which T = `ratio` N; `ratios` the T/N at N = `ratios_at`; `batches` of `batch` each."""

    tokens: tuple[int, ...]
    ratio: int
    ratios: tuple[int, ...]
    ratios_at: int
    batches: int
    batch: int


SETTINGS = {
    "quick": Settings((64, 96, 128, 192, 256, 384), 16, (1, 2, 3, 4, 6, 8, 16, 32, 64), 64, 8, 512),
    "paper": Settings(
        (128, 192, 256, 384, 512, 768, 1024), 64, (1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256), 128, 16, 1024
    ),
    "smoke": Settings((8, 12, 16), 4, (1, 2, 4), 8, 3, 32),
}
"""What each profile draws."""

CLAIMS = (
    Claim(
        f"{_STUDY}/noise-avoided",
        "W_KQ moves away from the noise token",
        "truncated weights, appendix A.2",
        "below 0",
        "largest projection on W_E(N+1) W_E(q)ᵀ over N, times N²",
        (None, -0.01),
    ),
    Claim(
        f"{_STUDY}/noise-order",
        "In the order of 1/N²",
        "truncated weights, appendix A.2",
        "Θ(1/N²)",
        "power of this projection in N, at a fixed T/N",
        (-2.1, -1.9),
    ),
    Claim(
        f"{_STUDY}/noise-leading",
        "Its size is -η α² (1 - α) (α - p) / N²",
        "truncated weights, appendix A.2",
        "this, from its (α/N) c (α - 1) with c = ηα/N",
        "the projection over this, at the largest N",
        (0.9, 1.1),
    ),
    Claim(
        f"{_STUDY}/others-attended",
        "It moves towards the other tokens",
        "truncated weights, appendix A.2",
        "above 0",
        "smallest mean projection on W_E(k) W_E(q)ᵀ of tokens k but noise and trigger, over N, times N³",
        (0.01, None),
    ),
    Claim(
        f"{_STUDY}/others-order",
        "In the order of 1/N³",
        "truncated weights, appendix A.2",
        "Θ(1/N³)",
        "power of this projection in N, at a fixed T/N",
        (-3.1, -2.9),
    ),
    Claim(
        f"{_STUDY}/uniform",
        "Alike towards all tokens of [N], the trigger among them",
        "truncated weights, appendix A.2",
        "uniformly",
        "projection on W_E(q) W_E(q)ᵀ over that of the other tokens, at the largest N",
        (0.5, 2.0),
    ),
    Claim(
        f"{_STUDY}/three-speeds",
        "W_F moves as 1, W_V as 1/N and W_KQ as 1/N²",
        "truncated weights, appendix A.2",
        "powers 0, -1 and -2",
        "largest distance of the three measured powers in N from these, the first two of the exact first step",
        (None, 0.1),
    ),
)


@dataclass(frozen=True)
class Measured:
    """The projections of -grad_KQ on W_E(k) W_E(q)ᵀ for the noise token, the trigger and another token, `[batch]`."""

    law: UniformRecall
    noise: np.ndarray
    trigger: np.ndarray
    other: np.ndarray

    def mean(self, token: str) -> float:
        """The mean over batches."""
        return float(self.of(token).mean())

    def error(self, token: str) -> float:
        """Its standard error."""
        values = self.of(token)
        return float(values.std(ddof=1) / sqrt(values.size))

    def of(self, token: str) -> np.ndarray:
        """The projections of one of noise, trigger and other, `[batch]`."""
        return {"noise": self.noise, "trigger": self.trigger, "other": self.other}[token]

    def derived(self, token: str) -> float:
        """The leading order."""
        closed: LeadingOrder = leading_order(self.law, LEARNING_RATE)
        return {"noise": closed.noise, "trigger": closed.trigger, "other": closed.other}[token]


def measure(law: UniformRecall, batches: int, batch: int) -> Measured:
    """The gradient after the exact first step, over so many independent batches of sequences."""
    weights = first_step(law, LEARNING_RATE)
    found = np.zeros((batches, law.tokens + 1))
    for index in range(batches):
        random = generator(0, "attention gradient", law.tokens, law.length, index)
        for block in law.blocks(random, batch):
            found[index] += key_query_gradient(law, block, weights) * block.targets.size / batch
    return Measured(law, found[:, -1], found[:, 0], found[:, 1:-1].mean(axis=1))


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Draws everything; there are no runs to read."""
    began, settings = time.monotonic(), SETTINGS[provenance.profile]
    by_tokens = [
        measure(UniformRecall(tokens, settings.ratio * tokens, ALPHA), settings.batches, settings.batch)
        for tokens in settings.tokens
    ]
    by_ratio = [
        measure(UniformRecall(settings.ratios_at, ratio * settings.ratios_at, ALPHA), settings.batches, settings.batch)
        for ratio in settings.ratios
    ]
    powers = _powers(by_tokens)
    provenance = replace(provenance, seeds="0", seconds=round(time.monotonic() - began, 1))
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="After one gradient step from zero the feed-forward layer and the value matrix have moved. The "
        f"gradient of the key-query matrix, zero until then, now leads attention away from the noise token. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=_judge(by_tokens, powers, provenance.profile),
        figures=(_against_tokens(by_tokens, settings.ratio), _against_ratio(by_ratio), _speeds(by_tokens)),
        tables=(_table([*by_tokens, *by_ratio]), _power_table(powers)),
    )


def _sizes(by_tokens: Sequence[Measured]) -> dict[str, list[float]]:
    """How far each matrix moves in its leading direction: the exact first step, and the drawn gradient of W_KQ."""
    laws = [one.law for one in by_tokens]
    return {
        "W_F": [-LEARNING_RATE * feedforward_moments(law, "noise").mean for law in laws],
        "W_V": [-LEARNING_RATE * value_moments(law, ("noise", "other")).mean for law in laws],
        "W_KQ": [-one.mean("noise") for one in by_tokens],
    }


def _powers(by_tokens: Sequence[Measured]) -> dict[str, PowerLaw | None]:
    """The powers in N of the three matrices' moves and of W_KQ's parts; None for one that is not of one sign."""
    tokens = np.array([one.law.tokens for one in by_tokens], dtype=np.float64)
    sizes = _sizes(by_tokens) | {token: [one.mean(token) for one in by_tokens] for token in ("trigger", "other")}
    return {
        name: fit_power_law(tokens, np.array(values)) if min(values) > 0 else None for name, values in sizes.items()
    }


def _judge(by_tokens: Sequence[Measured], powers: dict[str, PowerLaw | None], profile: str) -> tuple[ClaimResult, ...]:
    last = by_tokens[-1]
    speeds = [(powers[name], power) for name, power in (("W_F", 0), ("W_V", -1), ("W_KQ", -2))]
    known = [abs(found.slope - power) for found, power in speeds if found is not None]
    values: dict[str, float | PowerLaw | None] = {
        "noise-avoided": max(one.mean("noise") * one.law.tokens**2 for one in by_tokens),
        "noise-order": powers["W_KQ"],
        "noise-leading": last.mean("noise") / last.derived("noise"),
        "others-attended": min(one.mean("other") * one.law.tokens**3 for one in by_tokens),
        "others-order": powers["other"],
        "uniform": last.mean("trigger") / last.mean("other"),
        "three-speeds": max(known) if len(known) == 3 else None,
    }

    return judge_numbers(CLAIMS, values, profile)


def _against_tokens(by_tokens: Sequence[Measured], ratio: int) -> LineFigure:
    tokens = [one.law.tokens for one in by_tokens]
    lines = []
    for token, sign in (("noise", -1), ("trigger", 1), ("other", 1)):
        drawn = sign * np.stack([one.of(token) for one in by_tokens], axis=1)
        derived = sign * np.array([[one.derived(token) for one in by_tokens]])
        for label, values in ((_LABELS[token], drawn), ("derived", derived)):  # a logarithmic axis has no place below 0
            shown = values.min(axis=0) > 0
            lines.append(line(label, np.array(tokens)[shown], values[:, shown]))
    return LineFigure(
        title="Gradient of W_KQ after the first step, against N",
        caption=f"T = {ratio} N, α = {ALPHA:g}, η = {LEARNING_RATE:g}. Projection of the negative gradient on "
        "W_E(k) W_E(q)ᵀ, with the sign turned for the noise token, which alone is avoided; beside each its leading "
        "order. Mean and range over independent batches.",
        x_label="N, tokens",
        y_label="projection, sign aside",
        lines=tuple(lines),
        log_x=True,
        log_y=True,
    )


def _against_ratio(by_ratio: Sequence[Measured]) -> LineFigure:
    tokens, lengths = by_ratio[0].law.tokens, [one.law.length / one.law.tokens for one in by_ratio]
    return LineFigure(
        title="Gradient of W_KQ towards ordinary tokens, against T/N",
        caption=f"N = {tokens}, α = {ALPHA:g}, η = {LEARNING_RATE:g}; times N³. The trigger stands at the end of every "
        "sequence, so that it draws attention to itself, at the cost of all others where T is not far above N. Mean "
        "and range over independent batches.",
        x_label="T/N",
        y_label="projection · N³",
        lines=(
            line(_LABELS["other"], lengths, np.stack([one.other * tokens**3 for one in by_ratio], axis=1)),
            line("derived", lengths, [[one.derived("other") * tokens**3 for one in by_ratio]]),
        ),
        log_x=True,
        references=(Reference("no change", 0.0),),
    )


def _speeds(by_tokens: Sequence[Measured]) -> LineFigure:
    tokens = tuple(float(one.law.tokens) for one in by_tokens)
    return LineFigure(
        title="How fast the three matrices move",
        caption="The move of each matrix in its leading direction, sign aside: W_F and W_V in the first step, towards "
        "the noise; W_KQ in the gradient after it, away from the noise.",
        x_label="N, tokens",
        y_label="move",
        lines=tuple(Line(name, tokens, tuple(values)) for name, values in _sizes(by_tokens).items()),
        log_x=True,
        log_y=True,
    )


def _table(measured: Sequence[Measured]) -> Table:
    rows = [
        (one.law.tokens, one.law.length, _LABELS[token], one.mean(token), one.error(token), one.derived(token))
        for one in measured
        for token in _TOKENS
    ]
    return Table(
        title="Projections of W_KQ's negative gradient after the first step",
        caption="On W_E(k) W_E(q)ᵀ for each kind of token k: drawn, its standard error, and the derived leading order.",
        columns=("N", "T", "k", "drawn", "standard error", "derived"),
        rows=tuple(rows),
    )


def _power_table(powers: dict[str, PowerLaw | None]) -> Table:
    names = {"W_F": "W_F", "W_V": "W_V", "W_KQ": "W_KQ, noise token", "trigger": "W_KQ, trigger"}
    paper = {"W_F": 0, "W_V": -1, "W_KQ": -2, "trigger": -3, "other": -3}
    rows = [
        (names.get(name, "W_KQ, every other token"), paper[name], found.slope, f"{found.low:.3f} to {found.high:.3f}")
        if found is not None
        else (names.get(name, "W_KQ, every other token"), paper[name], None, "not of one sign")
        for name, found in powers.items()
    ]
    return Table(
        title="Powers in N",
        caption="The slope on logarithmic axes at a fixed T/N, with its interval.",
        columns=("move", "paper", "power", "95 % interval"),
        rows=tuple(rows),
    )


STUDY = Study(
    name=_STUDY,
    title="Attention avoids the noise: the gradient of the key-query matrix after one step",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            tuple,
            "Quick profile: N from 64 to 384 with T = 16 N, and N = 64 with T from N to 64 N; 4096 sequences at each. "
            "The paper's argument asks for N, T ≫ 1 and the gradient of the expected loss.",
        ),
        "paper": Profile(
            tuple,
            "Paper profile: the paper's argument asks for N, T ≫ 1 and the gradient of the expected loss, without "
            "numbers. N from 128 to 1024 with T = 64 N, and N = 128 with T from N to 256 N; 16 384 sequences at each.",
        ),
        "smoke": Profile(tuple, "Smoke profile: far too small to show anything; it only exercises the code."),
    },
    analyse=analyse,
)
