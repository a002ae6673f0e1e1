"""What the smallest singular value stores, on losses made by hand."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from anchorlab.papers.truncation import associative_memory as of
from anchorlab.studies.claim import judge
from anchorlab.theory.associative_flow import memory_flow
from tests.papers.hand_made_runs import HandMadeRun, seen_by_hand, student

EDITS = ("none", "rank 1", "rank 2", "rank 3", "rank 4")


def made_up(second, third=0.031, full=0.03):
    """Five runs of one width: the full matrix at `full`, rank 3 at `third`, rank 2 at `second`."""
    losses = {"none": torch.full((5,), full), "rank 3": torch.full((5,), third), "rank 2": torch.tensor(second)}
    return {**losses, "rank 1": torch.ones(5), "rank 4": losses["none"]}


def at_once(count, alpha, noise=None, loss=0.01, late=None):
    """A flow with singular values 1 and `noise`: by default the noise has the smallest one below alpha = 0.01.

    At the late time the noise's is `late`, by default the same, and the loss without noise ten times less.
    """
    value = noise or (0.5 if count < 8 or alpha < 0.01 else 2.0)
    return SimpleNamespace(
        noise_value=[value, late or value],
        signal_value=[1.0, 1.0],
        loss=np.array([1.0, 1.0]),
        loss_without_noise=np.array([loss, loss / 10]),
    )


WIDE, NARROW = [0.001, 0.002, 0.002, 0.002, 0.004], [0.0005, 0.001, 0.004, 0.016, 0.3]


def results(wide, narrow, flows=None, intervals=False):
    """What every claim comes to in the paper's setting, by default on its value alone."""
    losses = dict(zip(of.WIDTHS, (wide, narrow), strict=True))
    flows = flows or {(count, alpha): at_once(count, alpha) for count in of.FLOW_INPUTS for alpha in of.FLOW_ALPHAS}
    seen = seen_by_hand(of.Seen, losses=losses, many=losses, flows=flows)
    found = {one.name: judge(of.STUDY.claim(one), one(seen), "paper", paper_setting=True) for one in of.STUDY.claims}
    return found if intervals else {name: replace(one, interval=None, units=()) for name, one in found.items()}


@pytest.mark.untyped
def test_verdicts_by_hand():
    found = results(made_up(WIDE), made_up(NARROW))
    expected = {"full-loss": 0.03, "rank-two-12": 0.002 / 0.03, "rank-two-8": 0.004 / 0.03, "rank-two-likely": 0.9}
    expected |= {"rank-three-full": 1 / 30, "noise-subspace": 0.01, "alpha-decides": 1.0}
    expected |= {"wider-steadier": 0.0}  # quartiles 0.002 and 0.002, 0.001 and 0.016
    assert {name: one.value for name, one in found.items()} == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert found["full-loss"].spread == "0.03 to 0.03 over 5 seeds"
    assert found["rank-two-12"].detail == "rank 2: 0.001 to 0.004 over 5 runs"
    assert found["rank-two-8"].detail == "rank 2: 0.0005 to 0.3 over 5 runs"
    assert found["rank-two-likely"].detail == "9 of 10 runs"
    assert found["rank-three-full"].spread == "0.0333 to 0.0333 over 5 seeds"
    checks = {"noise-subspace", "alpha-decides"}
    assert {name for name, one in found.items() if one.verdict != "reproduced"} == {"rank-two-8"} | checks
    assert found["rank-two-8"].verdict == "contradicted"
    assert {found[name].verdict for name in checks} == {"agrees at our sizes"}


@pytest.mark.untyped
def test_units_steadiness_and_the_time_at_which_alpha_decides():
    found = results(made_up(WIDE), made_up(NARROW), intervals=True)
    assert found["rank-two-likely"].units == (1.0, 1.0, 1.0, 1.0, 0.5)
    assert found["rank-two-8"].units == pytest.approx([loss / 0.03 for loss in NARROW])
    assert found["rank-two-8"].interval == student(0.004 / 0.03, *(loss / 0.03 for loss in NARROW))
    assert {name: len(found[name].units) for name in ("full-loss", "rank-three-full")} == dict.fromkeys(
        ("full-loss", "rank-three-full"), 5
    )
    wide, narrow = made_up([0.001, 0.001, 0.002, 0.002, 0.002]), made_up([0.001, 0.001, 0.002, 0.008, 0.008])
    assert results(wide, narrow)["wider-steadier"].value == pytest.approx(1 / 3, rel=1e-5)
    same = results(narrow, narrow)["wider-steadier"]
    assert same.value == pytest.approx(1.0)
    assert "resamplings" in same.detail
    flows = {(n, alpha): at_once(n, alpha, late=3.0) for n in of.FLOW_INPUTS for alpha in of.FLOW_ALPHAS}
    found = results(made_up(WIDE), made_up(NARROW), flows)["alpha-decides"]
    assert (found.value, found.detail) == (0.0, "1 at t = 10000, 0 at t = 1e+09")


@pytest.mark.untyped
def test_the_bands_of_appendix_c_1_iii():
    def with_flows(**changed):
        flows = {(n, alpha): at_once(n, alpha) for n in of.FLOW_INPUTS for alpha in of.FLOW_ALPHAS}
        flows |= {(128, alpha): at_once(128, alpha, **changed) for alpha in of.FLOW_ALPHAS}
        found = results(made_up(WIDE), made_up(NARROW), flows)
        return {name: (found[name].value, found[name].verdict) for name in ("noise-subspace", "alpha-decides")}

    yes, no = "agrees at our sizes", "differs at our sizes"
    assert with_flows(loss=0.09) == {"noise-subspace": (0.09, yes), "alpha-decides": (1.0, yes)}
    assert with_flows(loss=0.11)["noise-subspace"] == (0.11, no)
    assert with_flows(noise=2.0)["alpha-decides"] == (0.8, no)
    assert with_flows(noise=0.5)["alpha-decides"] == (0.8, no)
    assert with_flows(late=2.0)["alpha-decides"] == (0.8, no)  # at the early time alpha still decides


def test_many_runs_are_trained_and_no_alpha_leaves_the_noise_the_smallest_value_late():
    # in the limit it is (n - 1) / sqrt(n + 1) times the signal's, 7 / 3 for eight inputs, whatever alpha is
    late = {alpha: memory_flow(8, alpha, np.array(of.FLOW_TIMES)) for alpha in of.FLOW_ALPHAS}
    early, last = ([bool(flow.noise_value[at] < flow.signal_value[at]) for flow in late.values()] for at in range(2))
    assert {*early} == {True, False} and {*last} == {False}
    # the more steps the lower the loss at rank 2, from about that of a guess among four on
    short, longer = (of.many_losses(12, of.experiments(replace(of.QUICK, steps=steps))[12], 20) for steps in (1, 300))
    assert len(short["rank 2"]) == len(longer["rank 2"]) == 20
    assert float(longer["rank 2"].median()) < 0.02 < float(short["rank 2"].median())
    # the full model comes to know the noise: -log(1 - alpha)
    assert float(longer["none"].median()) == pytest.approx(-math.log(1 - of.ALPHA), rel=0.1)


@pytest.mark.untyped
def test_many_runs_and_figures_follow_what_a_varied_study_changes():
    varied = of.STUDY.vary({"task.alpha": 0.2, "recipe.duration": 400}).experiments_of("quick")
    assert float(of.many_losses(12, varied[0], 20)["none"].median()) == pytest.approx(-math.log(0.8), rel=0.2)
    run = HandMadeRun(varied[0].take(range(3)), (1, 300), {("clean", "loss", edit): [[1.0, 0.5]] * 3 for edit in EDITS})
    panel = of._panel(12, run)
    assert panel.references[0].value == pytest.approx(-math.log(0.8))
    assert "α = 0.2," in panel.caption


def runs():
    """Two widths of three runs, whose losses differ by split, step, edit, width and run."""
    made, steps = [], (1, 100, 300, 1000)
    for width, experiment in zip((0.0, 0.5), of.experiments(replace(of.QUICK, runs=3)).values(), strict=True):
        values = {}
        for at, edit in enumerate(EDITS):
            lasts = [1 + at + width + run / 100 for run in range(3)]
            values["clean", "loss", edit] = [[8.0, 100 * last, 100 / 9 * last, last] for last in lasts]
            values["clean", "right", edit] = [[8.0] * 3 + [0.1 * at + run / 100] for run in range(3)]
            values["clean", "noise", edit] = [[8.0] * 3 + [0.05 * at + run / 100] for run in range(3)]
        made.append(HandMadeRun(experiment, steps, values))
    return made


@pytest.mark.slow
def test_the_last_losses_of_both_widths_are_read():
    found = of.STUDY.see(runs(), replace(of.QUICK, steps=2, drawn=5))
    for at, edit in enumerate(EDITS):
        assert found.losses[12][edit].tolist() == pytest.approx([1 + at, 1.01 + at, 1.02 + at])
        assert found.losses[8][edit].tolist() == pytest.approx([1.5 + at, 1.51 + at, 1.52 + at])
    assert {width: len(many["none"]) for width, many in found.many.items()} == {12: 5, 8: 5}
    untrained = [HandMadeRun(one.experiment.untrained(), one._steps, one._values) for one in runs()]
    start = of.STUDY.see(untrained, replace(of.QUICK, steps=300, drawn=5)).many[12]
    expected = of.many_losses(12, untrained[0].experiment, 5)
    assert float(expected["none"].min()) > 0.5  # no step is taken, of the 1500 of the setting
    assert {edit: one.tolist() for edit, one in start.items()} == {edit: one.tolist() for edit, one in expected.items()}


def test_figures_and_tables():
    analysis = of.STUDY.analysis(runs(), replace(of.QUICK, steps=2, drawn=5))
    *panels, values = analysis.figures
    assert [figure.title.partition("d = ")[2].split()[0] for figure in panels] == ["12", "8"]
    assert len(values.maps[0][0].values) == len(of.FLOW_INPUTS)
    for figure, width in zip(panels, (0.0, 0.5), strict=True):
        assert [line.label for line in figure.lines] == ["full matrix", "rank 1", "rank 2", "rank 3", "rank 4"]
        for at, line in enumerate(figure.lines):
            assert line.x == (20, 2000, 6000, 20_000)
            ends = line.low[-1], line.mean[-1], line.high[-1]
            assert ends == pytest.approx((1.005 + at + width, 1.01 + at + width, 1.015 + at + width))
    ends, falls = analysis.tables
    assert ends.rows[0][:2] == (12, "full")
    assert ends.rows[7][:2] == (8, "rank 2")
    assert ends.rows[7][2:] == pytest.approx((3.505, 3.51, 3.515, 0.21, 0.11))
    assert [row[0] for row in falls.rows] == [12, 8]
    for row in falls.rows:
        assert row[1] == pytest.approx(-2)  # 100 times as much at step 100, the first of the last tenfold
        assert row[4] == pytest.approx(-2 / 3)
