"""Noise on embeddings and moves of weights, on models whose answers to them have closed forms."""

from math import erf, sqrt

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

from anchorlab.models.block import STREAM
from anchorlab.models.sites import Site, identity_tap
from anchorlab.papers.anchor.perturbed import directions, kept_under_noise, moved, rise_in_loss
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble


class Sign(nn.Module):
    """Token 0 is embedded at -`scale`, token 1 at `scale`; the logits of both are -`slope` x and `slope` x."""

    def __init__(self) -> None:
        super().__init__()
        self.sites = {"hook_embed": Site("hook_embed", STREAM)}
        self.scale, self.slope = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def forward(self, inputs, tap=identity_tap):
        x = tap("hook_embed", (2.0 * inputs[..., None] - 1) * self.scale)
        return torch.cat([-x, x], dim=-1) * self.slope


def signs(scale: list[float], slope: list[float]) -> Ensemble:
    weights = {"scale": torch.tensor(scale)[:, None], "slope": torch.tensor(slope)[:, None]}
    return Ensemble(Sign(), weights, ("scale", "slope"))


def repeat_last(n: int) -> Batch:
    """Sequences of two tokens whose answer is the last one."""
    inputs = torch.randint(0, 2, (n, 2), generator=torch.Generator().manual_seed(0))
    return Batch(inputs, inputs[:, 1:], inputs[:, 1:], torch.tensor([1]), "train")


def test_noise_turns_the_sign_as_often_as_the_normal_distribution_says():
    strengths, n = (0.5, 1.0, 2.0), 20_000
    kept = kept_under_noise(signs([1.0, 7.0, 1.0], [1.0, 0.1, -1.0]), repeat_last(n), strengths)
    for strength, (unit, larger, wrong) in zip(strengths, kept, strict=True):
        below = (1 + erf(1 / strength / sqrt(2))) / 2  # a standard normal number stays below 1 / strength
        assert unit == pytest.approx(below, abs=5 * sqrt(below * (1 - below) / n))
        assert larger == pytest.approx(float(unit))  # the noise is relative to the embeddings
        assert wrong.isnan()  # this member answers nothing rightly


def test_only_right_answers_are_counted():
    """An answer that noise happens to put right does not count."""
    one = repeat_last(4000)
    some = one.answers.clone()
    some[:1000] = 1 - some[:1000]  # the model is wrong about these
    mixed = Batch(one.inputs, some, some, one.positions, "train")
    (kept,) = kept_under_noise(signs([1.0], [1.0]), mixed, [1.0])
    assert float(kept) == pytest.approx(0.8413, abs=0.03)


def test_the_loss_rises_by_the_mean_of_both_ways():
    """Both weights move by the same share, each its own way; the logits' distance is their product."""
    ensemble, r = signs([1.0, 2.0], [1.0, -0.5]), 0.3
    product = 2 * ensemble.weights["scale"][:, 0] * ensemble.weights["slope"][:, 0]
    together = (softplus(-product * (1 + r) ** 2) + softplus(-product * (1 - r) ** 2)) / 2
    apart = softplus(-product * (1 - r * r))
    before = softplus(-product)
    (rise,) = rise_in_loss(ensemble, repeat_last(8), [r])
    # each of the four directions moves them together or apart, the same way for both members
    shares = (rise - (apart - before)) / (together - apart)
    assert shares[0] == pytest.approx(float(shares[1]), abs=1e-4)
    assert float(shares[0]) * 4 == pytest.approx(round(float(shares[0]) * 4), abs=1e-3)
    assert 0 <= round(float(shares[0]) * 4) <= 4


def test_every_weight_moves_by_its_share_of_the_norm_and_nothing_else_moves():
    generator = torch.Generator().manual_seed(1)
    weights = {"matrix": torch.randn(2, 30, 40, generator=generator), "bias": torch.zeros(2, 5), "fixed": torch.ones(2)}
    ensemble = Ensemble(Sign(), weights, ("matrix", "bias"))
    there, back = (moved(ensemble, size, directions(ensemble, 0)).weights for size in (0.2, -0.2))
    change = there["matrix"] - weights["matrix"]
    for member in range(2):
        assert float(change[member].norm() / weights["matrix"][member].norm()) == pytest.approx(0.2)
    torch.testing.assert_close(back["matrix"] - weights["matrix"], -change)
    assert torch.equal(there["bias"], weights["bias"]) and there["fixed"] is weights["fixed"]
    units = [one / one.norm() for one in change]
    torch.testing.assert_close(units[0], units[1], atol=1e-5, rtol=1e-4)  # one direction for all members
    other = moved(ensemble, 0.2, directions(ensemble, 1)).weights["matrix"] - weights["matrix"]
    assert abs(float((other[0] / other[0].norm() * units[0]).sum())) < 0.15
