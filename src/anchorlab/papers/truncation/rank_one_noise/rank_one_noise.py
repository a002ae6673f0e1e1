"""Associative memory: rank one forgets the noise as t^(-1/2).

Two inputs, three outputs of which one is noise, orthonormal embeddings, the matrix zero at the start: the gradient flow
is an ordinary differential equation in two unknowns.

Source: truncated weights, section 5, Theorem 2, appendix C and Lemma E.3.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anchorlab.findings import Line, LineFigure, Reference, Table, at_most, within
from anchorlab.findings import numbers as as_numbers
from anchorlab.models import AssociativeSpec
from anchorlab.models.edits import Truncate
from anchorlab.papers.truncation.rank_one_noise import theorem_2
from anchorlab.studies import SEARCHED, Measurement, Profile, Reading, Study, claim, fresh, measures_in, reading
from anchorlab.studies.kit import column_table
from anchorlab.tasks import task
from anchorlab.theory import PowerLaw, a_offset, gradient_flow, lemma_a_offset, rank_one_coefficient
from anchorlab.theory import b_limit as limit_of_b
from anchorlab.theory.rank_one_flow import Curve, Law
from anchorlab.training import SGD, Evaluation, Experiment, FixedSample, Members, Recipe

RANGE = (0.2, 0.4)
"""The alphas of Theorem 2 and Lemma E.3, without the ends."""

_SHOWN = 0.3  # the alpha of the figures
_BELOW = (0.01, 0.05, 0.1, 0.15, 0.2)  # alphas outside the theorem's range, to which Remark 1 extends it


@dataclass(frozen=True)
class Setting:
    """The noise levels `alphas`, and the length of each training, `2 ** doublings` steps."""

    alphas: tuple[float, ...]
    doublings: int


QUICK = Setting((0.25, 0.3, 0.35), 11)  # inside the theorem's range
PAPER = Setting((0.03, 0.21, *QUICK.alphas), 14)


def experiments(setting: Setting) -> dict[float, Experiment]:
    """Return an experiment for each alpha, with a member for each learning rate, evaluated at doubling steps."""
    moments = tuple(2**doubling for doubling in range(setting.doublings + 1))
    recipe = Recipe(
        data=FixedSample(size=2),
        optimiser=SGD(learning_rate=theorem_2.RATES[0]),
        batch=2,
        duration=moments[-1],
        precision="float64",
        evaluation=Evaluation(
            at=moments, size=2, splits=("clean",), edits={theorem_2.RANK_ONE: (Truncate(weight="memory.W_F", rank=1),)}
        ),
    )
    zero = (0,) * len(theorem_2.RATES)
    return {
        alpha: Experiment(
            task("associative/noisy", inputs=2, alpha=alpha),
            AssociativeSpec(width=3, embeddings="orthonormal"),
            recipe,
            Members(seeds=fresh(1) * len(theorem_2.RATES), learning_rate=theorem_2.RATES, initialisation_scale=zero),
            f"alpha = {alpha:g}",
        )
        for alpha in setting.alphas
    }


class Seen(Reading):
    """Gradient descent at each alpha; the flow follows from the alphas alone."""

    @reading
    def descents(self) -> Sequence[theorem_2.Descent]:
        """The gradient descent at each alpha."""
        return [theorem_2.read_descent(run) for run in self.runs.values()]

    @reading
    def inside(self) -> Sequence[theorem_2.Descent]:
        """The descents at the alphas of Theorem 2 and Lemma E.3, the ones that claims judge."""
        return [one for one in self.descents if RANGE[0] < one.alpha < RANGE[1]]

    @reading
    def shown(self) -> theorem_2.Descent:
        """The descent that is drawn."""
        return next((one for one in self.descents if one.alpha == _SHOWN), self.descents[0])


def _each(values: Mapping[float, float], digits: str) -> str:
    """Return the values by alpha in words; those outside the theorem's range come last."""
    inside = [alpha for alpha in values if RANGE[0] < alpha < RANGE[1]]
    words = [f"{values[alpha]:{digits}} at alpha = {alpha:g}" for alpha in inside]
    outside = [f"{values[alpha]:{digits}} at alpha = {alpha:g}" for alpha in values if alpha not in inside]
    return ", ".join(words) + ("; outside the range " + ", ".join(outside) if outside else "")


@claim("Theorem 2", "1 - alpha for the right output, alpha for noise, 0 for the other", at_most(0.001), exact=True)
def full_keeps_noise(seen: Seen) -> float:
    """The full model tends to the probabilities of its data, noise included.

    Distance of the full model's probabilities in the flow at t = 1e6 from 1 - alpha, alpha and 0, largest over the
    three outputs and alphas in (0.2, 0.4).
    """
    ends = [(one.alpha, theorem_2.late_flow(one.alpha)) for one in seen.inside]
    noise = [float(end.noise[-1]) - alpha for alpha, end in ends]
    wrong = [float(end.wrong[-1]) for _, end in ends]
    return max(max(abs(more), less, abs(more + less)) for more, less in zip(noise, wrong, strict=True))


@claim("Theorem 2", "noise goes to 0", at_most(0.01), exact=True)
def rank_one_forgets(seen: Seen) -> float:
    """The rank-1 model eventually predicts correctly, without noise.

    Probability of noise at rank 1 in the flow at t = 1e6, largest over alphas in (0.2, 0.4).
    """
    return max(float(theorem_2.late_flow(one.alpha).rank_one_noise[-1]) for one in seen.inside)


@claim("Theorem 2 and Remark 1", "-1/2, for any alpha in (0, 0.4)", within(-0.51, -0.49), exact=True)
def flow_slope(seen: Seen) -> Measurement:
    """The rank-1 model's probability of noise falls as t^(-1/2).

    Slope of the rank-1 probability of noise against t on logarithmic axes, in the flow for t from 1e4 to 1e6, fitted
    with a correction t^(-1/2); the value farthest from -1/2 over alpha = 0.01, 0.05, 0.1, 0.15 and 0.2 and the alphas
    in (0.2, 0.4).
    """
    alphas = (*_BELOW, *(one.alpha for one in seen.inside))
    return _farthest({alpha: theorem_2.flow_power(alpha) for alpha in alphas})


@claim("Theorem 2", "-1/2", within(-0.51, -0.49), theory=True)
def descent_slope(seen: Seen) -> Measurement:
    """Under gradient descent on the matrix, too, rank one forgets the noise as t^(-1/2).

    Slope of the rank-1 probability of noise against t on logarithmic axes, for the trained matrix cut to rank 1, over
    the last factor 16 of time, at the largest learning rate; the value farthest from -1/2 over alphas in (0.2, 0.4).
    """
    return _farthest({one.alpha: law for one in seen.inside if (law := theorem_2.descent_power(one)) is not None})


def _farthest(laws: Mapping[float, PowerLaw]) -> Measurement:
    """Return the slope farthest from -1/2, with all slopes; nothing is random, so their intervals mean nothing."""
    if not laws:
        return Measurement(None)
    farthest = max(laws.values(), key=lambda law: abs(law.slope + 0.5))
    each = ", ".join(f"{law.slope:.4f} at alpha = {alpha:g}" for alpha, law in laws.items())
    return Measurement(farthest.slope, detail=each)


@claim("Lemma E.3", "log(alpha / (1 - alpha))", at_most(0.001), exact=True)
def b_limit(seen: Seen) -> float:
    """b = log(P(noise) / P(right)) goes to log(alpha / (1 - alpha)).

    Distance of the flow's b at t = 1e6 from log(alpha / (1 - alpha)), largest over alphas in (0.2, 0.4).
    """
    return max(abs(float(theorem_2.late_flow(one.alpha).b[-1]) - limit_of_b(one.alpha)) for one in seen.inside)


@claim("Lemma E.3", "-log (1 - alpha)(4 - 2 alpha)", at_most(0.01), exact=True)
def a_constant(seen: Seen) -> Measurement:
    """Under equation (9), a + log t, with a = log(P(wrong) / P(right)), goes to -log((1 - alpha)(4 - 2 alpha)).

    Distance of a + log t, under equation (9) as printed, from this limit at t = 1e6, largest over alphas in (0.2, 0.4).
    """
    far = {one.alpha: abs(_late_offset(one.alpha, "printed") - lemma_a_offset(one.alpha)) for one in seen.descents}
    return Measurement(max(far[one.alpha] for one in seen.inside), detail=_each(far, ".3g"))


@claim("equation (9)", "equal at all times", at_most(0.02), exact=True)
def equation_nine(seen: Seen) -> Measurement:
    """Gradient flow from zero follows equation (9).

    Distance in a or b between equation (9) as printed and the flow derived from the gradient of the loss, largest over
    alphas in (0.2, 0.4) and times up to 1e6; the detail gives each alpha, and the distance of gradient descent,
    extrapolated to step size zero, from the derived flow.
    """
    laws: tuple[Law, Law] = ("printed", "derived")
    apart = {}
    for one in seen.descents:
        printed, derived = (gradient_flow(one.alpha, theorem_2.FLOW_TIMES, law) for law in laws)
        apart[one.alpha] = float(max(np.abs(printed.a - derived.a).max(), np.abs(printed.b - derived.b).max()))
    descent = max(theorem_2.at_zero_step(one, "derived") for one in seen.descents)
    detail = f"{_each(apart, '.3g')}; gradient descent lies {descent:.2g} from the derived flow"
    return Measurement(max(apart[one.alpha] for one in seen.inside), detail=detail)


@claim(
    "our derivation for Theorem 2", "no value: the theorem is about the flow", within(0.9, 1.1), own=True, theory=True
)
def descent_follows(seen: Seen) -> Measurement:
    """Gradient descent on the matrix follows the flow, up to an error in proportion to the step size.

    log2 of the ratio of the largest distances in a or b from the derived flow at learning rates 1 and 0.5; the value
    farthest from 1 over alphas in (0.2, 0.4).
    """
    larger, smaller = max(map(theorem_2.orders, seen.inside), key=lambda each: abs(each[-1] - 1))
    return Measurement(smaller, detail=f"{larger:.3g} at twice these rates")


def _late_offset(alpha: float, law: Law = "derived") -> float:
    return float(theorem_2.late_flow(alpha, law).a[-1]) + math.log(theorem_2.LATE[-1])


def _over_time(
    title: str,
    caption: str,
    y_label: str,
    curves: Mapping[str, tuple[Curve, Curve]],
    references: Sequence[Reference] = (),
    log_y: bool = False,
) -> LineFigure:
    """Return the figure of curves by label, each of times and values, over a logarithmic axis of time."""
    lines = tuple(Line(label, as_numbers(times), as_numbers(values)) for label, (times, values) in curves.items())
    return LineFigure(title, caption, "t", y_label, lines, log_x=True, log_y=log_y, references=tuple(references))


def _noise_figure(seen: Seen) -> LineFigure:
    one = seen.shown
    flow, late = gradient_flow(one.alpha, theorem_2.FLOW_TIMES), theorem_2.FLOW_TIMES[theorem_2.FLOW_TIMES > 1]
    return _over_time(
        f"Probability of noise, full matrix and rank 1, α = {one.alpha:g}",
        "The derived flow from zero, and gradient descent on the matrix at a learning rate of 2, cut to rank 1 for "
        "evaluation. In the long run the rank-1 matrix has C / √t with C = (3 (1 - α))^(-1/2).",
        "probability",
        {
            "full matrix, flow": (theorem_2.FLOW_TIMES, flow.noise),
            "rank 1, flow": (theorem_2.FLOW_TIMES, flow.rank_one_noise),
            "full matrix, descent": (one.time[0], one.noise[0]),
            "rank 1, descent": (one.time[0], one.rank_one_noise[0]),
            "C / √t": (late, rank_one_coefficient(one.alpha) / np.sqrt(late)),
        },
        [Reference("α", one.alpha)],
        log_y=True,
    )


def _margin_figures(seen: Seen) -> tuple[LineFigure, LineFigure]:
    one = seen.shown
    time, (a, b) = one.time[0], one.margins[:, 0]
    flows = {label: gradient_flow(one.alpha, theorem_2.FLOW_TIMES, law) for law, label in theorem_2.LAWS.items()}
    first = _over_time(
        f"a + log t, α = {one.alpha:g}",
        "a = log P(wrong) / P(right). Gradient descent at a learning rate of 2 follows the derived flow; equation (9) "
        "as printed goes elsewhere, and neither goes to the limit of Lemma E.3.",
        "a + log t",
        {label: (theorem_2.FLOW_TIMES, flow.a + np.log(theorem_2.FLOW_TIMES)) for label, flow in flows.items()}
        | {"descent": (time, a + np.log(time))},
        [
            Reference("-log 3(1 - α)", a_offset(one.alpha)),
            Reference("-log 18/5 (1 - α)", a_offset(one.alpha, "printed")),
            Reference("Lemma E.3", lemma_a_offset(one.alpha)),
        ],
    )
    second = _over_time(
        f"b, α = {one.alpha:g}",
        "b = log P(noise) / P(right), for the same flows and descent; its limit is the same under both equations.",
        "b",
        {label: (theorem_2.FLOW_TIMES, flow.b) for label, flow in flows.items()} | {"descent": (time, b)},
        [Reference("log α / (1 - α)", limit_of_b(one.alpha))],
    )
    return first, second


def _error_figure(seen: Seen) -> LineFigure:
    one = seen.shown
    errors = {label: np.abs(one.error(law)).max(axis=0) for law, label in theorem_2.LAWS.items()}
    return _over_time(
        f"Distance of gradient descent from the flow, α = {one.alpha:g}",
        "The greater of the distances in a and b at equal times. The distance from the derived flow halves with the "
        "learning rate η; the distance from equation (9) as printed stays.",
        "distance",
        {
            f"{label}, η = {rate:g}": (times, distances)
            for label, error in errors.items()
            for rate, times, distances in zip(theorem_2.RATES, one.time, error, strict=True)
        },
        log_y=True,
    )


def _margin_table(seen: Seen) -> Table:
    alphas = [one.alpha for one in seen.descents]
    return column_table(
        "Margins and their limits",
        "b at the end of gradient descent; a + log t of both equations at t = 1e6, each beside the limit that "
        "follows from it, and the limit that Lemma E.3 prints.",
        {
            "α": alphas,
            "b": [float(one.margins[1, 0, -1]) for one in seen.descents],
            "its limit": map(limit_of_b, alphas),
            "a + log t": map(_late_offset, alphas),
            "its limit, derived": map(a_offset, alphas),
            "by (9)": [_late_offset(alpha, "printed") for alpha in alphas],
            "limit of (9)": [a_offset(alpha, "printed") for alpha in alphas],
            "Lemma E.3": map(lemma_a_offset, alphas),
        },
    )


def _noise_table(seen: Seen) -> Table:
    rows: list[tuple[float | None, ...]] = []
    for one in seen.descents:
        descent, times = theorem_2.descent_power(one), one.time[0]
        flow = np.broadcast_to(gradient_flow(one.alpha, times).rank_one_noise, one.time.shape)
        alike = theorem_2.descent_power(replace(one, rank_one_noise=flow))
        ends = float(one.noise[0, -1]), float(one.rank_one_noise[0, -1])
        slopes = [None if law is None else law.slope for law in (descent, alike)]
        rows.append((one.alpha, *ends, theorem_2.flow_power(one.alpha).slope, *slopes))
    return Table(
        title="Noise under the full matrix and under rank 1",
        caption="Probability of noise at the end of gradient descent, and the slopes at rank 1, fitted with "
        "a correction t^(-1/2): of the flow over t from 1e4 to 1e6, of descent over its last factor 16 of time, and of "
        "the flow at the same times.",
        columns=("α", "full", "rank 1", "flow's slope", "descent's slope", "flow's, same times"),
        rows=tuple(rows),
    )


STUDY = Study(
    "truncation/rank-one-noise",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_noise_figure, _margin_figures, _error_figure, _margin_table, _noise_table),
    profiles={
        "quick": Profile(
            QUICK,
            "The theorem's own setting: n = 2, orthonormal embeddings, start from zero; three alphas of its range. "
            "The paper trains nothing here.",
        ),
        "paper": Profile(
            PAPER,
            "As the quick profile, with two alphas more, one of them below the theorem's range, where the paper "
            "remarks that it holds as well; claims are judged inside the range. The paper trains nothing here: "
            "learning rates and steps are ours.",
        ),
    },
    smoke=replace(QUICK, alphas=(0.3,), doublings=3),
    chosen_on=SEARCHED,
)
