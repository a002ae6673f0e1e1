"""CKA of vectors made by hand: invariant where it must be, and in closed form elsewhere."""

from itertools import permutations

import pytest
import torch

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.lens import Record, cka, look
from anchorlab.models import DecoderSpec
from anchorlab.training.ensemble import initialise

GENERATOR = torch.Generator().manual_seed(0)
AXES = ("member", "batch", "position", "width")


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def rotation(width):
    return torch.linalg.qr(normal(width, width))[0]


def record(**sites):
    """A record of the values of some sites, `[member batch position width]`."""
    first = next(iter(sites.values()))
    return Record(sites, dict.fromkeys(sites, AXES), torch.zeros(first.shape[1:3], dtype=torch.int64))


def test_is_1_under_rotation_scale_and_shift_and_in_more_dimensions():
    values = normal(1, 10, 3, 5)
    turned = -2.5 * values @ rotation(5) + normal(5)
    wider = torch.cat([values, torch.zeros(1, 10, 3, 4, dtype=torch.float64)], dim=-1) @ rotation(9)
    found = cka(record(values=values, turned=turned, wider=wider))
    assert torch.allclose(found.values, torch.ones(1, 3, 1, 3).double())
    stretched = values * torch.tensor([9.0, 1, 1, 1, 1])
    assert cka(record(values=values, stretched=stretched)).values[0, 0, 0, 1] < 0.95  # not under any linear map


def test_closed_form_of_orthogonal_directions():
    """Rows are orthogonal patterns u_i with weights a_i on one side and b_i on the other.

    Then X Xᵀ = Σ a_i² u_i u_iᵀ, so that CKA is Σ a_i² b_i² over the root of Σ a_i⁴ Σ b_i⁴: the cosine between the
    squares.
    """
    patterns = torch.tensor([[1.0, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]], dtype=torch.float64).T  # row, i
    a, b = torch.tensor([1.0, 2, 0]).double(), torch.tensor([3.0, 1, 2]).double()
    left, right = patterns * a @ rotation(3), patterns * b @ rotation(3)
    found = cka(record(left=left[None, :, None], right=right[None, :, None]))
    cosine = (1 * 9 + 4 * 1) / ((1 + 16) * (81 + 1 + 16)) ** 0.5
    assert found.values[0, 0, 0, 1].item() == pytest.approx(cosine)
    assert found.values[0, 1, 0, 0].item() == pytest.approx(cosine)
    one, two = (patterns * torch.tensor([1, 0, 0]))[None, :, None], patterns[None, :, None, 1:2]
    alone = cka(record(one=one), record(two=two))
    assert alone.values.item() == pytest.approx(0, abs=1e-12)


def test_chance_is_the_mean_over_all_orders_of_the_rows():
    left, right = normal(1, 5, 1, 3), normal(1, 5, 1, 2) + 4
    reordered = [right[:, list(order)] for order in permutations(range(5))]
    orders = torch.stack([cka(record(a=left), record(b=other)).values for other in reordered])
    assert cka(record(a=left), record(b=right)).chance.item() == pytest.approx(orders.mean().item())
    wide = cka(record(a=normal(1, 6, 1, 200), b=normal(1, 6, 1, 200)))
    assert wide.chance[0, 0, 0, 1] > 0.9  # few rows of large width are alike by accident
    assert abs(wide.values[0, 0, 0, 1] - wide.chance[0, 0, 0, 1]) < 0.05


def test_members_sites_and_two_models():
    shape = TaskShape("tokens", 6, 11, 11)
    inputs = torch.randint(0, 11, (20, 6), generator=GENERATOR)
    spec = DecoderSpec(layers=2, heads=2, width=8, head_width=4, hidden=9)
    ensemble = initialise(spec, shape, [0, 1, 2])
    sites = ["hook_embed", "blocks.*.hook_resid_post", "blocks.1.attn.hook_z"]
    seen = look(ensemble, inputs, sites)
    found = cka(seen)
    assert found.sites == tuple(seen) and "output" in found.sites
    assert found.values.shape == (3, 5, 3, 5)
    assert torch.allclose(found.values, found.values.permute(2, 3, 0, 1))
    assert torch.allclose(found.values.flatten(0, 1).flatten(1).diagonal(), torch.ones(15).double())
    left = seen["blocks.1.attn.hook_z"][2].flatten(2).flatten(0, 1).double()
    right = seen["hook_embed"][1].flatten(0, 1).double()
    left, right = left - left.mean(dim=0), right - right.mean(dim=0)
    product = torch.trace(left @ left.T @ right @ right.T)  # by kernels, not by features
    expected = product / torch.linalg.norm(left @ left.T) / torch.linalg.norm(right @ right.T)
    at = {site: place for place, site in enumerate(found.sites)}
    assert found.layers(2, 1)[at["blocks.1.attn.hook_z"], at["hook_embed"]].item() == pytest.approx(expected.item())
    other = look(ensemble.select([1]), inputs, "hook_embed", output=False)
    assert torch.allclose(cka(seen, other).values[:, :, 0, 0], found.values[:, :, 1, at["hook_embed"]])
    table = found.table
    assert table.columns == ["member", "site", "other_member", "other_site", "cka", "chance"]
    assert table.row(-1)[:4] == (2, found.sites[-1], 2, found.sites[-1]) and table.height == 225


def test_values_that_do_not_vary_have_none():
    still = torch.full((1, 10, 3, 4), 0.1, dtype=torch.float64)
    found = cka(record(values=normal(1, 10, 3, 4), still=still)).values[0, :, 0]
    assert found.isnan().tolist() == [[False, True], [True, True]]


def test_errors_name_the_remedy():
    shape = TaskShape("tokens", 6, 11, 11)
    ensemble = initialise(DecoderSpec(layers=1, heads=2, width=8, head_width=4, hidden=9), shape, [0])
    inputs = torch.zeros(4, 6, dtype=torch.int64)
    with pytest.raises(SpecError, match=r"record: has sites of \[4, 24\] rows; record sites with positions"):
        cka(look(ensemble, inputs, "blocks.0.attn.hook_pattern"))
    with pytest.raises(SpecError, match=r"record: has candidates; choose one"):
        cka(look(ensemble, inputs, candidates={"plain": []}))
    with pytest.raises(SpecError, match="other_member: there is no member 1; choose one from 0 to 0"):
        cka(look(ensemble, inputs)).layers(0, 1)
