"""Rules that take values from other passes, and selections that differ between sequences."""

import json

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import Intervention, look, shift_pattern
from tests.lens import hand_built
from tests.lens.hand_built import ANCHORS, INPUTS, LENGTH, PATTERN_0, ROWS, is_near, known_pattern, predicted, tokens


def sources_of(output, clean):
    """Which sequence's clean output each sequence has; there must be exactly one."""
    equal = torch.stack([(output - each).abs().amax(dim=(1, 2)) < 1e-5 for each in clean], dim=1)
    assert (equal.sum(dim=1) == 1).all()
    return equal.int().argmax(dim=1)


class TestOwnPlaces:
    @pytest.mark.parametrize("batch_size", [1, 4, 100])
    def test_one_place_for_each_sequence(self, solver, batch_size):
        change = Intervention(site=hand_built.PATTERN_1, where={"head": 0}, at={"query": ANCHORS}, rule="zero")
        expected = known_pattern() @ tokens()
        expected[ROWS, ANCHORS] = 0
        assert is_near(predicted(solver, change, batch_size=batch_size), expected)

    def test_several_places_and_two_axes_at_once(self, solver):
        places = torch.stack([ANCHORS, torch.full_like(ANCHORS, LENGTH - 1)], dim=1)
        change = Intervention(
            site=hand_built.PATTERN_1, at={"query": places}, where={"head": 0}, rule="scale", operand=3
        )
        pattern = known_pattern()
        pattern[ROWS, ANCHORS] *= 3
        pattern[:, -1] *= 3
        assert is_near(predicted(solver, change), pattern @ tokens())
        last = torch.full((len(INPUTS), 2), LENGTH - 1) - torch.tensor([0, 1])
        change = Intervention(
            site=hand_built.PATTERN_1, where={"head": 0}, at={"key": ANCHORS + 1, "query": last}, rule="replace",
            operand=0.25,
        )  # fmt: skip
        pattern = known_pattern()
        for b, anchor in enumerate(ANCHORS.tolist()):
            pattern[b, LENGTH - 2 :, anchor + 1] = 0.25
        assert is_near(predicted(solver, change), pattern @ tokens())

    @pytest.mark.parametrize("batch_size", [1, 4, 100])
    def test_some_sequences_and_an_operand_for_each(self, solver, batch_size):
        change = Intervention(
            site="hook_logits", where={"batch": [4, 1]}, at={"position": ANCHORS}, rule="add",
            operand={"values": [10.0, 20.0], "axes": ["batch"]},
        )  # fmt: skip
        expected = known_pattern() @ tokens()
        expected[4, ANCHORS[4]] += 10
        expected[1, ANCHORS[1]] += 20
        assert is_near(predicted(solver, change, batch_size=batch_size), expected)

    @pytest.mark.parametrize("batch_size", [1, 4, 100])
    def test_mean_is_of_each_ones_own_places(self, solver, batch_size):
        change = Intervention(site="hook_logits", at={"position": ANCHORS}, rule="mean")
        clean = known_pattern() @ tokens()
        expected = clean.clone()
        expected[ROWS, ANCHORS] = clean[ROWS, ANCHORS].mean(dim=0)
        assert is_near(predicted(solver, change, batch_size=batch_size), expected)

    def test_survives_json(self):
        change = Intervention(site=PATTERN_0, at={"query": ANCHORS, "key": [[0, 1]] * 6}, rule="resample", seed=3)
        assert Intervention.parse(json.loads(change.model_dump_json())) == change
        assert change.describe() == "resample blocks.0.attn.hook_pattern at query at key"


class TestResample:
    @pytest.mark.parametrize("seed", [0, 1, 2, 3])
    def test_everyone_has_the_value_of_another(self, solver, seed):
        change = Intervention(site="hook_logits", rule="resample", seed=seed)
        clean = known_pattern() @ tokens()
        whole = sources_of(predicted(solver, change), clean)
        assert sorted(whole.tolist()) == ROWS.tolist()
        assert not (whole == ROWS).any()
        for batch_size in (1, 4):
            assert torch.equal(sources_of(predicted(solver, change, batch_size=batch_size), clean), whole)

    def test_seeds_differ_and_values_are_those_of_the_model_without_interventions(self, solver):
        clean = known_pattern() @ tokens()
        changes = [Intervention(site="hook_logits", rule="resample", seed=seed) for seed in range(6)]
        assert len({tuple(sources_of(predicted(solver, each), clean).tolist()) for each in changes}) > 1
        changes = (
            Intervention(site="hook_logits", rule="scale", operand=7),
            Intervention(site="hook_logits", rule="resample", seed=0),
        )
        alone = predicted(solver, changes[1])
        assert is_near(predicted(solver, *changes), alone)

    @pytest.mark.parametrize("batch_size", [1, 4, 100])
    def test_each_gives_what_stands_at_its_own_places(self, solver, batch_size):
        clean = known_pattern() @ tokens()
        others = sources_of(predicted(solver, Intervention(site="hook_logits", rule="resample", seed=5)), clean)
        change = Intervention(
            site="hook_logits", where={"batch": [0, 3, 5]}, at={"position": ANCHORS + 1}, rule="resample", seed=5
        )
        expected = clean.clone()
        for b in (0, 3, 5):
            expected[b, ANCHORS[b] + 1] = clean[others[b], ANCHORS[others[b]] + 1]
        assert is_near(predicted(solver, change, batch_size=batch_size), expected)


class TestPatch:
    NEW = torch.tensor([next(token for token in hand_built.TOKEN if token not in row) for row in INPUTS.tolist()])

    def patched_inputs(self):
        return INPUTS.scatter(1, (ANCHORS + 1).unsqueeze(1), self.NEW.unsqueeze(1))

    @pytest.mark.parametrize("batch_size", [1, 4, 100])
    def test_the_key_of_other_inputs_is_predicted(self, solver, batch_size):
        change = Intervention(site="hook_embed", at={"position": ANCHORS + 1}, rule="patch")
        output = predicted(solver, change, patch_inputs=self.patched_inputs(), batch_size=batch_size)
        assert is_near(output, known_pattern() @ tokens(self.patched_inputs()))
        assert output[:, -1].argmax(dim=-1).tolist() == self.NEW.tolist()

    def test_other_places_stay_and_one_head_alone(self, solver):
        change = Intervention(site="hook_embed", at={"position": ANCHORS}, rule="patch", may_do_nothing=True)
        output = predicted(solver, change, patch_inputs=self.patched_inputs())
        assert is_near(output, known_pattern() @ tokens())
        change = Intervention(site="blocks.1.attn.hook_z", where={"head": 0, "batch": [2]}, rule="patch")
        expected = known_pattern() @ tokens()
        expected[2] = (known_pattern() @ tokens(self.patched_inputs()))[2]
        assert is_near(predicted(solver, change, patch_inputs=self.patched_inputs()), expected)


class TestShiftPattern:
    @pytest.mark.parametrize(("length", "k"), [(5, 0), (5, 2), (3, 2), (1, 0)])
    def test_by_enumeration(self, length, k):
        operand = shift_pattern(length, k)
        assert operand.axes == ("query", "key")
        for q in range(length):
            for key in range(length):
                assert operand.values[q, key] == (key == max(q - k, 0))

    def test_in_place_of_a_head_that_does_nothing(self, solver):
        model = hand_built.blank(layers=2)
        hand_built.carrying(model, 0, 0, hand_built.TOKEN, hand_built.BROUGHT)
        hand_built.matching(
            model, 1, 0, hand_built.everywhere(), hand_built.where(hand_built.BROUGHT, hand_built.ANCHOR)
        )
        change = Intervention(site=PATTERN_0, where={"head": 0}, rule="replace", operand=shift_pattern(LENGTH, 1))
        brought = look(model, INPUTS, record=["blocks.1.hook_resid_pre"], interventions=[change])
        expected = torch.cat([tokens()[:, :1], tokens()[:, :-1]], dim=1)
        assert torch.equal(brought["blocks.1.hook_resid_pre"][0][..., list(hand_built.BROUGHT)], expected)

    @pytest.mark.parametrize("k", [-1, 4])
    def test_no_shift_within_the_length(self, k):
        with pytest.raises(SpecError, match=f"k: {k} is not a shift within 4 positions"):
            shift_pattern(4, k)


def test_scores_before_and_after_the_mask_behind_which_the_future_stays_hidden(solver):
    before, after = "blocks.1.attn.hook_attn_scores_unmasked", "blocks.1.attn.hook_attn_scores"
    record = look(solver, INPUTS, record=[before, after])
    expected = torch.zeros(len(INPUTS), LENGTH, LENGTH)
    expected[ROWS, :, ANCHORS + 1] = (
        hand_built.SHARP
    )  # every query asks for the token after the anchor, also those before it
    assert torch.allclose(record[before][0, :, 0], expected, atol=1e-3)
    future = torch.ones(LENGTH, LENGTH).triu(1).bool()
    assert (record[after][0, :, 0][:, future] == -torch.inf).all()
    assert torch.allclose(record[after][0, :, 0][:, ~future], expected[:, ~future], atol=1e-3)
    change = Intervention(site="blocks.1.attn.hook_attn_scores_unmasked", where={"head": 0}, rule="zero")
    expected = tokens().cumsum(1) / torch.arange(1.0, LENGTH + 1).unsqueeze(-1)
    assert is_near(predicted(solver, change), expected)


SIX = [0] * 6
LOUD = [
    (Intervention(site=PATTERN_0, at={"quary": SIX}, rule="zero"), {}, "at.quary: unknown axis of blocks.0"),
    (Intervention(site=PATTERN_0, at={"query": [0] * 5}, rule="zero"), {}, "at.query: holds places for 5 sequences"),
    (Intervention(site=PATTERN_0, at={"query": [9] * 6}, rule="zero"), {}, "at.query: an index is out of range"),
    (Intervention(site=PATTERN_0, at={"query": [[8, 8]] * 6}, rule="zero"), {}, "at.query: a sequence has a place tw"),
    (Intervention(site=PATTERN_0, rule="patch"), {}, "patch_inputs: are missing, and interventions.0 (patch blocks.0"),
    (Intervention(site=PATTERN_0, rule="patch"), {"patch_inputs": INPUTS[:3]}, "patch_inputs: have shape (3, 9)"),
    (
        Intervention(site=PATTERN_0, rule="resample", seed=0),
        {"inputs": INPUTS[:1]},
        "interventions.0.rule: a single sequence has no other",
    ),
]


@pytest.mark.parametrize(("change", "options", "message"), LOUD)
def test_what_does_not_fit_fails_loudly(solver, change, options, message):
    with pytest.raises(SpecError) as caught:
        predicted(solver, change, batch_size=4, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
