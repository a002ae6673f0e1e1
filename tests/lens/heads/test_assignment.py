"""Members whose heads are those of the first in another, known order."""

import polars
import pytest
import torch

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import detect, effects, look, match_heads
from anchorlab.lens.look.interventions import Intervention
from anchorlab.models import DecoderSpec
from anchorlab.training.ensemble import initialise
from tests.lens.hand_built import ANCHORS, HEADS, INPUTS, KEYS, PATTERN_0, PATTERNS, SHAPE, identity_solver, stacked

ORDERS = torch.tensor([[[0, 1, 2], [0, 1, 2]], [[2, 0, 1], [1, 0, 2]], [[1, 2, 0], [2, 1, 0]]])
"""`[member layer head]`: where head `head` of the first member is in the others."""


def reordered(ensemble, orders):
    """One member of an ensemble several times, with its heads put in the places of `orders`."""
    weights = {name: value[0].expand(len(orders), *value.shape[1:]).clone() for name, value in ensemble.weights.items()}
    for name, value in weights.items():
        if ".attn." in name:
            axis = 1 if name.endswith("W_O") else value.ndim - 1
            for member, layers in enumerate(orders.tolist()):
                heads = value[member].chunk(HEADS, dim=axis - 1)
                places = layers[int(name.split(".")[1])]
                value[member] = torch.cat([heads[places.index(place)] for place in range(HEADS)], dim=axis - 1)
    return ensemble.with_weights(weights)


@pytest.fixture(scope="module")
def hand_built():
    return reordered(stacked(identity_solver()), ORDERS)


@pytest.mark.parametrize("by", ["pattern", "detectors"])
def test_a_known_permutation_is_found(hand_built, by):
    record = look(hand_built, INPUTS, PATTERNS, output=False)
    found = match_heads(record if by == "pattern" else detect(record, anchors=ANCHORS))
    assert torch.equal(found.heads, ORDERS)
    assert torch.allclose(found.similarity, torch.ones(3, 2, 3).double(), atol=1e-6)
    assert (found.chance < 0.9).all()


def test_also_of_a_random_model_and_with_another_reference():
    model = initialise(DecoderSpec(layers=2, heads=HEADS, width=12, head_width=4, hidden=9), SHAPE, [5])
    record = look(reordered(model, ORDERS), INPUTS, PATTERNS, output=False)
    assert torch.equal(match_heads(record).heads, ORDERS)
    by_second = match_heads(record, reference=1)
    assert torch.equal(by_second.heads[1], torch.arange(3).expand(2, 3))
    # head h of the second member is head i of the first, with ORDERS[1][i] = h
    expected = ORDERS[2].gather(1, ORDERS[1].argsort(dim=1))
    assert torch.equal(by_second.heads[2], expected)


def test_similarity_is_the_mean_cosine_of_sequences(hand_built):
    found = match_heads(record := look(hand_built, INPUTS, PATTERNS, output=False))
    left, right = record[PATTERN_0][0, :, 1], record[PATTERN_0][2, :, 1]
    cosines = (left * right).sum(dim=(1, 2)) / (left.norm(dim=(1, 2)) * right.norm(dim=(1, 2)))
    assert found.similarities[2, 0, 1, 1].item() == pytest.approx(cosines.mean().item(), abs=1e-6)
    assert found.chance[2, 0].item() == pytest.approx(found.similarities[2, 0].mean().item())


def test_reordered_outputs_and_values_agree_between_members(hand_built):
    record = look(hand_built, INPUTS, PATTERNS)
    assert torch.allclose(record["output"], record["output"][:1].expand_as(record["output"]), atol=1e-5)
    zero = Intervention(site="blocks.*.attn.hook_z", rule="zero")
    change = effects(hand_built, INPUTS, KEYS, zero, "head").change("logit")
    assert not torch.allclose(change, change[:1].expand_as(change), atol=1e-2)
    found = match_heads(record)
    same = found.reorder(change)
    assert torch.allclose(same, same[:1].expand_as(same), atol=1e-5)
    assert torch.allclose(same[1], change[0], atol=1e-5)
    assert found.table.columns == ["member", "layer", "head", "corresponds", "similarity", "chance"]
    assert found.table.row(9)[:4] == (1, 1, 0, 1)


def test_pairs_are_one_to_one_where_two_heads_like_the_same():
    """Both heads are most like head 0 of the other, head 1 even more so; but the sum is larger the other way.

    All are below chance in the third detector, which makes none of them like another.
    """
    table = polars.DataFrame(
        {
            "member": [0, 0, 1, 1] * 3, "layer": [0] * 12, "head": [0, 1] * 6,
            "detector": ["shift"] * 4 + ["first_token"] * 4 + ["induction"] * 4, "offset": [1] * 4 + [None] * 8,
            "value": [1.1, 1.0, 1.1, 0.3, 0, 0.5, 0.3, 1, 0, 0.1, 0.1, 0], "chance": [0.1] * 4 + [0.0] * 4 + [0.5] * 4,
        },
        schema_overrides={"value": polars.Float64},
    )  # fmt: skip
    found = match_heads(table)
    alike = found.similarities[1, 0]
    assert alike[1, 0] > alike[0, 0] > alike[0, 1] and alike[1, 0] > alike[1, 1]
    assert alike[1, 1].item() == pytest.approx((0.9 * 0.2 + 0.5 * 1) / (1.06 * 1.04) ** 0.5)
    assert found.heads[1, 0].tolist() == [0, 1]


@pytest.mark.untyped  # values of other types than the annotations name
def test_errors_name_the_remedy(hand_built):
    record = look(hand_built, INPUTS, PATTERNS, output=False)
    with pytest.raises(SpecError, match="reference: there is no member 3; choose one from 0 to 2"):
        match_heads(record, reference=3)
    with pytest.raises(SiteError, match="record a site such as"):
        match_heads(look(hand_built, INPUTS))
    with pytest.raises(SpecError, match=r"seen: has candidates; choose one with record\.candidate"):
        match_heads(look(hand_built, INPUTS, PATTERNS, candidates={"plain": []}))
    with pytest.raises(SpecError, match=r"seen: has layers of \[2, 3\] heads"):
        match_heads(detect(record).filter((polars.col("layer") == 0) | (polars.col("head") > 0)))
    diverged = hand_built.with_weights({name: value.clone() for name, value in hand_built.weights.items()})
    diverged.weights["embed.W_E"][1] = torch.nan
    broken = look(diverged, INPUTS, PATTERNS, output=False)
    for seen in (broken, detect(broken)):
        with pytest.raises(SpecError, match=r"^seen: member 1 has values that are not finite"):
            match_heads(seen)
    with pytest.raises(SpecError, match="values: have shape"):
        match_heads(record).reorder(torch.zeros(3, 3))
