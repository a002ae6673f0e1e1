import math

import pytest
import torch

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Record, condensation, cosine_similarity, head_similarity, look, similarity
from tests.lens.hand_built import INPUTS, LENGTH, PATTERN_0


def test_cosine_of_known_angles():
    rows = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    columns = torch.tensor([[1.0, 1.0], [0.0, 3.0], [-1.0, 0.0]])
    expected = torch.tensor([[0.5**0.5, 0.0, -1.0], [0.0, 0.0, 0.0]])
    assert torch.allclose(cosine_similarity(rows, columns), expected)


def test_equal_heads_are_alike():
    pattern = torch.eye(3).expand(2, 4, 3, 3)
    assert head_similarity(pattern).item() == pytest.approx(1)


def test_three_heads_by_hand():
    shift, stay = torch.eye(3).roll(-1, dims=1), torch.eye(3)
    pattern = torch.stack([stay, stay, shift]).unsqueeze(0)
    assert head_similarity(pattern).item() == pytest.approx(1 / 3)  # one pair of three is alike, the others orthogonal


def test_members_are_kept_apart():
    pattern = torch.stack([torch.eye(2), torch.eye(2).flip(0)])
    both = torch.stack([pattern[[0, 0]], pattern]).unsqueeze(1)
    assert head_similarity(both).tolist() == pytest.approx([1, 0])


def test_single_head():
    with pytest.raises(SpecError, match="a single head"):
        head_similarity(torch.ones(1, 1, 2, 2))


def test_neurons_of_one_line_are_condensed_whatever_their_sign_and_size():
    direction = torch.tensor([1.0, -2.0, 2.0])
    weights = direction.unsqueeze(-1) * torch.tensor([1.0, -3.0, 0.1])
    assert condensation(weights).item() == pytest.approx(1)


def test_pairs_of_neurons_count_by_their_norms():
    # Along x: 3 and 1; along y: 2. The pairs: |cos| 1 with weight 3, 0 with weight 6, 0 with weight 2.
    weights = torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    assert condensation(weights).item() == pytest.approx(3 / 11)
    assert condensation(torch.eye(4).expand(2, 4, 4)).tolist() == [0, 0]


def test_random_neurons_are_as_condensed_as_the_law_says():
    weights = torch.randn(300, 500, generator=torch.Generator().manual_seed(0))
    assert condensation(weights).item() == pytest.approx((2 / (math.pi * 300)) ** 0.5, rel=0.02)


def test_single_neuron():
    with pytest.raises(SpecError, match="a single neuron"):
        condensation(torch.ones(3, 1))


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

    def test_heads_of_the_solver(self, solver):
        """Shift by 1, shift by 2, uniform: what has nothing to attend to that far before is uniform too."""
        found = similarity(look(solver, INPUTS, PATTERN_0), PATTERN_0, between="head", along=("query", "key"))
        harmonic = sum(1 / (query + 1) for query in range(LENGTH))  # the uniform head's squared norm
        squares = (LENGTH, LENGTH - 0.5, harmonic)
        # shifts by 1 and 2 meet in row 0, and by half in row 1; a shift meets the uniform head in every row
        dots = {(0, 1): 1.5, (0, 2): harmonic, (1, 2): harmonic}
        expected = torch.eye(3)
        for (one, other), dot in dots.items():
            expected[one, other] = expected[other, one] = dot / (squares[one] * squares[other]) ** 0.5
        assert torch.allclose(found, expected.expand(1, 6, 3, 3), atol=1e-5)

    def test_neurons_by_what_they_do(self):
        # three neurons over two sequences of two positions: the second does the same, the third the opposite or nothing
        first = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
        third = torch.tensor([[-1.0, -2.0], [0.0, 0.0]])
        values = torch.stack([first, 2 * first, third], dim=-1).unsqueeze(0)
        record = record_of(post=(values, ("member", "batch", "position", "hidden")))
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
