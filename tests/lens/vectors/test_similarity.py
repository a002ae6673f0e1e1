"""Cosines, condensation and CKA of vectors made by hand and of hand-built models."""

import math
from dataclasses import replace
from itertools import permutations

import pytest
import torch

from anchorlab.axes import TaskShape
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Record, cka, condensation, cosine_similarity, head_similarity, look, similarity
from anchorlab.models import DecoderSpec
from anchorlab.training.ensemble import initialise
from tests.lens.hand_built import INPUTS, LENGTH


def test_cosine_of_known_angles():
    rows = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    columns = torch.tensor([[1.0, 1.0], [0.0, 3.0], [-1.0, 0.0]])
    expected = torch.tensor([[0.5**0.5, 0.0, -1.0], [0.0, 0.0, 0.0]])
    assert torch.allclose(cosine_similarity(rows, columns), expected)


def test_heads_by_hand_with_members_kept_apart():
    assert head_similarity(torch.eye(3).expand(2, 4, 3, 3)).item() == pytest.approx(1)
    shift, stay = torch.eye(3).roll(-1, dims=1), torch.eye(3)
    pattern = torch.stack([stay, stay, shift]).unsqueeze(0)
    assert head_similarity(pattern).item() == pytest.approx(1 / 3)  # one pair of three is alike, the others orthogonal
    pattern = torch.stack([torch.eye(2), torch.eye(2).flip(0)])
    both = torch.stack([pattern[[0, 0]], pattern]).unsqueeze(1)
    assert head_similarity(both).tolist() == pytest.approx([1, 0])


def test_pairs_of_neurons_count_by_their_norms_and_those_of_one_line_are_condensed_whatever_their_sign_and_size():
    line = torch.tensor([1.0, -2.0, 2.0]).unsqueeze(-1) * torch.tensor([1.0, -3.0, 0.1])
    assert condensation(line).item() == pytest.approx(1)
    # Along x: 3 and 1; along y: 2. The pairs: |cos| 1 with weight 3, 0 with weight 6, 0 with weight 2.
    weights = torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    assert condensation(weights).item() == pytest.approx(3 / 11)
    assert condensation(torch.eye(4).expand(2, 4, 4)).tolist() == [0, 0]


def test_random_neurons_are_as_condensed_as_the_law_says():
    weights = torch.randn(300, 500, generator=torch.Generator().manual_seed(0))
    assert condensation(weights).item() == pytest.approx((2 / (math.pi * 300)) ** 0.5, rel=0.02)


def record_of(**sites):
    """A record made by hand, of sites given as `(values, axes)`."""
    return Record(
        {site: values for site, (values, _) in sites.items()},
        {site: axes for site, (_, axes) in sites.items()},
        torch.zeros(1, 1),
    )


class TestSimilarity:
    def test_positions_by_hand(self):
        # two members of one sequence each: right angles, and one line with a vector of length 0
        values = torch.tensor([[[[3.0, 0.0], [0.0, 1.0], [1.0, 1.0]]], [[[1.0, 2.0], [-2.0, -4.0], [0.0, 0.0]]]])
        record = record_of(stream=(values, ("member", "batch", "position", "width")))
        half = 0.5**0.5
        expected = torch.tensor([[1, 0, half], [0, 1, half], [half, half, 1]]), [[1, -1, 0], [-1, 1, 0], [0, 0, 0]]
        found = similarity(record, "stream", between="position", along="width")
        assert found.shape == (2, 1, 3, 3)
        assert torch.allclose(found[0, 0], expected[0])
        assert torch.allclose(found[1, 0], torch.tensor(expected[1], dtype=torch.float32), atol=1e-6)

    def test_neurons_by_what_they_do(self):
        # three neurons over two sequences of two positions: the second does the same, the third the opposite or nothing
        first = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
        third = torch.tensor([[-1.0, -2.0], [0.0, 0.0]])
        values = torch.stack([first, 2 * first, third], dim=-1).unsqueeze(0)
        record = record_of(post=(values, ("member", "batch", "position", "hidden")))
        longer = {"post": torch.cat([values, 7 + values], dim=2)}
        padded = replace(record, arrays=longer, inputs=torch.zeros(2, 4), lengths=torch.tensor([2, 2]))
        assert torch.equal(*(similarity(each, "post", "hidden", ("batch", "position")) for each in (record, padded)))
        found = similarity(record, "post", between="hidden", along=("batch", "position"))
        assert found.shape == (1, 3, 3)
        across = -5 / (14 * 5) ** 0.5
        assert found[0, 0].tolist() == pytest.approx([1, 1, across])
        each = similarity(record, "post", between="hidden", along=["position"])
        assert each.shape == (1, 2, 3, 3)
        assert each[0, :, 0, 2].tolist() == pytest.approx([-1, 0])

    def test_stages_of_the_solver(self, solver):
        """The first layer adds a third one-hot to the token's and the position's: 2 of sqrt(2) sqrt(3)."""
        sites = ["blocks.0.hook_resid_pre", "blocks.0.hook_attn_out", "blocks.0.hook_resid_post"]
        found = similarity(look(solver, INPUTS, sites), sites, between="stage", along="width")
        expected = torch.tensor([[1, 0, 2 / 6**0.5], [0, 1, 1 / 3**0.5], [2 / 6**0.5, 1 / 3**0.5, 1]])
        assert torch.allclose(found, expected.expand(1, 6, LENGTH, 3, 3), atol=1e-5)
        both = look(solver, INPUTS, sites, candidates={"as it is": [], "again": []})
        assert similarity(both, sites, between="stage", along="width").shape == (1, 2, 6, LENGTH, 3, 3)
        assert similarity(both, sites, between="position", along="width").shape == (1, 3, 2, 6, LENGTH, LENGTH)

    @pytest.mark.parametrize(
        ("sites", "between", "along", "error", "message"),
        [
            ("c", "position", "width", SiteError, "unknown site 'c'"),
            ("a", "stage", "width", SpecError, "between: unknown axis 'stage'"),
            ("a", "position", "widht", SpecError, "along: unknown axis 'widht'; did you mean 'width'"),
            ("a", "position", (), SpecError, "along: cannot be .*; name at least one axis other than"),
            ("a", "position", ("position",), SpecError, "along: cannot be .*; name at least one axis other than"),
            ("a", "position", ("width", "width"), SpecError, "along: cannot be .*; name at least one axis other than"),
            (["a", "b"], "stage", "width", SpecError, "sites: have 2 kinds of axes and sizes"),
            ([], "stage", "width", SpecError, "sites: name no site"),
        ],
    )
    def test_unknown_sites_and_axes_are_named(self, sites, between, along, error, message):
        axes = ("member", "batch", "position", "width")
        record = record_of(a=(torch.ones(1, 1, 2, 3), axes), b=(torch.ones(1, 1, 2, 4), axes))
        with pytest.raises(error, match=message):
            similarity(record, sites, between=between, along=along)


# CKA of vectors made by hand: invariant where it must be, and in closed form elsewhere.
GENERATOR = torch.Generator().manual_seed(0)
AXES = ("member", "batch", "position", "width")


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def rotation(width):
    return torch.linalg.qr(normal(width, width))[0]


def record_of_sites(**sites):
    """A record of the values of some sites, `[member batch position width]`."""
    first = next(iter(sites.values()))
    return Record(sites, dict.fromkeys(sites, AXES), torch.zeros(first.shape[1:3], dtype=torch.int64))


def test_is_1_under_rotation_scale_and_shift_and_in_more_dimensions():
    values = normal(1, 10, 3, 5)
    turned = -2.5 * values @ rotation(5) + normal(5)
    wider = torch.cat([values, torch.zeros(1, 10, 3, 4, dtype=torch.float64)], dim=-1) @ rotation(9)
    found = cka(record_of_sites(values=values, turned=turned, wider=wider))
    assert torch.allclose(found.values, torch.ones(1, 3, 1, 3).double())
    stretched = values * torch.tensor([9.0, 1, 1, 1, 1])
    assert (
        cka(record_of_sites(values=values, stretched=stretched)).values[0, 0, 0, 1] < 0.95
    )  # not under any linear map


def test_closed_form_of_orthogonal_directions():
    """Rows are orthogonal patterns u_i with weights a_i on one side and b_i on the other.

    Then X Xᵀ = Σ a_i² u_i u_iᵀ, so that CKA is Σ a_i² b_i² over the root of Σ a_i⁴ Σ b_i⁴: the cosine between the
    squares.
    """
    patterns = torch.tensor([[1.0, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]], dtype=torch.float64).T  # row, i
    a, b = torch.tensor([1.0, 2, 0]).double(), torch.tensor([3.0, 1, 2]).double()
    left, right = patterns * a @ rotation(3), patterns * b @ rotation(3)
    found = cka(record_of_sites(left=left[None, :, None], right=right[None, :, None]))
    cosine = (1 * 9 + 4 * 1) / ((1 + 16) * (81 + 1 + 16)) ** 0.5
    assert found.values[0, 0, 0, 1].item() == pytest.approx(cosine)
    assert found.values[0, 1, 0, 0].item() == pytest.approx(cosine)
    one, two = (patterns * torch.tensor([1, 0, 0]))[None, :, None], patterns[None, :, None, 1:2]
    alone = cka(record_of_sites(one=one), record_of_sites(two=two))
    assert alone.values.item() == pytest.approx(0, abs=1e-12)


def test_chance_is_the_mean_over_all_orders_of_the_rows():
    left, right = normal(1, 5, 1, 3), normal(1, 5, 1, 2) + 4
    reordered = [right[:, list(order)] for order in permutations(range(5))]
    orders = torch.stack([cka(record_of_sites(a=left), record_of_sites(b=other)).values for other in reordered])
    assert cka(record_of_sites(a=left), record_of_sites(b=right)).chance.item() == pytest.approx(orders.mean().item())
    wide = cka(record_of_sites(a=normal(1, 6, 1, 200), b=normal(1, 6, 1, 200)))
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
    found = cka(record_of_sites(values=normal(1, 10, 3, 4), still=still)).values[0, :, 0]
    assert found.isnan().tolist() == [[False, True], [True, True]]


ONE = initialise(DecoderSpec(layers=1, heads=2, width=8, head_width=4, hidden=9), TaskShape("tokens", 6, 11, 11), [0])
SOME = torch.zeros(4, 6, dtype=torch.int64)
REFUSED = [
    (lambda: head_similarity(torch.ones(1, 1, 2, 2)), "a single head"),
    (lambda: condensation(torch.ones(3, 1)), "a single neuron"),
    (lambda: cka(look(ONE, SOME, "blocks.0.attn.hook_pattern")),
     r"record: has sites of \[4, 24\] rows; record sites with positions"),
    (lambda: cka(look(ONE, SOME, candidates={"plain": []})), r"record: has candidates; choose one"),
    (lambda: cka(look(ONE, SOME)).layers(0, 1), "other_member: there is no member 1; choose one from 0 to 0"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_has_no_similarity_is_named(ask, message):
    with pytest.raises(SpecError, match=message):
        ask()
