"""Theorem 2: the full matrix keeps the noise, its rank-1 part forgets it as t^(-1/2); the flow beside its descent.

Source: truncated weights, section 5, Theorem 2, appendix C and Lemma E.3.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from anchorlab.findings import Claim, ClaimResult, Findings, Line, LineFigure, Provenance, Reference, Table
from anchorlab.findings import numbers as as_numbers
from anchorlab.models import AssociativeSpec
from anchorlab.models.edits import Truncate
from anchorlab.studies.study import Profile, Study
from anchorlab.studies.truncation.rank_one_measures import (
    FLOW_TIMES,
    LAWS,
    RANK_ONE,
    RATES,
    Descent,
    at_zero_step,
    descent_slope,
    flow_slope,
    off_full,
    orders,
    read_descent,
)
from anchorlab.tasks import task
from anchorlab.theory import (
    PowerLaw,
    a_offset,
    b_limit,
    gradient_flow,
    lemma_a_offset,
    rank_one_coefficient,
)
from anchorlab.theory.rank_one_flow import Law
from anchorlab.training import SGD, Evaluation, Experiment, FixedSample, Members, Recipe, TrainedRun

ALPHAS = (0.25, 0.3, 0.35)
"""Inside the theorem's range, (0.2, 0.4)."""

_SHOWN = 0.3  # the alpha of the figures

CLAIMS = (
    Claim(
        "truncation/rank-one-noise/full-noise",
        "The full model predicts noise with probability alpha and the right output with 1 - alpha",
        "truncated weights, Theorem 2",
        "exactly, as t grows",
        "largest distance of either probability from it, over alphas, at the end of gradient descent",
        (None, 0.01),
    ),
    Claim(
        "truncation/rank-one-noise/rank-one-forgets",
        "The rank-1 model eventually predicts correctly, without noise",
        "truncated weights, Theorem 2",
        "noise goes to 0",
        "largest probability of noise at rank 1, over alphas, of the flow at t = 1e6",
        (None, 0.01),
    ),
    Claim(
        "truncation/rank-one-noise/flow-slope",
        "The rank-1 model's probability of noise falls as t^(-1/2)",
        "truncated weights, Theorem 2",
        "-1/2",
        "its slope against t on logarithmic axes, flow, t from 1e4 to 1e6; of the alphas, the one farthest from -1/2",
        (-0.51, -0.49),
    ),
    Claim(
        "truncation/rank-one-noise/descent-slope",
        "So it does under gradient descent on the matrix",
        "truncated weights, Theorem 2",
        "-1/2",
        "the same of the matrix trained and cut, over the last factor 16 of time, largest learning rate",
        (-0.55, -0.45),
    ),
    Claim(
        "truncation/rank-one-noise/b-limit",
        "b goes to log alpha / (1 - alpha)",
        "truncated weights, Lemma E.3",
        "log alpha / (1 - alpha)",
        "largest distance, over alphas, of the flow at t = 1e6",
        (None, 0.001),
    ),
    Claim(
        "truncation/rank-one-noise/a-falls",
        "a falls as -log t",
        "truncated weights, Lemma E.3",
        "slope -1",
        "change of a over that of log t, flow, t from 1e4 to 1e6; of the alphas, the one farthest from -1",
        (-1.01, -0.99),
    ),
    Claim(
        "truncation/rank-one-noise/a-constant",
        "Under equation (9), a + log t goes to -log (1 - alpha)(4 - 2 alpha)",
        "truncated weights, Lemma E.3",
        "-log (1 - alpha)(4 - 2 alpha)",
        "largest distance, over alphas, of equation (9) as printed at t = 1e6",
        (None, 0.01),
    ),
    Claim(
        "truncation/rank-one-noise/equation-nine",
        "Gradient flow from zero follows equation (9)",
        "truncated weights, equation (9)",
        "equal at all times",
        "largest distance in a or b, over times and alphas, between equation (9) as printed and gradient descent "
        "carried to step size zero from its two smallest learning rates",
        (None, 0.02),
    ),
    Claim(
        "truncation/rank-one-noise/descent-follows",
        "Gradient descent on the matrix follows the flow, up to an error in proportion to the step size",
        "truncated weights, Theorem 2 (gradient flow, as derived here)",
        "order 1",
        "log2 of the largest distance in a or b from the derived flow at a learning rate of 1 over that at 0.5; of the "
        "alphas, the one farthest from 1",
        (0.9, 1.1),
    ),
)


def _profile(note: str, *, alphas: Sequence[float], doublings: int) -> Profile:
    moments = tuple(2**doubling for doubling in range(doublings + 1))

    def experiments() -> list[Experiment]:
        return [
            Experiment(
                task("associative/noisy", inputs=2, alpha=alpha),
                AssociativeSpec(width=3, embeddings="orthonormal"),
                Recipe(
                    data=FixedSample(size=2),
                    optimiser=SGD(learning_rate=RATES[0]),
                    batch=2,
                    duration=moments[-1],
                    precision="float64",
                    evaluation=Evaluation(
                        at=moments,
                        size=2,
                        splits=("clean",),
                        edits={RANK_ONE: (Truncate(weight="memory.W_F", rank=1),)},
                    ),
                ),
                Members(seeds=(0,) * len(RATES), learning_rate=RATES, initialisation_scale=(0.0,) * len(RATES)),
                label=f"alpha = {alpha:g}",
            )
            for alpha in alphas
        ]

    return Profile(experiments, note)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The flow and its descent against their limits, and what the rank-1 matrix predicts."""
    descents = [read_descent(run) for run in runs]
    shown = next((one for one in descents if one.alpha == _SHOWN), descents[0])
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Two inputs, three outputs of which one is noise, orthonormal embeddings, the matrix zero at the "
        f"start: the gradient flow is an ordinary differential equation in two unknowns. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=_judge(descents, provenance.profile),
        figures=(_noise_figure(shown), *_margin_figures(shown), _error_figure(shown)),
        tables=(_margin_table(descents), _noise_table(descents)),
    )


def _judge(descents: Sequence[Descent], profile: str) -> tuple[ClaimResult, ...]:
    def judged(claim: Claim) -> ClaimResult:
        value, detail = measured[claim.id.rpartition("/")[2]]
        return claim.judge(value, profile, detail=detail)

    found = max(map(orders, descents), key=lambda each: abs(each[-1] - 1))
    carried: dict[Law, float] = {law: max(at_zero_step(one, law) for one in descents) for law in LAWS}
    measured: dict[str, tuple[float | None, str]] = {
        "full-noise": (max(off_full(one) for one in descents), ""),
        "descent-slope": _farthest([law for one in descents if (law := descent_slope(one)) is not None]),
        "equation-nine": (carried["printed"], f"{carried['derived']:.2g} from the flow as derived here"),
        "descent-follows": (found[-1], f"{found[0]:.3g} at twice these rates"),
        **_measure_flow([one.alpha for one in descents]),
    }
    return tuple(map(judged, CLAIMS))


def _measure_flow(alphas: Sequence[float]) -> dict[str, tuple[float | None, str]]:
    """What is claimed of the flow alone."""
    ends = np.array([1e4, 1e6])
    flows = {alpha: gradient_flow(alpha, ends) for alpha in alphas}
    slopes = [float(np.diff(flow.a)[0] / np.diff(np.log(ends))[0]) for flow in flows.values()]
    off = {
        alpha: abs(float(gradient_flow(alpha, ends, "printed").a[-1]) + math.log(ends[-1]) - lemma_a_offset(alpha))
        for alpha in alphas
    }
    return {
        "rank-one-forgets": (max(float(flow.rank_one_noise[-1]) for flow in flows.values()), ""),
        "flow-slope": _farthest([flow_slope(alpha) for alpha in alphas]),
        "b-limit": (max(abs(float(flow.b[-1]) - b_limit(alpha)) for alpha, flow in flows.items()), ""),
        "a-falls": (max(slopes, key=lambda slope: abs(slope + 1)), ""),
        "a-constant": (max(off.values()), ", ".join(f"{far:.3g} at alpha = {alpha:g}" for alpha, far in off.items())),
    }


def _farthest(laws: Sequence[PowerLaw]) -> tuple[float | None, str]:
    """The slope farthest from -1/2, with the confidence interval of its fit."""
    if not laws:
        return None, ""
    law = max(laws, key=lambda law: abs(law.slope + 0.5))
    return law.slope, f"95 % interval {law.low:.4f} to {law.high:.4f}"


def _noise_figure(one: Descent) -> LineFigure:
    flow = gradient_flow(one.alpha, FLOW_TIMES)
    root = rank_one_coefficient(one.alpha) / np.sqrt(FLOW_TIMES)
    late = FLOW_TIMES > 1
    return LineFigure(
        title=f"Probability of noise, full matrix and rank 1, α = {one.alpha:g}",
        caption="The derived flow from zero, and gradient descent on the matrix at a learning rate of 2, cut to rank 1 "
        "beside training. In the long run the rank-1 matrix has C / √t with C = (3 (1 - α))^(-1/2).",
        x_label="t",
        y_label="probability",
        lines=(
            _line("full matrix, flow", FLOW_TIMES, flow.noise),
            _line("rank 1, flow", FLOW_TIMES, flow.rank_one_noise),
            _line("full matrix, descent", one.time[0], one.noise[0]),
            _line("rank 1, descent", one.time[0], one.rank_one_noise[0]),
            _line("C / √t", FLOW_TIMES[late], root[late]),
        ),
        log_x=True,
        log_y=True,
        references=(Reference("α", one.alpha),),
    )


def _margin_figures(one: Descent) -> tuple[LineFigure, LineFigure]:
    time, (a, b) = one.time[0], one.margins[:, 0]
    flows = {label: gradient_flow(one.alpha, FLOW_TIMES, law) for law, label in LAWS.items()}
    first = LineFigure(
        title=f"a + log t, α = {one.alpha:g}",
        caption="a = log P(wrong) / P(right). Gradient descent at a learning rate of 2 follows the derived flow; "
        "equation (9) as printed goes elsewhere, and the limit of Lemma E.3 is that of neither.",
        x_label="t",
        y_label="a + log t",
        lines=(
            *(_line(label, FLOW_TIMES, flow.a + np.log(FLOW_TIMES)) for label, flow in flows.items()),
            _line("descent", time, a + np.log(time)),
        ),
        log_x=True,
        references=(
            Reference("-log 3(1 - α)", a_offset(one.alpha)),
            Reference("-log 18/5 (1 - α)", a_offset(one.alpha, "printed")),
            Reference("Lemma E.3", lemma_a_offset(one.alpha)),
        ),
    )
    second = LineFigure(
        title=f"b, α = {one.alpha:g}",
        caption="b = log P(noise) / P(right), of the same; its limit is the same under both equations.",
        x_label="t",
        y_label="b",
        lines=(
            *(_line(label, FLOW_TIMES, flow.b) for label, flow in flows.items()),
            _line("descent", time, b),
        ),
        log_x=True,
        references=(Reference("log α / (1 - α)", b_limit(one.alpha)),),
    )
    return first, second


def _error_figure(one: Descent) -> LineFigure:
    return LineFigure(
        title=f"Distance of gradient descent from the flow, α = {one.alpha:g}",
        caption="The greater of the distances in a and b at equal times. From the derived flow it halves with the "
        "learning rate η; from equation (9) as printed it stays.",
        x_label="t",
        y_label="distance",
        lines=tuple(
            _line(f"{label}, η = {rate:g}", times, distances)
            for law, label in LAWS.items()
            for rate, times, distances in zip(RATES, one.time, np.abs(one.error(law)).max(axis=0), strict=True)
        ),
        log_x=True,
        log_y=True,
    )


def _line(label: str, x: Float[np.ndarray, "time"], y: Float[np.ndarray, "time"]) -> Line:
    return Line(label, as_numbers(x), as_numbers(y))


def _margin_table(descents: Sequence[Descent]) -> Table:
    end = np.array([1e6])
    rows = []
    for one in descents:
        b = one.margins[1, 0, -1]
        offsets = [float(gradient_flow(one.alpha, end, law).a[0]) + math.log(end[0]) for law in LAWS]
        limits = [a_offset(one.alpha, law) for law in LAWS]
        rows.append((one.alpha, float(b), b_limit(one.alpha), offsets[0], limits[0], offsets[1], limits[1],
                     lemma_a_offset(one.alpha)))  # fmt: skip
    return Table(
        title="Margins and their limits",
        caption="b at the end of gradient descent; a + log t of both equations at t = 1e6, each beside the limit that "
        "follows from it, and the limit that Lemma E.3 prints.",
        columns=("α", "b", "its limit", "a + log t", "its limit, derived", "by (9)", "limit of (9)", "Lemma E.3"),
        rows=tuple(rows),
    )


def _noise_table(descents: Sequence[Descent]) -> Table:
    rows: list[tuple[float | None, ...]] = []
    for one in descents:
        flow, descent = flow_slope(one.alpha), descent_slope(one)
        fitted = (None, None, None) if descent is None else (descent.slope, descent.low, descent.high)
        ends = float(one.noise[0, -1]), float(one.rank_one_noise[0, -1])
        rows.append((one.alpha, *ends, flow.slope, flow.low, flow.high, *fitted))
    return Table(
        title="Noise under the full matrix and under rank 1",
        caption="Probability of noise at the end of gradient descent, and the slopes at rank 1 with 95 % confidence "
        "intervals: of the flow over t from 1e4 to 1e6, of descent over the last factor 16 of time. The approach is "
        "from above, so that intervals need not hold -1/2 itself.",
        columns=("α", "full", "rank 1", "flow's slope", "from", "to", "descent's slope", "from", "to"),
        rows=tuple(rows),
    )


STUDY = Study(
    name="truncation/rank-one-noise",
    title="Associative memory: rank one forgets the noise as t^(-1/2)",
    claims=CLAIMS,
    profiles={
        "quick": _profile(
            "Quick profile, which is the theorem's own setting: n = 2, orthonormal embeddings, start from zero; three "
            "alphas of its range. The paper trains nothing here; gradient descent runs for 2048 steps at learning "
            "rates of 2, 1 and 0.5.",
            alphas=ALPHAS,
            doublings=11,
        ),
        "paper": _profile(
            "Paper profile: the theorem's setting as in the quick profile, with gradient descent for 16,384 steps and "
            "two alphas more, one of them below the theorem's range, where the paper remarks that it holds as well.",
            alphas=(0.03, 0.21, *ALPHAS),
            doublings=14,
        ),
        "smoke": _profile(
            "Smoke profile: far too short to show anything; it only exercises the code.", alphas=(0.3,), doublings=3
        ),
    },
    analyse=analyse,
)
