"""Weight edits against matrices whose singular values are known."""

import numpy as np
import pytest
import torch
from torch.func import functional_call

from anchorlab.errors import SpecError
from anchorlab.models import Quantise, Remove, Truncate, apply_each, apply_edits, check_edits
from tests.models.small_models import DECODER, RECALL, SMALL, VECTOR, drawn, inputs_of


def stacked(spec, members=2):
    drawn_members = [dict(drawn(spec, seed).named_parameters()) for seed in range(members)]
    return {name: torch.stack([member[name].detach() for member in drawn_members]) for name in drawn_members[0]}


def output(spec, weights, member=0):
    return functional_call(drawn(spec), {name: value[member] for name, value in weights.items()}, (inputs_of(spec),))


def known_matrix(values, rows, columns, seed):
    """A matrix with the singular values given, and the vectors that belong to them."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((rows, len(values))))[0]
    right = np.linalg.qr(rng.standard_normal((columns, len(values))))[0]
    return torch.from_numpy(left * values @ right.T), torch.from_numpy(left), torch.from_numpy(right)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_truncation_keeps_the_largest_singular_values_of_each_member(rank):
    values = np.array([[5.0, 3.0, 1.0], [9.0, 2.0, 0.5]])
    made = [known_matrix(values[member], 4, 3, member) for member in range(2)]
    weights = {"W": torch.stack([matrix for matrix, _, _ in made])}
    edited = apply_edits(weights, [Truncate(weight="W", rank=rank)])["W"]
    for member, (_, left, right) in enumerate(made):
        expected = (left[:, :rank] * torch.from_numpy(values[member, :rank])) @ right[:, :rank].T
        torch.testing.assert_close(edited[member], expected)


@pytest.mark.parametrize(("skip", "rank"), [(1, 1), (1, 2), (2, 1), (0, 2), (3, 0)])
def test_components_behind_the_largest_are_kept_a_band_or_all_the_smallest(skip, rank):
    values = np.array([5.0, 3.0, 1.0])
    matrix, left, right = known_matrix(values, 4, 3, seed=0)
    cut, kept = Truncate(weight="W", rank=rank, skip=skip), slice(skip, skip + rank)
    edited = apply_edits({"W": matrix[None]}, [cut])["W"][0]
    torch.testing.assert_close(edited, left[:, kept] * torch.from_numpy(values[kept]) @ right[:, kept].T)
    # of a product, too
    first, second = known_matrix([2.0, 2.0, 2.0], 4, 3, seed=1), known_matrix([4.0, 2.0, 1.0], 3, 3, seed=2)
    product = apply_edits({"A": first[0][None], "B": second[0][None]}, [cut.replace(weight="A @ B")])
    expected = np.linalg.svd((first[0] @ second[0]).numpy())
    found = np.linalg.svd((product["A"][0] @ product["B"][0]).numpy(), compute_uv=False)
    np.testing.assert_allclose(found, [*expected.S[kept], *[0.0] * (3 - rank)], atol=1e-12)


def test_more_components_of_a_product_may_be_kept_than_fit_between_its_factors():
    first, second = known_matrix([3.0, 2.0], 5, 2, seed=0)[0], known_matrix([4.0, 1.0], 2, 6, seed=1)[0]
    weights, cut = {"A": first[None], "B": second[None]}, Truncate(weight="A @ B", rank=4, skip=1)
    edited = apply_edits(weights, [cut])
    exact = np.linalg.svd((first @ second).numpy())
    np.testing.assert_allclose(
        (edited["A"] @ edited["B"])[0], exact.S[1] * np.outer(exact.U[:, 1], exact.Vh[1]), atol=1e-12
    )


def test_what_skips_no_component_is_written_as_before_and_too_many_are_refused():
    assert Truncate(weight="W", rank=2).model_dump() == {
        "kind": "truncate", "weight": "W", "fraction": None, "rank": 2,
    }  # fmt: skip
    assert Truncate.model_validate(Truncate(weight="W", rank=1, skip=2).model_dump()).skip == 2
    with pytest.raises(SpecError, match="2 behind 2 is above the full rank of 'W', 3; use at most 1"):
        apply_edits({"W": torch.eye(3)[None]}, [Truncate(weight="W", rank=2, skip=2)])


@pytest.mark.parametrize(("fraction", "full", "rank"), [(0.29, 100, 29), (0.05, 19, 0), (0.5, 5, 2), (0.99, 10, 9)])
def test_a_fraction_keeps_the_floor_of_its_part_of_the_full_rank(fraction, full, rank):
    weights = {"W": torch.randn(1, full, full + 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))}
    edited = apply_edits(weights, [Truncate(weight="W", fraction=fraction)])["W"][0]
    assert int(torch.linalg.matrix_rank(edited)) == rank


@pytest.mark.parametrize(("first", "second", "rank"), [((8, 4), (4, 6), 3), ((8, 8), (8, 4), 2)])
def test_a_fraction_of_a_product_is_of_the_smaller_of_its_own_sides(first, second, rank):
    draw = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(1, *size, dtype=torch.float64, generator=draw) for name, size in (("A", first), ("B", second))
    }
    edited = apply_edits(weights, [Truncate(weight="A @ B", fraction=0.5)])
    assert int(torch.linalg.matrix_rank(edited["A"][0] @ edited["B"][0])) == rank


def test_the_whole_fraction_is_the_same_bytes_none_is_zero_and_half_precision_stays():
    weights = stacked(RECALL)
    name = "blocks.1.mlp.W_in"
    assert apply_edits(weights, [Truncate(weight=name, fraction=1.0)])[name] is weights[name]
    assert not apply_edits(weights, [Truncate(weight=name, fraction=0.0)])[name].any()
    weights = {"W": torch.eye(4).bfloat16()[None]}
    edited = apply_edits(weights, [Truncate(weight="W", rank=2)])["W"]
    assert edited.dtype == torch.bfloat16
    assert int(torch.linalg.matrix_rank(edited[0].float())) == 2


def test_variants_together_are_variants_alone_and_a_matrix_is_decomposed_once(monkeypatch):
    weights = stacked(RECALL)
    before = {name: value.clone() for name, value in weights.items()}
    name = "blocks.1.mlp.W_in"
    variants = [
        [Truncate(weight=name, rank=2)], [], [Truncate(weight=name, rank=4), Truncate(weight=name, rank=1)],
        [Remove(weight="blocks.0.mlp"), Truncate(weight=name, rank=3)],
    ]  # fmt: skip
    for together, edits in zip(apply_each(weights, variants), variants, strict=True):
        alone = apply_edits(weights, edits)
        assert all(torch.equal(together[each], alone[each]) for each in weights)
    assert all(torch.equal(weights[each], before[each]) for each in weights)
    calls, svd = [], torch.linalg.svd
    monkeypatch.setattr(torch.linalg, "svd", lambda *a, **k: (calls.append(1), svd(*a, **k))[1])
    apply_each(stacked(RECALL), [[Truncate(weight="blocks.1.mlp.W_in", rank=rank)] for rank in range(1, 6)])
    assert len(calls) == 1


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_a_product_is_truncated_through_its_factors(rank):
    """Of a 5 x 4 x 6 product of rank 4 the three largest singular values are known."""
    rng = np.random.default_rng(0)
    made = [
        known_matrix(np.array(values), 5, 6, seed) for seed, values in enumerate([[4.0, 2.0, 1.0], [8.0, 3.0, 0.1]])
    ]
    inner = [np.linalg.qr(rng.standard_normal((4, 4)))[0][:, :3] for _ in made]
    values = [torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64), torch.tensor([8.0, 3.0, 0.1], dtype=torch.float64)]
    first = [
        left * value @ torch.from_numpy(turn).T for (_, left, _), value, turn in zip(made, values, inner, strict=True)
    ]
    second = [torch.from_numpy(turn) @ right.T for (_, _, right), turn in zip(made, inner, strict=True)]
    weights = {"A": torch.stack(first), "B": torch.stack(second)}
    torch.testing.assert_close(weights["A"] @ weights["B"], torch.stack([matrix for matrix, _, _ in made]))
    edited = apply_edits(weights, [Truncate(weight="A @ B", rank=rank)])
    assert edited["A"].shape == (2, 5, 4) and edited["B"].shape == (2, 4, 6)
    for member, (_, left, right) in enumerate(made):
        expected = (left[:, :rank] * values[member][:rank]) @ right[:, :rank].T
        torch.testing.assert_close(edited["A"][member] @ edited["B"][member], expected)


def test_a_product_of_full_rank_is_left():
    weights = {"A": torch.ones(1, 5, 4), "B": torch.ones(1, 4, 6)}
    whole = apply_edits(weights, [Truncate(weight="A @ B", fraction=1.0)])
    assert whole["A"] is weights["A"] and whole["B"] is weights["B"]
    assert apply_edits(weights, [Truncate(weight="A@B", rank=4)])["A"] is weights["A"]  # no rank is lost


@pytest.mark.parametrize("weight", ["a", "a @ b"])
def test_a_member_that_has_diverged_spoils_no_other(weight):
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(3, 4, 4, generator=generator) for name in "ab"}
    alone = apply_edits({name: value[:1] for name, value in weights.items()}, [Truncate(weight=weight, rank=2)])
    weights["a"][1, 2, 3] = torch.nan
    weights["a"][2, 0, 0] = torch.inf
    edited = apply_edits(weights, [Truncate(weight=weight, rank=2)])
    product = edited["a"] @ edited["b"] if "@" in weight else edited["a"]
    expected = alone["a"] @ alone["b"] if "@" in weight else alone["a"]
    torch.testing.assert_close(product[:1], expected)
    assert product[1:].isnan().all()


@pytest.mark.parametrize("name", [name for name in SMALL if "no-feed-forward" not in name and "none" not in name])
@pytest.mark.parametrize("part", ["attn", "mlp"])
def test_a_removed_layer_writes_nothing(name, part):
    spec = SMALL[name]
    weights = stacked(spec)
    if not any(key.startswith(f"blocks.0.{part}") for key in weights):
        return
    edited = apply_edits(weights, [Remove(weight=f"blocks.0.{part}")])
    inputs, member = inputs_of(spec), {key: value[1] for key, value in weights.items()}
    written = f"blocks.0.hook_{part}_out"

    def silenced(site, value):
        return torch.zeros_like(value) if site == written else value

    expected = functional_call(drawn(spec), member, (inputs,), {"tap": silenced})
    assert not torch.allclose(expected, output(spec, weights, member=1))
    torch.testing.assert_close(output(spec, edited, member=1), expected)


@pytest.mark.parametrize("spec", [DECODER, VECTOR], ids=lambda spec: spec.kind)
def test_a_removed_block_lets_the_stream_pass(spec):
    edited = apply_edits(stacked(spec), [Remove(weight="blocks.0")])
    kept = {name for name, value in edited.items() if name.startswith("blocks.0.") and value.any()}
    assert kept == {f"blocks.0.ln{norm}.{part}" for norm in (1, 2) for part in "wb"}
    assert not torch.allclose(output(spec, edited)[0], output(spec, edited)[1])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Truncate(weight="blocks.1.mlp.W_i", rank=1),
         r"weight: unknown weight .*did you mean 'blocks\.1\.mlp\.W_in'\?"),
        (Truncate(weight="blocks.0.ln1.w", rank=0), "not a matrix"),
        (Truncate(weight="blocks.1.mlp.W_in", rank=13), r"rank: 13 is above the full rank .* 12"),
        (Remove(weight="blocks.1.mpl"), r"did you mean 'blocks\.1\.mlp'\?"),
        (Remove(weight="blocks.1.ml"), r"unknown weight"),
        (Remove(weight="blocks.1.ln1"), "layer norm"),
    ],
)  # fmt: skip
def test_an_edit_that_does_not_fit_is_refused(edit, message):
    with pytest.raises(SpecError, match=message):
        apply_edits(stacked(DECODER), [edit])
    with pytest.raises(SpecError, match=r"^edits\.0\.(weight|rank): .*"):
        check_edits([edit], dict(drawn(DECODER).named_parameters()), "edits")


def test_quantised_blocks_are_those_of_the_gguf_format():
    """The truth is the writer of the format, whose blocks run along the last axis."""
    quants = pytest.importorskip("gguf.quants")
    from gguf import GGMLQuantizationType as Kind

    matrix = np.random.default_rng(0).standard_normal((5, 96)).astype(np.float32)  # [output input]
    for bits, kind in ((8, Kind.Q8_0), (4, Kind.Q4_0)):
        expected = quants.dequantize(quants.quantize(matrix, kind), kind)
        weights = {"W": torch.from_numpy(matrix).T[None].contiguous()}
        edited = apply_edits(weights, [Quantise(weight="W", bits=bits)])["W"]
        torch.testing.assert_close(edited[0].T, torch.from_numpy(expected), rtol=0, atol=0)


def test_quantised_entries_by_hand():
    """One block: its largest entry is kept, up to the 16 bits of the scale; the others go to the nearest multiple."""
    column = torch.zeros(32, 1)
    column[0], column[1], column[2], column[3] = -8.0, 1.4, 7.9, 0.4
    weights = {"blocks.0.W": column[None], "blocks.0.b": torch.ones(1, 3), "head.W": column[None]}
    edited = apply_edits(weights, [Quantise(weight="blocks", bits=4)])
    assert edited["blocks.0.W"][0, :4, 0].tolist() == [-8.0, 1.0, 7.0, 0.0]  # 7 is the largest multiple
    assert edited["blocks.0.b"] is weights["blocks.0.b"]
    assert edited["head.W"] is weights["head.W"]
    eight = apply_edits(weights, [Quantise(weight="blocks", bits=8)])["blocks.0.W"][0, :4, 0]
    scale = float(torch.tensor(8 / 127).half())
    assert eight.tolist() == pytest.approx([-127 * scale, 22 * scale, 125 * scale, 6 * scale])


MATRICES = {"A": torch.ones(1, 5, 4), "B": torch.ones(1, 4, 6), "C": torch.ones(1, 4), "W": torch.ones(1, 31, 2)}
REFUSED = [
    *((lambda product=product: apply_edits(MATRICES, [Truncate(weight=product, rank=1)]), problem)
      for product, problem in (
          ("B @ A", "do not fit together"), ("A @ A", "is not a product of two"), ("A @ X", "unknown weight 'X'"),
          ("A @ B @ A", "is not a product of two"), ("A @ C", "is not a matrix"),
      )),
    *((lambda sizes=sizes: Truncate(weight="W", **sizes), "rank|fraction")
      for sizes in ({}, {"fraction": 0.5, "rank": 2}, {"fraction": 1.5}, {"rank": -1})),
    (lambda: apply_edits(MATRICES, [Quantise(weight="W", bits=4)]),
     r"'W' has 31 inputs; quantise multiples of 32"),
    (lambda: apply_edits(MATRICES, [Quantise(weight="C", bits=8)]), "holds no matrix"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "message"), REFUSED)
def test_matrices_that_cannot_be_cut_or_quantised_are_named(edit, message):
    with pytest.raises(SpecError, match=message):
        edit()
