"""Patching on the hand-built identity solver: layer 0 head 0 marks the key, layer 1 head 0 brings it to the end."""

from dataclasses import replace

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import Intervention, look, patch
from anchorlab.tasks.batch import Batch
from tests.lens.hand_built import (
    ANCHORS,
    KEYS,
    LENGTH,
    PATTERN_1,
    ROWS,
    identity_solver,
    other_anchor,
    stacked,
    turned_solver,
)
from tests.lens.hand_built import (
    INPUTS as CLEAN,
)


def other_key():
    """The same sequences with another token after the anchor, one that stands nowhere else."""
    absent = torch.tensor([next(token for token in range(12) if token not in row.tolist()) for row in CLEAN])
    found = CLEAN.clone()
    found[ROWS, ANCHORS + 1] = absent
    return found, absent.unsqueeze(1)


class TestAnotherKey:
    """The answer passes through one place alone: the broadcasting head at the last position."""

    @pytest.mark.parametrize("into", ["corrupted", "clean"])
    def test_one_head_at_one_position_holds_everything(self, into):
        corrupted, answers = other_key()
        both = stacked(identity_solver(), turned_solver())
        found = patch(both, CLEAN, corrupted, KEYS, answers, into=into)
        expected = torch.zeros(2, 2, 3, LENGTH, dtype=torch.float64)
        expected[0, 1, 0, -1] = expected[1, 1, 2, -1] = 1
        expected = expected if into == "corrupted" else 1 - expected
        assert found.over == ("head", "position")
        assert torch.allclose(found.recovered, expected, atol=1e-5)
        assert torch.allclose(found.clean, torch.ones(2).double(), atol=1e-5)  # one hot logits of the right token
        assert torch.allclose(found.corrupted, -torch.ones(2).double(), atol=1e-5)
        assert torch.allclose(found.difference, 2 * expected - 1, atol=1e-5)

    def test_the_stream_carries_it_at_the_key_and_then_at_the_end(self):
        corrupted, answers = other_key()
        stream = patch(identity_solver(), CLEAN, corrupted, KEYS, answers, site="**.hook_resid_*", over="position")
        assert stream.sites == tuple(
            f"blocks.{layer}.hook_resid_{end}" for layer in (0, 1) for end in ("pre", "mid", "post")
        )
        shares = torch.stack([(place == ANCHORS + 1).double().mean() for place in range(LENGTH)])
        last = torch.eye(LENGTH, dtype=torch.float64)[-1]
        expected = torch.stack([*[shares] * 4, last, last])
        assert torch.allclose(stream.recovered[0], expected, atol=1e-5)
        keys = {"position": (ANCHORS + 1).unsqueeze(1)}
        own = patch(identity_solver(), CLEAN, corrupted, KEYS, answers, site="**.hook_resid_*", over=(), at=keys)
        in_last = shares[-1]  # where the key is the last token, patching the end patches the key
        assert torch.allclose(own.recovered, torch.tensor([[1, 1, 1, 1, in_last, in_last]]).double(), atol=1e-5)

    def test_map_and_table(self):
        corrupted, answers = other_key()
        found = patch(stacked(identity_solver(), turned_solver()), CLEAN, corrupted, KEYS, answers, over="head")
        assert torch.allclose(found.map(member=1), torch.tensor([[0, 0, 0], [0, 0, 1]]).double(), atol=1e-5)
        with pytest.raises(SpecError, match=r"member: head 0 of one .*map\(member=0\)"):
            found.map()
        places, values = ["member", "site", "layer", "head"], ["difference", "clean", "corrupted", "recovered"]
        assert found.table.columns == places + values
        best = found.table.filter(found.table["recovered"] > 0.5).select("member", "layer", "head").rows()
        assert best == [(0, 1, 0), (1, 1, 2)]


class TestAnotherAnchor:
    """Both anchors are marked by the shifting head; with two marks or none, both answers are equally likely."""

    def test_the_shifting_head(self):
        *pairs, places = other_anchor()
        model = identity_solver()
        heads = patch(model, *pairs, over="head")
        assert heads.recovered[0, 0, 0].item() == pytest.approx(1, abs=1e-5)
        assert heads.recovered[0, 0, 1:].abs().max() < 1e-5
        for marks in (ANCHORS[:4] + 1, places + 1):
            one = {"where": {"head": 0}, "at": {"position": marks}}
            half = patch(model, *pairs, site="blocks.0.attn.hook_z", over=(), **one)
            assert half.recovered.flatten().tolist() == pytest.approx([0.5], abs=1e-5)


def test_agrees_with_a_look_written_out():
    corrupted, answers = other_key()
    found = patch(identity_solver(), CLEAN, corrupted, KEYS, answers, site=PATTERN_1, over="query")
    change = Intervention(site=PATTERN_1, where={"query": 4}, rule="patch", may_do_nothing=True)
    output = look(identity_solver(), corrupted, interventions=change, patch_inputs=CLEAN)["output"][0, :, -1]
    expected = (output[ROWS, KEYS[:, 0]] - output[ROWS, answers[:, 0]]).double().mean()
    assert found.difference[0, 0, 4].item() == pytest.approx(expected.item(), abs=1e-6)


def test_batches_bring_answers_and_positions():
    corrupted, answers = other_key()
    end = torch.tensor([LENGTH - 1])
    clean = Batch(CLEAN, KEYS, KEYS, end, "test")
    other = Batch(corrupted, answers, answers, end, "test")
    given = patch(identity_solver(), CLEAN, corrupted, KEYS, answers, over="head")
    assert torch.equal(patch(identity_solver(), clean, other, over="head").recovered, given.recovered)
    inside = replace(clean, positions=torch.tensor([2]))
    assert not torch.equal(patch(identity_solver(), inside, other, over="head").difference, given.difference)


def test_a_member_that_answers_both_alike_has_no_fraction():
    silent = identity_solver()
    with torch.no_grad():
        dict(silent.named_parameters())["unembed.W_U"].zero_()
    corrupted, answers = other_key()
    found = patch(stacked(identity_solver(), silent), CLEAN, corrupted, KEYS, answers, over="head")
    assert found.recovered[1].isnan().all() and not found.recovered[0].isnan().any()


def test_pairs_with_equal_answers_are_counted(solver):
    corrupted, answers = other_key()
    answers[:2] = KEYS[:2]
    with pytest.warns(UserWarning, match=rf"^pairs with equal answers measure nothing: 2 of {len(KEYS)}; corrupt"):
        patch(solver, CLEAN, corrupted, KEYS, answers, over="head")


CORRUPTED, OTHER_KEYS = other_key()


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((CORRUPTED[:3], KEYS, OTHER_KEYS), r"corrupted: have shape .* give one of the same length for each"),
        ((CORRUPTED, KEYS), "corrupted_answers: are missing; give tokens"),
        ((CORRUPTED, KEYS, KEYS), "corrupted_answers: equal the clean answers; corrupt"),
        ((CORRUPTED, KEYS.float(), OTHER_KEYS), r"answers: are no tokens of shape .*\[6, 1\]"),
    ],
)
def test_errors_name_the_remedy(solver, given, message):
    with pytest.raises(SpecError, match=message):
        patch(solver, CLEAN, *given)


@pytest.mark.untyped
def test_an_unknown_run_is_named(solver):
    with pytest.raises(SpecError, match="into: 'both' is no run; choose 'corrupted' or 'clean'"):
        patch(solver, CLEAN, CORRUPTED, KEYS, OTHER_KEYS, into="both")
