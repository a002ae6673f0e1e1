"""Which layer holds the noise, on runs made by hand."""

from dataclasses import replace

import pytest

from anchorlab.papers.truncation import feedforward_choices
from anchorlab.papers.truncation.feedforward_choices import STUDY, analyse, experiments, see
from anchorlab.papers.truncation.noisy_recall import QUICK
from tests.papers.hand_made_runs import HandMadeRun, values_of, verdicts_of

# (right, noise, loss) at the end by edit, in the order of the choices of layers
BOTH = {"none": (0.5, 0.5, 0.7), "without F1": (0.2, 0.75, 2.0), "without F2": (0.96, 0.0, 0.05)}
THEN_LINEAR = {"none": (0.5, 0.5, 0.7), "without F1": (0.62, 0.4, 0.6), "without F2": (0.7, 0.1, 0.5)}
THEN_MLP = {"none": (0.5, 0.5, 0.7), "without F1": (0.1, 0.61, 3.0), "without F2": (0.9, 0.2, 0.1)}
NEITHER = {
    "none": (0.5, 0.5, 0.7),
    "rho=0.05": (0.58, 0.4, 0.5),
    "rho=0.01": (0.1, 0.15, 4.0),
    "rho=0": (0.03, 0.02, 5.0),
}
APART = 0.02  # the first member lies so far below the ends, the second above


def runs(*choices):
    """Runs of four choices of layers; what is not given of an edit, a split or a step is never to be read."""
    made = []
    for experiment, given in zip(experiments(replace(QUICK, seeds=2)), choices, strict=True):
        values = {}
        for edit in ("none", *experiment.recipe.evaluation.edits):
            for at, metric in enumerate(("right", "noise", "loss")):
                last = given.get(edit, (0.44, 0.45, 0.46))[at]
                values["clean", metric, edit] = [[9.0, last - APART], [9.0, last + APART]]
                values["train", metric, edit] = [[8.0, 8.0]] * 2
        made.append(HandMadeRun(experiment, (0, 9), values))
    return made


def test_values_of_runs_made_by_hand():
    ratio = (0.08 / 0.48 + 0.12 / 0.52) / 2
    expected = {
        "mlp-mlp-without-f2": 0.96,
        "mlp-mlp-without-f1": 0.75,
        "mlp-linear-without-f2": 0.2,
        "mlp-linear-without-f1": 0.12,
        "mlp-linear-f1-is-better": -0.1,
        "linear-mlp-without-f2": 0.4,
        "linear-mlp-without-f1": 0.11,
        "none-best": 0.08,
        "none-less": 0.2 - 0.08,  # the better layer to drop: 0.46, 0.2 and 0.4
        "none-destroyed": ratio,
    }
    assert values_of(STUDY, see(runs(BOTH, THEN_LINEAR, THEN_MLP, NEITHER))) == pytest.approx(expected, abs=1e-6)


def test_figures_and_table(monkeypatch):
    ideal = {"right": 0.3, "noise": 0.6, "loss": 1.1}
    monkeypatch.setattr(feedforward_choices, "ideal_scores", lambda task, split: ideal)
    analysis = analyse(runs(BOTH, THEN_LINEAR, THEN_MLP, NEITHER), QUICK)
    *panels, against = analysis.figures
    all_given = [given for given in (BOTH, THEN_LINEAR, THEN_MLP, NEITHER) for _ in range(3)]
    for at, (panel, given) in enumerate(zip(panels, all_given, strict=True)):
        drawn = [line.mean[-1] for line in panel.lines]
        assert sorted(drawn) == pytest.approx(sorted(numbers[at % 3] for numbers in given.values()))
        assert panel.lines[0].mean[-1] == pytest.approx((0.5, 0.5, 0.7)[at % 3])
        assert [one.value for one in panel.references] == [(0.3, 0.6, 1.1)[at % 3]]
        assert panel.title.endswith((": the right token", ": the noise token", ": the loss")[at % 3])
    assert against.lines[0].x == (0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1)
    assert against.lines[0].mean == pytest.approx((0.03, 0.1, 0.44, 0.58, 0.44, 0.44, 0.44, 0.5))
    assert against.lines[1].mean == pytest.approx((0.02, 0.15, 0.45, 0.4, 0.45, 0.45, 0.45, 0.5))
    rows = {row[:3]: row[3:] for row in analysis.tables[0].rows}
    assert rows["mlp", "linear", "without F₂"] == pytest.approx(THEN_LINEAR["without F2"])
    assert rows["linear", "mlp", "without F₁"] == pytest.approx(THEN_MLP["without F1"])
    assert rows["none", "none", "ρ = 0.01"] == pytest.approx(NEITHER["rho=0.01"])


def test_a_gain_that_is_not_a_number_is_not_measured():
    nothing = {edit: (float("nan"),) * 3 for edit in ("none", "without F1", "without F2")}
    for choices in ((BOTH, nothing, THEN_MLP, NEITHER), (nothing, THEN_LINEAR, THEN_MLP, NEITHER)):
        assert verdicts_of(STUDY, see(runs(*choices)))["none-less"] == "not measured"
