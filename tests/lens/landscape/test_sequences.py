"""Landscapes on given sequences, beside `landscape`, interventions one by one and a sum known by hand."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import landscape, landscape_on
from anchorlab.models import DecoderSpec
from anchorlab.rng import child_seed
from anchorlab.tasks import task
from anchorlab.training.ensemble import initialise
from tests.lens.hand_built import drawn

TASK = task("anchor/identity", length=8, anchors=(3,), items=(4, 11), size=12)


@pytest.mark.parametrize("replace", ["mean", "zero"])
def test_equals_the_landscape_of_a_task(replace):
    ensemble = drawn(initialise(DecoderSpec(layers=2, heads=2, width=8, head_width=4), TASK.shape, range(2)))
    units = ("0.0", "0.mlp", "1.1")
    batch = TASK.sample("test", 6, child_seed(0, "landscape"))
    found = landscape_on(ensemble, batch.inputs, batch.targets, units, replace, batch_size=4, progress=False)
    expected = landscape(ensemble, units, replace, task=TASK, sequences=6, progress=False)
    assert found.units == expected.units
    torch.testing.assert_close(found.loss, expected.loss, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.accuracy, expected.accuracy)
    assert (found.loss.std(dim=1) > 1e-3).all()


class Sum(nn.Module):
    """Logits are the sum of three maps, one of a tuple, so that each subset has known logits."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Embedding(4, 4) for _ in range(3))

    def forward(self, tokens):
        return self.first(tokens) + self.second(tokens) + self.third(tokens)


class Unread(Sum):
    """The third map is computed, and nothing reads it."""

    def forward(self, tokens):
        self.third(tokens)
        return self.first(tokens) + self.second(tokens)


def test_submodules_of_any_module():
    torch.manual_seed(0)
    module, tokens = Sum(), torch.tensor([[0, 1], [2, 3], [1, 1]])
    targets = torch.tensor([[1, 0], [2, 2], [3, 1]])
    found = landscape_on(module, tokens, targets, ["first", "third"], "zero", positions=[0, 1], progress=False)
    parts = [one(tokens).detach() for one in (module.first, module.third)]
    for subset, kept in enumerate(([], [0], [1], [0, 1])):
        logits = module.second(tokens).detach() + sum(parts[at] for at in kept)
        expected = cross_entropy(logits.flatten(0, 1), targets.flatten())
        assert found.loss[0, subset].item() == pytest.approx(expected.item(), abs=1e-6)
        assert found.accuracy[0, subset] == pytest.approx((logits.argmax(-1) == targets).double().mean().item())
    mean = landscape_on(module, tokens, targets, ["first"], positions=[0, 1], progress=False)
    logits = module(tokens).detach() - parts[0] + parts[0].mean(dim=0)
    assert mean.loss[0, 0].item() == pytest.approx(
        cross_entropy(logits.flatten(0, 1), targets.flatten()).item(), abs=1e-6
    )


@pytest.mark.untyped  # values of other types than the annotations name
def test_what_does_not_fit():
    module, tokens = Sum(), torch.tensor([[0, 1]])
    given = {"positions": [0, 1], "progress": False}
    for targets, units, replace, message in (
        (tokens, [], "mean", "units"),
        (tokens, ["first", "first"], "mean", "units"),
        (tokens, [f"unit{at}" for at in range(17)], "mean", "subsets"),
        (tokens, ["fourth"], "mean", r"units\.0.*fourth|fourth"),
        (tokens, ["first"], "median", "replace"),
        (tokens.float(), ["first"], "mean", "no tokens"),
        ([[0, 1]], ["first"], "mean", r"^targets: have shape \(\), .*; give a tensor"),
        (torch.tensor([[0, 50]]), ["first"], "mean", r"^targets: hold 50, a token outside 0\.\."),
        # cross-entropy leaves out -100, which the accuracy counts as wrong
        (torch.tensor([[0, -100]]), ["first"], "mean", r"^targets: hold -100, a token outside 0\.\."),
    ):
        with pytest.raises((SiteError, SpecError), match=message):
            landscape_on(module, tokens, targets, units, replace, **given)
    with torch.no_grad():
        module.second.weight.fill_(torch.nan)
    with pytest.raises(SpecError, match="not finite"):
        landscape_on(module, tokens, tokens, ["first"], **given)
    with pytest.raises(SiteError, match="does not read"):
        landscape_on(Unread(), tokens, tokens, ["third"], **given)
    with pytest.raises(SpecError, match="targets"):
        landscape_on(module, tokens, tokens[:, :1], ["first"], **given)
