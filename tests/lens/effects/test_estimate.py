"""Patches estimated from one gradient, beside exact patches, scores of units and slopes."""

import pytest
import torch
from torch import nn

from anchorlab.errors import SpecError
from anchorlab.lens import Intervention, Operand, estimate_patches, look, patch, score_units
from tests.lens.scoring import linear
from tests.lens.scoring.reference import FORMS, difference, drawn, pairs

LINEAR = linear.CLEAN, linear.CORRUPTED, linear.RIGHT, linear.WRONG


@pytest.mark.parametrize("over", ["position", ("position", "head"), ()])
@pytest.mark.parametrize("into", ["clean", "corrupted"])
def test_is_exact_on_a_linear_model(over, into):
    members = linear.linear_members()
    found, real = (one(members, *LINEAR, over=over, into=into, progress=False) for one in (estimate_patches, patch))
    assert (found.sites, found.over) == (real.sites, real.over)
    for name in ("difference", "clean", "corrupted"):
        torch.testing.assert_close(getattr(found, name), getattr(real, name), atol=1e-5, rtol=0)
    assert (found.difference.flatten(1).std(dim=1) > 0.1).all() or not over


@pytest.mark.parametrize("form", ["post", "pre", "linear"])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_heads_add_up_to_the_scores_of_units(form, batch_size):
    ensemble, (clean, corrupted, *answers) = drawn(FORMS[form]), pairs()
    given = {"into": "clean", "batch_size": batch_size, "progress": False}
    by_head = estimate_patches(ensemble, clean, corrupted, *answers, over="head", **given)
    scores = score_units(ensemble, clean, corrupted, *answers)
    heads = scores.of([f"{layer}.{head}" for layer in range(2) for head in range(2)])
    # both count the change of the clean run, and units what it takes away
    change = (by_head.difference - by_head.clean[:, None, None]).flatten(1)
    torch.testing.assert_close(change.abs(), heads.double().abs(), atol=1e-6, rtol=0)
    by_both = estimate_patches(ensemble, clean, corrupted, *answers, over=("position", "head"), **given)
    both = by_both.difference - by_both.clean[:, None, None, None]
    torch.testing.assert_close(both.sum(dim=2).flatten(1), change, atol=1e-9, rtol=0)


@pytest.mark.parametrize("site", ["blocks.0.hook_resid_mid", "blocks.1.attn.hook_pattern", "blocks.0.mlp.hook_post"])
def test_is_the_slope_of_the_metric(site):
    """Beside runs whose value at the site lies a little nearer to the other run's."""
    ensemble, (clean, corrupted, *answers) = drawn(FORMS["pre"]), pairs()
    own, other = (look(ensemble, one, [site]) for one in (corrupted, clean))
    step = 1e-5
    change = Operand(values=step * (other[site] - own[site]), axes=own.axes(site))
    nearer = Intervention(site=site, rule="add", operand=change)
    outputs = [look(ensemble, corrupted, interventions=one)["output"] for one in ((), nearer)]
    for member in range(2):
        before, after = (difference(output[member], *answers) for output in outputs)
        found = estimate_patches(ensemble, clean, corrupted, *answers, site=site, over=(), progress=False)
        slope = float(after - before) / step
        assert float(found.difference[member, 0] - found.corrupted[member]) == pytest.approx(slope, rel=1e-3)
        assert abs(slope) > 1e-3


def test_any_module_with_axes_and_what_does_not_fit():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 6), nn.Linear(6, 5))
    clean, corrupted, answers, others = torch.randint(0, 5, (4, 3, 2)).unbind()
    given = {"axes": {"1": ("batch", "position", "hidden")}, "site": "1", "positions": [0, 1], "progress": False}
    both = (
        one(module, clean, corrupted, answers, 4 - others, over="hidden", **given) for one in (estimate_patches, patch)
    )
    torch.testing.assert_close(*(one.difference for one in both), atol=1e-6, rtol=0)
    module[1].bias.data += torch.nan
    assert estimate_patches(module, clean, corrupted, answers, 4 - others, over=(), **given).difference.isnan().all()
    with pytest.raises(SpecError, match="over"):
        estimate_patches(linear.linear_members(), *LINEAR, over="hidden")
    with pytest.raises(SpecError, match="batch_size"):
        estimate_patches(linear.linear_members(), *LINEAR, batch_size=0)
