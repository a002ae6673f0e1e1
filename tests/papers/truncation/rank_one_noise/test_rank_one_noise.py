"""What the study of Theorem 2 measures, on descents and flows made up by hand."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from anchorlab.papers.truncation.rank_one_noise import rank_one_noise, theorem_2
from anchorlab.papers.truncation.rank_one_noise.rank_one_noise import QUICK, STUDY, Seen, experiments
from anchorlab.studies.claim import judge
from anchorlab.theory import PowerLaw, gradient_flow
from anchorlab.theory.rank_one_flow import Margins
from tests.papers.hand_made_runs import HandMadeRun, seen_by_hand, values_of, verdicts_of

ALPHA = 0.3
SHORT = replace(QUICK, alphas=(ALPHA,), doublings=3)
TIMES = np.outer(theorem_2.RATES, 2.0 ** np.arange(8)) / 4


def made_up(power, law="derived", offsets=None, slope=-0.5):
    """A descent that lies 0.01 x rate^power off the flow in a, or by so much at each rate, at every time."""
    flows = [gradient_flow(ALPHA, times, law) for times in TIMES]
    offsets = [0.01 * rate**power for rate in theorem_2.RATES] if offsets is None else offsets
    a = np.stack([flow.a + offset for flow, offset in zip(flows, offsets, strict=True)])
    b = np.stack([flow.b for flow in flows])
    right = 1 / (1 + np.exp(a) + np.exp(b))
    return theorem_2.Descent(ALPHA, TIMES, right, np.exp(b) * right, 0.5 * TIMES**slope)


def measured(name, *descents):
    """A claim's value, its verdict in the paper's own setting, and its detail."""
    measure = next(one for one in STUDY.claims if one.name == name)
    result = judge(STUDY.claim(measure), measure(seen_by_hand(Seen, descents=descents)), "paper", paper_setting=True)
    assert result.spread is None
    return result.value, result.verdict, result.detail


def test_margins_and_descents_are_read_from_probabilities_of_clean_sequences():
    flow = gradient_flow(ALPHA, TIMES[0])
    a, b = made_up(0.0).margins
    assert a[0] == pytest.approx(flow.a + 0.01)
    assert b[0] == pytest.approx(flow.b)
    (found,) = STUDY.see(runs(), SHORT).descents
    assert found.alpha == ALPHA
    assert found.time == pytest.approx(np.outer([2, 1, 0.5], [1, 2, 4, 8]) / 4)
    grid = np.arange(3)[:, None] / 100 + np.arange(4) / 1000
    assert found.right == pytest.approx(0.6 + grid)
    assert found.noise == pytest.approx(0.3 + grid)
    assert found.rank_one_noise == pytest.approx(0.1 + grid)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_order_is_the_power_of_the_rate(power):
    assert theorem_2.orders(made_up(power)) == pytest.approx([power, power], abs=1e-6)


def test_errors_slopes_and_the_flow_itself():
    assert theorem_2.at_zero_step(made_up(1.0), "derived") == pytest.approx(0.0, abs=1e-9)
    assert theorem_2.at_zero_step(made_up(0.0), "derived") == pytest.approx(0.01)
    apart = gradient_flow(ALPHA, TIMES[1][:-1]), gradient_flow(ALPHA, TIMES[1][:-1], "printed")
    most = max(np.abs(apart[0].a - apart[1].a).max(), np.abs(apart[0].b - apart[1].b).max())
    assert theorem_2.at_zero_step(made_up(1.0), "printed") == pytest.approx(most, abs=1e-9)
    assert theorem_2.at_zero_step(made_up(1.0, "printed"), "printed") == pytest.approx(0.0, abs=1e-9)
    found = theorem_2.descent_power(made_up(1.0))
    assert found is not None
    assert found.slope == pytest.approx(-0.5)
    short = made_up(1.0)
    assert theorem_2.descent_power(theorem_2.Descent(ALPHA, short.time[:, :4], *(short.right[:, :4],) * 3)) is None
    assert theorem_2.flow_power(ALPHA).slope == pytest.approx(-0.5, abs=1e-4)
    # what the flow goes to, from its closed forms: noise at rank 1 as (3 (1 - alpha) t)^(-1/2)
    values = values_of(STUDY, seen_by_hand(Seen, descents=[made_up(1.0)]))
    assert values["rank-one-forgets"] == pytest.approx((3 * 0.7 * 1e6) ** -0.5, rel=2e-3)
    # P(wrong) goes to 0 as 1 / (3 t), which it takes from the noise and from the right output alike
    assert values["full-keeps-noise"] == pytest.approx(1 / 3e6, rel=1e-2)
    assert values["flow-slope"] == pytest.approx(-0.5, abs=2e-3)
    assert values["b-limit"] == pytest.approx(0, abs=1e-5)
    # the printed equation's own limit is -log 18/5 (1 - alpha)
    assert values["a-constant"] == pytest.approx(log(18 / 5 * 0.7) - log(0.7 * 3.4), abs=1e-4)


class TestDescent:
    """Claims on gradient descent."""

    def test_the_slope_farthest_from_a_half_and_of_the_limit(self):
        value, verdict, detail = measured("descent-slope", *(made_up(1.0, slope=slope) for slope in (-0.505, -0.492)))
        assert (value, verdict) == (pytest.approx(-0.492), "agrees at our sizes")
        assert detail == "-0.4920 at alpha = 0.3"
        # The odds of noise fall as t^(-1/2) exactly; its probability is still less steep.
        one = made_up(1.0)
        odds = 0.6 * one.time**-0.5
        near = replace(one, rank_one_noise=odds / (1 + odds))
        assert theorem_2.descent_power(near).slope == pytest.approx(-0.5, abs=0.01)
        assert abs(np.diff(np.log(near.rank_one_noise[0, -2:]))[0] / log(2) + 0.5) > 0.01
        whole = made_up(1.0)
        short = theorem_2.Descent(
            ALPHA, *(one[:, :4] for one in (TIMES, whole.right, whole.noise, whole.rank_one_noise))
        )
        assert measured("descent-slope", short) == (None, "not measured", "")

    def test_equation_nine_against_the_flow(self, monkeypatch):
        """Two flows that lie so far apart at one time, in b alone."""

        def flow(alpha, time, law="derived"):
            b = np.zeros(len(time))
            b[3] = 0.021 * (law == "printed") * (alpha == ALPHA)
            return Margins(time, np.zeros(len(time)), b)

        one = replace(made_up(0.0, offsets=[0.0] * 3), alpha=0.25)
        both = one, replace(one, alpha=ALPHA)
        monkeypatch.setattr(rank_one_noise, "gradient_flow", flow)
        value, found, detail = measured("equation-nine", *both)
        assert (value, found) == (pytest.approx(0.021), "contradicted")
        assert detail.startswith("0 at alpha = 0.25, 0.021 at alpha = 0.3; gradient descent lies ")
        assert detail.endswith(" from the derived flow")
        monkeypatch.setattr(rank_one_noise, "RANGE", (0.2, ALPHA))
        value, found, detail = measured("equation-nine", *both)
        assert (value, found) == (0.0, "reproduced")
        assert detail.startswith("0 at alpha = 0.25; outside the range 0.021 at alpha = 0.3; gradient")

    def test_equation_nine_itself_and_the_order_between_the_two_smaller_rates(self):
        value, verdict, detail = measured("equation-nine", made_up(0.0))
        assert verdict == "contradicted" and value > 0.1
        assert detail == f"{value:.3g} at alpha = 0.3; gradient descent lies 0.01 from the derived flow"
        value, verdict, detail = measured("descent-follows", made_up(1.0, offsets=(0.08, 0.02, 0.01)))
        assert (value, verdict) == (pytest.approx(1, abs=1e-5), "agrees at our sizes")
        assert detail == "2 at twice these rates"
        found = measured("descent-follows", made_up(1.05), made_up(0.92))
        assert found[:2] == (pytest.approx(0.92, abs=1e-5), "agrees at our sizes")
        # What lies far off at 0.03, 0.2 and 0.4, ends of the range, leaves the values of 0.3 alone.
        far = [replace(made_up(0.5, slope=-0.3), alpha=alpha) for alpha in (0.03, 0.2, 0.4)]
        for name, value in (("descent-slope", -0.505), ("descent-follows", 1.0)):
            assert measured(name, *far, made_up(1.0, slope=-0.505))[0] == pytest.approx(value, abs=1e-5)


class TestFlow:
    """Claims on the flow alone, of which everything that they read is made up."""

    ALPHAS = (0.25, 0.35)
    TIME = np.array([1e4, 1e6])

    def measured(self, monkeypatch, name, flows):
        """A claim on flows by alpha and law, each of its a and b at both ends; any other flow is not to be read."""
        made = {
            key: Margins(self.TIME, np.array(a, dtype=float), np.array(b, dtype=float)) for key, (a, b) in flows.items()
        }
        monkeypatch.setattr(theorem_2, "late_flow", lambda alpha, law="derived": made[alpha, law])
        return measured(name, *(replace(made_up(1.0), alpha=alpha) for alpha in self.ALPHAS))

    def test_an_alpha_outside_the_range_is_told_and_not_judged(self, monkeypatch):
        """0.03 is outside the lemma's (0.2, 0.4); its constant is -log 0.97 x 3.94."""
        ends = {0.03: -log(0.97 * 3.94) + 9.0, 0.25: -log(0.75 * 3.5) + 0.005}
        made = {alpha: Margins(self.TIME, np.array([0, end - log(1e6)]), np.zeros(2)) for alpha, end in ends.items()}
        monkeypatch.setattr(theorem_2, "late_flow", lambda alpha, law="derived": made[alpha])
        descents = [replace(made_up(1.0), alpha=alpha) for alpha in ends]
        value, verdict, detail = measured("a-constant", *descents)
        assert (value, verdict) == (pytest.approx(0.005), "reproduced")
        assert detail == "0.005 at alpha = 0.25; outside the range 9 at alpha = 0.03"
        for name in ("b-limit", "rank-one-forgets", "full-keeps-noise"):
            kept = {0.25: made[0.25]}
            monkeypatch.setattr(theorem_2, "late_flow", lambda alpha, law="derived", kept=kept: kept[alpha])
            assert measured(name, *descents)[0] is not None  # 0.03 is not even read

    def test_noise_at_rank_one_and_the_limit_of_b(self, monkeypatch):
        """With β₂ = 0 and e^β₁ = x, P(noise) is 1/x over 1 + 1/x + 1/x²."""
        flows = {(0.25, "derived"): ([0, -2 * log(102)], [0, -log(102)])}
        flows[0.35, "derived"] = ([0, -2 * log(9)], [0, -log(9)])
        assert self.measured(monkeypatch, "rank-one-forgets", flows) == (pytest.approx(9 / 91), "contradicted", "")
        limits = {0.25: log(0.25 / 0.75), 0.35: log(0.35 / 0.65)}
        flows = {(alpha, "derived"): ([0, 0], [9, limit + 0.0009]) for alpha, limit in limits.items()}
        found = self.measured(monkeypatch, "b-limit", flows)
        assert found == (pytest.approx(0.0009), "reproduced", "")
        flows[0.25, "derived"] = ([0, 0], [9, limits[0.25] - 0.0011])
        assert self.measured(monkeypatch, "b-limit", flows) == (pytest.approx(0.0011), "contradicted", "")

    @pytest.mark.parametrize(
        ("noise", "wrong", "far"), [(0.0009, 0.0, 0.0009), (0.0, 0.0012, 0.0012), (0.0007, 0.0006, 0.0013)]
    )
    def test_what_the_full_model_tends_to(self, monkeypatch, noise, wrong, far):
        """At alpha = 0.25 it has its data's probabilities, at 0.35 so much more noise, and so much of the wrong one."""

        def margins(noise, wrong):
            return ([0, log(wrong / (1 - noise - wrong))], [0, log(noise / (1 - noise - wrong))])

        flows = {(0.25, "derived"): margins(0.25, 1e-9), (0.35, "derived"): margins(0.35 + noise, wrong + 1e-9)}
        value, verdict, _ = self.measured(monkeypatch, "full-keeps-noise", flows)
        assert (value, verdict) == (pytest.approx(far, abs=1e-8), "reproduced" if far < 0.001 else "contradicted")

    @pytest.mark.parametrize(("far", "verdict"), [(-0.009, "reproduced"), (0.011, "contradicted")])
    def test_the_constant_of_a_under_the_printed_equation(self, monkeypatch, far, verdict):
        """The lemma's constants are -log 0.75 x 3.5 and -log 0.65 x 3.3."""
        ends = {0.25: -log(0.75 * 3.5) - log(1e6) + 0.005, 0.35: -log(0.65 * 3.3) - log(1e6) + far}
        flows = {(alpha, "printed"): ([0, end], [0, 0]) for alpha, end in ends.items()}
        value, found, detail = self.measured(monkeypatch, "a-constant", flows)
        assert (value, found) == (pytest.approx(abs(far)), verdict)
        assert detail == f"0.005 at alpha = 0.25, {abs(far):g} at alpha = 0.35"

    @pytest.mark.parametrize(("slope", "verdict"), [(-0.491, "reproduced"), (-0.511, "contradicted")])
    def test_the_power_of_noise(self, monkeypatch, slope, verdict):
        """The farthest from -1/2 may be inside the theorem's range, or below it, as Remark 1 has it."""
        for farthest in (0.35, 0.15):
            laws = dict.fromkeys((0.01, 0.05, 0.1, 0.15, 0.2, *self.ALPHAS), -0.505) | {farthest: slope}
            made = {alpha: PowerLaw(power, power - 0.01, power + 0.01, 1.0) for alpha, power in laws.items()}
            monkeypatch.setattr(theorem_2, "flow_power", made.__getitem__)
            *found, detail = measured("flow-slope", *(replace(made_up(1.0), alpha=alpha) for alpha in self.ALPHAS))
            assert found == [slope, verdict]
            assert detail == ", ".join(f"{power:.4f} at alpha = {alpha:g}" for alpha, power in laws.items())


def runs():
    """A training of three rates, whose probabilities differ by split, metric, edit and rate."""
    experiment = experiments(SHORT)[ALPHA]
    steps = [2**doubling for doubling in range(SHORT.doublings + 1)]
    keys = {("clean", "right"): 0.6, ("clean", "noise"): 0.3, ("clean", "noise", theorem_2.RANK_ONE): 0.1}
    keys |= {("clean", "right", theorem_2.RANK_ONE): 0.8, ("train", "right"): 0.7, ("train", "noise"): 0.2}
    apart = np.arange(3)[:, None] / 100 + np.arange(len(steps)) / 1000  # by rate and step
    return [HandMadeRun(experiment, steps, {key: (base + apart).tolist() for key, base in keys.items()})]


def test_a_short_run_is_analysed():
    """Three doublings: descent is still on its way, the flow's claims do not depend on it."""
    analysis = STUDY.analysis(runs(), SHORT)
    verdicts = verdicts_of(STUDY, analysis.seen)
    assert {name for name, verdict in verdicts.items() if verdict == "reproduced"} >= {
        "full-keeps-noise", "rank-one-forgets", "flow-slope", "b-limit",
    }  # fmt: skip
    assert verdicts["descent-slope"] == "not measured"
    assert verdicts["a-constant"] == "contradicted"
    noise, a, b, error = analysis.figures
    assert noise.lines[2].mean == pytest.approx((0.3, 0.301, 0.302, 0.303))
    assert noise.lines[3].mean == pytest.approx((0.1, 0.101, 0.102, 0.103))
    assert [reference.value for reference in a.references] == pytest.approx(
        [-log(3 * 0.7), -log(18 / 5 * 0.7), -log(0.7 * 3.4)]
    )
    assert b.lines[-1].mean[0] == pytest.approx(log(0.3 / 0.6))
    assert len(error.lines) == 6
    margins, slopes = analysis.tables
    assert margins.rows[0][:3] == pytest.approx((ALPHA, log(0.303 / 0.603), log(0.3 / 0.7)))
    assert slopes.rows[0][1:3] == pytest.approx((0.303, 0.103))
    assert slopes.rows[0][-3:] == (pytest.approx(-0.5, abs=1e-4), None, None)
