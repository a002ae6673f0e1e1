"""In-context regression: estimators against numpy, and every claim on models whose predictions are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from anchorlab.papers.classics import in_context_regression as of
from anchorlab.tasks import LinearRegression
from anchorlab.training.ensemble import Ensemble
from tests.papers.hand_made_runs import HandMadeRun, seen_by_hand, values_of, verdicts_of

TASK = LinearRegression(dimension=3, examples=8, noise=0.5)
SETTING = replace(of.QUICK, dimension=3, examples=8, noise=0.5, seeds=2)


def pairs(inputs):
    """The points and values of sequences with 3 coordinates."""
    values = inputs.double().numpy()
    return values[:, 0::2, :3], values[:, 1::2, 3]


def fitted(inputs, fit):
    """What weights `fit(points, values)` give at every point, from the pairs before it: 0 from none."""
    x, y = pairs(inputs)
    found = np.zeros_like(y)
    for count in range(1, y.shape[1]):
        found[:, count] = np.einsum("nd,nd->n", fit(x[:, :count], y[:, :count]), x[:, count])
    return torch.from_numpy(found).float()


def least_squares(x, y):
    return np.stack([np.linalg.lstsq(*both, rcond=None)[0] for both in zip(x, y, strict=True)])


def ridge(penalty):
    def fit(x, y):
        across = x.transpose(0, 2, 1)
        return np.linalg.solve(across @ x + penalty * np.eye(3), across @ y[..., None])[..., 0]

    return fit


def averaging(x, y):
    return (x * y[..., None]).mean(axis=1)


class Estimator(nn.Module):
    """A member for each estimator: at every point its prediction, at every value a number that nobody reads."""

    def __init__(self, fits):
        super().__init__()
        self.fits = fits
        self.register_buffer("member", torch.tensor(0))

    def forward(self, inputs):
        outputs = torch.full((*inputs.shape[:2], 1), 77.0)
        outputs[:, 0::2, 0] = fitted(inputs, self.fits[int(self.member)])
        return outputs


def runs(exact, noisy):
    """Both runs, with an estimator for each member."""
    along = {("test", "loss"): [[1.0, 0.5]] * 2}
    made = []
    for one, fits in zip(of.experiments(SETTING).values(), (exact, noisy), strict=True):
        ensemble = Ensemble(Estimator(fits), {"member": torch.arange(2)}, ())
        made.append(HandMadeRun(one, (0, 10), along, {10: ensemble}))
    return made


def test_estimators_against_numpy():
    inputs = TASK.sample("test", 50, 3).inputs
    found = of.baselines(TASK, inputs)
    assert list(found) == [of.LEAST_SQUARES, of.RIDGE, of.AVERAGING]
    for name, fit, close in (
        (of.LEAST_SQUARES, least_squares, 1e-3),
        (of.RIDGE, ridge(3 * 0.25), 1e-5),  # d noise²
        (of.AVERAGING, averaging, 1e-5),
    ):
        torch.testing.assert_close(found[name], fitted(inputs, fit), rtol=close, atol=close)
    without_noise = of.baselines(TASK.replace(noise=0.0), inputs)
    assert torch.equal(without_noise[of.RIDGE], without_noise[of.LEAST_SQUARES])


def test_errors_of_known_estimators():
    """Least squares and averaging on exact values, ridge and least squares on noisy ones."""
    seen = of.STUDY.see(runs([least_squares, averaging], [ridge(0.75), least_squares]), SETTING)
    assert seen.dimension == 3 and seen.exact.shape == seen.noisy.shape == seen.moved.shape == (2, 8)
    np.testing.assert_allclose(seen.exact[0], [1, 2 / 3, 1 / 3, 0, 0, 0, 0, 0], atol=0.05)
    np.testing.assert_allclose(seen.exact[1, 1:], [4 / count for count in range(1, 8)], rtol=0.15)  # (d + 1) / k
    np.testing.assert_allclose(seen.exact[1], seen.of_exact[of.AVERAGING], rtol=1e-4)
    np.testing.assert_allclose(seen.noisy[0], seen.of_noisy[of.RIDGE], rtol=1e-4)
    np.testing.assert_allclose(seen.noisy[1], seen.of_noisy[of.LEAST_SQUARES], rtol=1e-2)
    np.testing.assert_allclose(seen.moved[0], seen.of_noisy[of.LEAST_SQUARES], rtol=1e-2)
    np.testing.assert_allclose(seen.moved[1], seen.of_noisy[of.AVERAGING], rtol=1e-4)
    # one noisy example x: w along it is known up to noise, E[x . x' noise / x²]² = noise² d E[1 / x²] / d = 1/4
    assert float(seen.of_noisy[of.LEAST_SQUARES][1]) == pytest.approx(2 / 3 + 1 / 4, rel=0.15)
    assert seen.nearer_ridge.tolist() == [1.0, 0.0]
    assert seen.of_noisy[of.LEAST_SQUARES][3] > 3 * seen.of_noisy[of.RIDGE][3]  # the peak


def test_the_optimum_agrees_and_averaging_and_least_squares_of_noise_differ():
    seen = of.STUDY.see(runs([least_squares] * 2, [ridge(0.75)] * 2), SETTING)
    assert set(verdicts_of(of.STUDY, seen).values()) == {"agrees at small scale"}
    found = verdicts_of(of.STUDY, of.STUDY.see(runs([averaging] * 2, [averaging] * 2), SETTING))
    del found["nearer-to-ridge"]  # averaging is ridge with a large penalty
    assert set(found.values()) == {"differs at small scale"}
    found = verdicts_of(of.STUDY, of.STUDY.see(runs([ridge(0.75)] * 2, [least_squares] * 2), SETTING))
    wrong = {"as-low-as-ridge", "nearer-to-ridge", "inherits-the-peak"}
    assert wrong <= {name for name, verdict in found.items() if verdict == "differs at small scale"}


def test_values_of_errors_made_by_hand():
    """Two members with 0 to 5 examples of d = 2 coordinates; in every row each claim reads another number."""
    made_by_hand = seen_by_hand(
        of.Seen,
        setting=replace(of.QUICK, dimension=2),
        exact=torch.tensor([[1.0, 0.75, 0.5, 0.25, 0.125, 0.0625], [1.125, 0.5625, 0.25, 0.125, 0.5, 0.25]]),
        noisy=torch.tensor([[1.0, 1.0, 0.75, 0.5, 0.25, 0.25], [1.0, 0.5, 0.5, 0.5, 0.5, 0.25]]),
        moved=torch.tensor([[1.0, 2.0, 3.0, 0.5, 0.25, 0.25], [9.0, 9.0, 0.25, 9.0, 9.0, 9.0]]),
        of_exact={
            of.LEAST_SQUARES: torch.tensor([1.0, 0.5, 0.0, 0.0, 0.0, 0.03125]),
            of.AVERAGING: torch.tensor([0.25, 3.0, 2.0, 1.0, 1.0, 0.25]),
        },
        of_noisy={of.RIDGE: torch.tensor([0.125, 0.5, 0.5, 0.25, 0.25, 0.125])},
        nearer_ridge=torch.tensor([0.75, 0.5]),
    )
    expected = {
        "learned": (0.125 + 0.5) / 2,
        "falls-as-least-squares": (0.25 + 0.125) / 2,  # after one example, and after none
        "fits-the-function": ((0.25 + 0.125 + 0.03125) / 3 + (0.125 + 0.5 + 0.21875) / 3) / 2,
        "below-averaging": (0.25 + 1.0) / 2,
        "as-low-as-ridge": ((2 + 1.5 + 2 + 1 + 2) / 5 + (1 + 1 + 2 + 2 + 2) / 5) / 2,
        "nearer-to-ridge": 0.625,
        "inherits-the-peak": (3 / 2 + 0.25 / 9) / 2,
    }
    assert values_of(of.STUDY, made_by_hand) == pytest.approx(expected)


def test_experiments_differ_in_noise_alone_and_what_is_drawn():
    exact, noisy = of.experiments(of.QUICK).values()
    assert (exact.task.noise, noisy.task.noise) == (0.0, of.QUICK.noise)
    assert noisy.task.replace(noise=0.0) == exact.task and exact.members == noisy.members
    assert (exact.model, exact.recipe) == (noisy.model, noisy.recipe)
    assert of.QUICK.examples > 2 * of.QUICK.dimension
    shown = of.STUDY.analysis(runs([least_squares] * 2, [ridge(0.75)] * 2), SETTING)
    clean, noised, along = shown.figures
    assert [one.label for one in clean.lines] == ["transformer", of.LEAST_SQUARES, of.AVERAGING]
    assert [one.label for one in noised.lines] == ["transformer", "trained on exact values", of.RIDGE, of.LEAST_SQUARES]
    assert list(clean.lines[0].x) == list(range(8)) and clean.lines[0].mean[0] == pytest.approx(1, abs=0.05)
    least, noisy = (one.value for one in along.references)
    assert least == pytest.approx((1 + 2 / 3 + 1 / 3) / 8, abs=0.02) and noisy > 0.25 + 1 / 8
    assert shown.tables[0].columns[:3] == ("seed", "exact values, 3 examples", "exact values, 6 examples")
