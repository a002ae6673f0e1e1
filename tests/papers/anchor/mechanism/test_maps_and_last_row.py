"""Maps by the anchor's position and the last row made by hand, on patterns and models whose parts are known."""

from dataclasses import replace

import pytest
import torch

from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.mechanism.broadcast import anchor_maps, read_anchor_maps
from anchorlab.papers.anchor.mechanism.outputs import last_row, sum_by_hand
from anchorlab.tasks import task
from anchorlab.training.ensemble import Ensemble
from tests.papers.hand_made_models import blank, two_layers


def reading(places):
    """Patterns `[batch query key]` whose every row reads one place of its sequence."""
    return torch.nn.functional.one_hot(places, 9).float().unsqueeze(1).repeat(1, 9, 1)


def test_patterns_of_positions_contents_or_nothing_count_by_their_sequences():
    anchors = torch.tensor([2, 2, 5, 5, 5, 5])
    contents = torch.tensor([0, 7, 0, 7, 0, 7])  # as often with either anchor
    patterns = torch.stack([reading(anchors + 1), torch.full((6, 9, 9), 1 / 9), reading(contents)])
    found = read_anchor_maps(patterns, anchors)
    assert found.positions.tolist() == [2, 5]
    assert found.explained.tolist() == pytest.approx([1, 0, 0])
    assert found.own_apart.tolist() == pytest.approx([0, 0, 1 / 2])
    assert found.other_apart.tolist() == pytest.approx([1, 0, 1 / 2])
    assert found.maps[0, :, 4].tolist() == [reading(torch.tensor([3, 6]))[place, 4].tolist() for place in range(2)]
    # Two sequences have their anchor at 0 and read 1; of four with it at 4 one reads 1, the others 5. In either column
    # the mean is 1/2, those of the places are 1 and 1/4, or 0 and 3/4.
    anchors, places = torch.tensor([0, 4, 0, 4, 4, 4]), torch.tensor([1, 1, 1, 5, 5, 5])
    found = read_anchor_maps(reading(places)[None], anchors)
    assert found.explained.tolist() == [pytest.approx((2 / 4 + 4 / 16) / (6 / 4))]
    assert found.own_apart.tolist() == [pytest.approx((2 * 0 + 3 / 4 + 3 * 1 / 4) / 6)]
    assert found.other_apart.tolist() == [pytest.approx((2 * 3 / 4 + 0 + 3 * 1) / 6)]
    patterns = torch.zeros(1, 2, 9, 9)
    patterns[..., 0] = 1
    patterns[0, 1, 0] = torch.eye(9)[3]  # another first row alone
    found = read_anchor_maps(patterns, torch.tensor([1, 6]))
    assert found.other_apart.tolist() == [0.0]
    anchors = torch.tensor([0, 4, 7])
    found = read_anchor_maps(reading(torch.tensor([1, 1, 5]))[None], anchors)
    # The first is 0 from the second's and 1 from the third's, which is 1 from both.
    assert found.other_apart.tolist() == [pytest.approx((1 / 2 + 1 / 2 + 1) / 3)]


def test_a_model_whose_layer_2_reads_after_the_anchor_follows_it():
    batch = task("anchor/identity").sample("test", 200, seed=0)
    found = anchor_maps(two_layers((1, 1), (1, 0)), batch)
    assert found.positions.tolist() == list(range(8))
    assert found.explained.tolist() == pytest.approx([1, 1], abs=1e-5)
    assert found.own_apart.tolist() == pytest.approx([0, 0], abs=1e-5)
    for member, after in enumerate((1, 0)):
        for place in range(8):
            assert found.maps[member, place, 8].tolist() == pytest.approx(torch.eye(9)[place + after].tolist())


WIDTH = 202  # a direction for every token, and one for all positions


@pytest.fixture(scope="module")
def batch():
    return task("anchor/identity").sample("test", 60, seed=0)


def reader(values: float = 0.5, second_network: float = 0.0) -> Ensemble:
    """Two layers of which the first adds nothing, so that a row names its own token.

    Layer 1's values bring so much of a row; its feed-forward network adds to each token so much of the next one.
    """
    model = DecoderSpec(layers=2, heads=1, width=WIDTH, head_width=WIDTH, hidden=WIDTH)
    ensemble = blank(model, "anchor/identity")
    weights = ensemble.weights
    for name in weights:
        if name.endswith(("ln1.w", "ln2.w")):
            weights[name][:] = 1
    weights["embed.W_E"][0, :, :201] = torch.eye(201)
    weights["pos_embed.W_pos"][0, :, 201] = 1
    weights["blocks.1.attn.W_V"][0] = torch.eye(WIDTH) * values
    weights["blocks.1.attn.W_O"][0, :201, :201] = torch.eye(201)
    weights["blocks.1.mlp.W_in"][0] = torch.eye(WIDTH)
    weights["blocks.1.mlp.W_out"][0, :201, :201] = torch.eye(201).roll(1, dims=1) * second_network
    weights["unembed.W_U"][0, :201] = torch.eye(201)
    return ensemble


def test_the_last_row_is_made_of_the_key_by_the_second_network_or_names_its_own_token(batch):
    # half the key's row is more than any token's share of the mean, but less than the last row's own token
    found = last_row(reader(), batch)
    assert found.made.tolist() == [1.0]
    found = last_row(reader(values=0.0), batch)
    assert found.made.tolist() == [0.0]  # the mean has most of the anchor
    assert last_row(reader(second_network=3.0), batch).made.tolist() == [0.0]
    # it names its token: here the key of every other sequence
    keys = batch.latents["key_positions"][:, 0]
    ends = batch.inputs[torch.arange(60), keys]
    ends[::2] = torch.where(keys[::2] < 8, 10, ends[::2])  # no item
    named = torch.arange(60)[keys < 8] % 2
    assert 0 < named.sum() < len(named) < 60
    inputs = torch.cat([batch.inputs[:, :-1], ends.unsqueeze(-1)], dim=1)
    found = last_row(reader(), replace(batch, inputs=inputs))
    assert found.without_key.tolist() == [pytest.approx(float(named.float().mean()))]


@pytest.mark.parametrize(("part", "value"), [("w", 1e-9), ("b", 100.0)])
def test_the_layer_norm_keeps_its_scale_and_offset(batch, part, value):
    """Of no scale, or an offset above all else, token 150 is named."""
    ensemble = reader()
    ensemble.weights["blocks.1.ln1.b"][0, 150] = 0.1
    ensemble.weights[f"blocks.1.ln1.{part}"][0, 150 if part == "b" else slice(None)] = value
    found = last_row(ensemble, batch)
    assert found.made.tolist() == [0.0]


def test_the_sum_by_hand_has_each_member_s_own_means_and_maps():
    # Keys at 1 and 0: the others' rows 1, 3, 5, 9 have the mean 4.5; the key's rows 2 and 7 times 10.
    rows = torch.tensor([[[[1.0], [2], [3]], [[7], [5], [9]]]])
    assert sum_by_hand(rows, torch.tensor([[[10.0]]]), torch.tensor([1, 0])).tolist() == [[[24.5], [74.5]]]
    rows = torch.tensor([[[[1.0], [2], [3]]], [[[5], [1], [7]]]])
    assert sum_by_hand(rows, torch.tensor([[[10.0]], [[-1]]]), torch.tensor([1])).tolist() == [[[22.0]], [[5.0]]]
