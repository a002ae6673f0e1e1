"""Patching, path patching and steering of hand-built models, in which it is known what each head and direction does."""

from dataclasses import replace

import pytest
import torch

from anchorlab import lens
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Intervention, Operand, look, patch, patch_paths, steer
from anchorlab.models import DecoderSpec
from anchorlab.tasks import AssociativeRecall, NoisyRecall
from anchorlab.tasks.batch import Batch
from anchorlab.training.ensemble import initialise
from tests.lens import hand_built
from tests.lens.hand_built import ANCHORS, BROUGHT, HEADS, INPUTS, KEYS, LENGTH, PREDICTED, identity_solver, stacked
from tests.lens.hand_built import INPUTS as CLEAN


def other_key():
    """The same sequences with another token after the anchor, one that stands nowhere else."""
    absent = torch.tensor([next(token for token in range(12) if token not in row.tolist()) for row in CLEAN])
    found = CLEAN.clone()
    found[hand_built.ROWS, ANCHORS + 1] = absent
    return found, absent.unsqueeze(1)


class TestAnotherKey:
    """The answer passes through one place alone: the broadcasting head at the last position."""

    @pytest.mark.parametrize("into", ["corrupted", "clean"])
    def test_one_head_at_one_position_holds_everything(self, into):
        corrupted, answers = other_key()
        both = stacked(identity_solver(), hand_built.turned_solver())
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
        found = patch(
            stacked(identity_solver(), hand_built.turned_solver()), CLEAN, corrupted, KEYS, answers, over="head"
        )
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
        *pairs, places = hand_built.other_anchor()
        model = identity_solver()
        heads = patch(model, *pairs, over="head")
        assert heads.recovered[0, 0, 0].item() == pytest.approx(1, abs=1e-5)
        assert heads.recovered[0, 0, 1:].abs().max() < 1e-5
        for marks in (ANCHORS[:4] + 1, places + 1):
            one = {"where": {"head": 0}, "at": {"position": marks}}
            half = patch(model, *pairs, site="blocks.0.attn.hook_z", over=(), **one)
            assert half.recovered.flatten().tolist() == pytest.approx([0.5], abs=1e-5)


def test_batches_bring_answers_and_positions():
    corrupted, answers = other_key()
    end = torch.tensor([LENGTH - 1])
    clean = Batch(CLEAN, KEYS, KEYS, end, "test")
    other = Batch(corrupted, answers, answers, end, "test")
    given = patch(identity_solver(), CLEAN, corrupted, KEYS, answers, over="head")
    assert torch.equal(patch(identity_solver(), clean, other, over="head").recovered, given.recovered)
    inside = [replace(each, positions=torch.tensor([2])) for each in (clean, other)]
    assert not torch.equal(patch(identity_solver(), *inside, over="head").difference, given.difference)


def test_answers_at_other_positions_and_scores_that_pad_a_row_are_refused():
    """Each sequence has its queries elsewhere; one with few repeated triggers has scores of weight 0."""
    recall = AssociativeRecall()
    clean, corrupted = (recall.sample("test", 3, seed) for seed in (0, 1))
    assert not torch.equal(clean.positions, corrupted.positions)
    model = initialise(DecoderSpec(layers=1, heads=1, width=8), recall.shape, [0])
    for name, others in (("patch", {}), ("score_units", {}), ("prune_edges", {"threshold": 0.1})):
        with pytest.raises(SpecError, match=r"^corrupted: has scores .* other positions .*; give positions, and both"):
            getattr(lens, name)(model, clean, corrupted, **others)
    patch(model, clean, corrupted, corrupted_answers=(clean.answers + 1) % 9, over="head")
    noisy = NoisyRecall(scored="after_trigger")
    clean, corrupted = (noisy.sample("clean", 3, seed) for seed in (0, 1))
    assert bool((clean.weights == 0).any())
    model = initialise(DecoderSpec(layers=1, heads=1, width=8), noisy.shape, [0])
    with pytest.raises(SpecError, match=r"^clean: has scores that pad its rows"):
        patch(model, clean, corrupted)
    last = {"answers": clean.answers[:, -1:], "corrupted_answers": (clean.answers[:, -1:] + 1) % 9}
    patch(model, clean, corrupted, **last, positions=clean.positions[:, -1:], over="head")


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


# Path patching of hand-built models in which it is known which head hands what to which.
SOME_CLEAN, OTHER_ANCHOR, SOME_KEYS, MOVED_KEYS, _ = hand_built.other_anchor()


@pytest.mark.parametrize("into", ["corrupted", "clean"])
def test_the_shifting_head_reaches_the_keys_of_the_broadcasting_head_alone(into):
    heads = [(0, head) for head in range(HEADS)]
    receivers = [(1, head) for head in range(HEADS)]
    both = stacked(identity_solver(), identity_solver())
    found = patch_paths(both, SOME_CLEAN, OTHER_ANCHOR, heads, receivers, SOME_KEYS, MOVED_KEYS, into=into)
    expected = torch.zeros(2, HEADS, HEADS, 3, dtype=torch.float64)
    expected[:, 0, 0, 1] = 1  # its keys
    expected = expected if into == "corrupted" else 1 - expected
    assert torch.allclose(found.recovered, expected, atol=1e-5)
    assert (found.clean > 0.99).all() and (found.corrupted < -0.99).all()


def chain():
    """Three heads in a row, the first of each layer: bring the previous token, hand it on, predict the handed one.

    Layer 0 brings the token before to every position. Layer 1 writes it to the prediction. Layer 2 adds the prediction
    of the position before: at the end the token two before it, by layer 1, and the token three before it.
    """
    module = hand_built.blank(layers=3)
    hand_built.shifting(module, 0, 0, 1)
    hand_built.carrying(module, 0, 0, hand_built.TOKEN, BROUGHT)
    hand_built.shifting(module, 1, 0, 0)
    hand_built.carrying(module, 1, 0, BROUGHT, PREDICTED)
    hand_built.shifting(module, 2, 0, 1)
    hand_built.carrying(module, 2, 0, PREDICTED, PREDICTED)
    return module


def test_a_path_passes_no_other_head():
    """Layer 0 matters to the answer, and layer 2 hears of it through layer 1 alone."""
    clean = CLEAN[:, :LENGTH]
    corrupted, place = clean.clone(), LENGTH - 3
    absent = torch.tensor([next(token for token in range(12) if token not in row.tolist()) for row in clean])
    corrupted[:, place] = absent
    given = (chain(), clean, corrupted)
    answers = (clean[:, [place]], absent.unsqueeze(1))
    assert patch(*given, *answers, over="head").recovered[0, :, 0].tolist() == pytest.approx([1, 1, 1], abs=1e-5)
    found = patch_paths(*given, [(0, 0), (1, 0)], [(1, 0), (2, 0)], *answers)
    paths = {row[:3]: row[-1] for row in found.table.drop("member").rows()}
    one = {("0.0", "1.0", "v"), ("1.0", "2.0", "v")}
    assert len(paths) == 9  # not from 1.0 to itself
    for path, recovered in paths.items():
        assert recovered == pytest.approx(float(path in one), abs=1e-5), path
    assert found.difference[0, 1, 0].isnan().all()


@pytest.mark.parametrize("through", [True, False])
def test_agrees_with_the_steps_written_out(through):
    """On a random model with feed-forward layers, where every path carries a little."""
    generator = torch.Generator().manual_seed(0)
    clean, corrupted = torch.randint(0, 12, (2, 8, LENGTH), generator=generator)
    answers, others = (
        torch.randint(0, 6, (8, 1), generator=generator),
        torch.randint(6, 12, (8, 1), generator=generator),
    )
    spec = DecoderSpec(layers=3, heads=HEADS, width=12, head_width=4, hidden=9)
    model = initialise(spec, hand_built.SHAPE, [3, 4], dtype=torch.float64)
    found = patch_paths(
        model, clean, corrupted, [(0, 1)], [(2, 2)], answers, others, inputs=["k"], through_feed_forward=through
    )
    for member in range(2):
        one = model.select([member])
        site = "blocks.{}.attn.hook_z".format
        plain = look(one, corrupted, ["blocks.*.attn.hook_z", "blocks.*.hook_mlp_out"])
        sent = plain[site(0)][0].clone()
        sent[:, :, 1] = look(one, clean, site(0))[site(0)][0][:, :, 1]
        fixed = {site(0): sent, site(1): plain[site(1)][0]}
        if not through:
            fixed |= {name: plain[name][0] for name in ("blocks.0.hook_mlp_out", "blocks.1.hook_mlp_out")}
        keys = look(one, corrupted, "blocks.2.attn.hook_k", [put(name, value) for name, value in fixed.items()])
        received = look(one, corrupted, "blocks.2.attn.hook_k")["blocks.2.attn.hook_k"][0].clone()
        received[:, :, 2] = keys["blocks.2.attn.hook_k"][0][:, :, 2]
        output = look(one, corrupted, interventions=put("blocks.2.attn.hook_k", received))["output"][0, :, -1]
        rows = torch.arange(8)
        expected = (output[rows, answers[:, 0]] - output[rows, others[:, 0]]).mean()
        assert found.difference[member].item() == pytest.approx(expected.item(), abs=1e-9)
        assert abs(found.difference[member].item() - found.corrupted[member].item()) > 1e-6


def put(site, value):
    axes = ("batch", "position", *(("head", "head_width") if value.ndim == 4 else ("width",)))
    return Intervention(site=site, rule="replace", operand=Operand(values=value, axes=axes), may_do_nothing=True)


def test_heads_that_share_keys_and_values_receive_them_together():
    pytest.importorskip("transformers")
    from anchorlab.papers.pretrained.tiny import tiny_model

    model = tiny_model()  # 4 heads of queries, 2 of keys and values
    generator = torch.Generator().manual_seed(0)
    clean, corrupted = torch.randint(0, 200, (2, 4, 6), generator=generator)
    answers, others = torch.randint(0, 200, (2, 4, 1), generator=generator)
    receivers = [(2, head) for head in range(4)]
    found = patch_paths(model, clean, corrupted, [(0, 0), (1, 3)], receivers, answers, others).recovered[0]
    assert torch.equal(found[:, 0, 1:], found[:, 1, 1:]) and torch.equal(found[:, 2, 1:], found[:, 3, 1:])
    assert not torch.isclose(found[:, 1, 1:], found[:, 2, 1:]).any()
    assert found[:, :, 0].unique().numel() == 8  # queries are each head's own


# Steering of the hand-built identity solver, whose stream is one-hot in blocks: what each direction does is known.
STREAM, LAST = "blocks.*.hook_resid_post", "blocks.1.hook_resid_post"
WITHOUT_0 = (KEYS != 0).squeeze(1)
"""The sequences whose key is not token 0."""


def coordinate(index):
    return torch.eye(PREDICTED.stop)[index]


def test_a_prediction_rises_in_a_straight_line():
    """Token 0 stands nowhere in some rows, and is the key in none: its logit is the multiple."""
    multiples, both = (-3, 0, 0.5, 2), stacked(identity_solver(), identity_solver())
    found = steer(both, INPUTS[WITHOUT_0], 0 * KEYS[WITHOUT_0], coordinate(PREDICTED[0]), STREAM, multiples)
    assert found.sites == ("blocks.0.hook_resid_post", "blocks.1.hook_resid_post")
    line = torch.tensor(multiples).double().expand(2, 2, 4)
    assert torch.allclose(found.curve("logit"), line, atol=1e-5)
    assert found.curve("accuracy")[0, 0].tolist() == [0, 0, 0, 1]
    other = line.exp() / (line.exp() + 10 + torch.e)
    assert torch.allclose(found.curve("probability"), other, atol=1e-5)


def test_a_mark_draws_the_attention_of_the_next_layer():
    """A mark like that after the anchor at position 0: as strong as the true one at 1, alone from 2 on."""
    model, there, direction = identity_solver(), INPUTS[:, :1], coordinate(BROUGHT[hand_built.ANCHOR])
    found = steer(model, INPUTS, there, direction, "blocks.0.hook_resid_post", [0, 1, 2], where={"position": 0})
    assert torch.allclose(found.curve("logit")[0, 0], torch.tensor([0, 0.5, 1]).double(), atol=1e-5)
    for targets, logit in ((there, 0), (INPUTS.gather(1, ANCHORS.unsqueeze(1)), 1)):
        late = steer(model, INPUTS, targets, direction, "blocks.1.hook_resid_pre", [2], at={"position": ANCHORS})
        assert late.curve("logit").item() == pytest.approx(logit, abs=1e-5)


def test_steering_each_member_in_its_own_direction_and_its_table():
    both = stacked(identity_solver(), identity_solver())
    each = torch.stack([coordinate(PREDICTED[0]), 3 * coordinate(PREDICTED[0])])
    found = steer(both, INPUTS[WITHOUT_0], 0 * KEYS[WITHOUT_0], each, LAST, [2])
    assert torch.allclose(found.curve("logit").flatten(), torch.tensor([2.0, 6.0]).double(), atol=1e-5)
    found = steer(identity_solver(), INPUTS, KEYS, coordinate(0), multiples=[1, -1], random_directions=0)
    table = found.table
    assert table.columns == ["metric", "member", "site", "layer", "multiple", "value", "random"]
    assert table.row(3)[:5] == ("accuracy", 0, "blocks.1.hook_resid_post", 1, -1.0)
    assert table["random"].null_count() == table.height == 12


def test_random_directions_of_the_same_length_do_less():
    direction = 4 * coordinate(PREDICTED[0])
    found = steer(identity_solver(), INPUTS, 0 * KEYS, direction, LAST, [0, 1], random_directions=20)
    logit = found.metrics.index("logit")
    moved = found.random[:, logit, 0, 0, 1] - found.random[:, logit, 0, 0, 0]
    assert found.random.shape == (20, 3, 1, 1, 2)
    assert moved.std().item() == pytest.approx(4 / PREDICTED.stop**0.5, rel=0.5)  # one of that many coordinates
    assert moved.abs().max() < 4 * 0.6
    assert torch.allclose(found.random[:, logit, 0, 0, 0], found.curve("logit")[0, 0, 0].expand(20))


def patched(*given, **options):
    return lambda solver: patch(solver, CLEAN, *given, **options)


def along(senders, receivers, inputs="qkv"):
    given = SOME_CLEAN, OTHER_ANCHOR, senders, receivers, SOME_KEYS, MOVED_KEYS
    return lambda solver: patch_paths(solver, *given, inputs=[*inputs])


def steered(targets, direction, **options):
    return lambda solver: steer(solver, CLEAN, targets, direction, **options)


REFUSED = [
    (patched(CORRUPTED[:3], KEYS, OTHER_KEYS), r"corrupted: have shape .* give one of the same length for each"),
    (steered(KEYS, coordinate(0), metrics={"mean": lambda output, targets: output.mean()}), r"^metrics\.mean: returns"),
    (steered(KEYS, coordinate(0), random_directions=-1), "^random_directions: -1 is no number of directions; give 0"),
    (patched(CORRUPTED, KEYS), "corrupted_answers: are missing; give tokens"),
    (patched(CORRUPTED, KEYS, KEYS), "corrupted_answers: equal the clean answers; corrupt"),
    (patched(CORRUPTED, KEYS.float(), OTHER_KEYS), r"answers: are no tokens of shape .*\[6, 1\]"),
    (patched(CORRUPTED, KEYS, OTHER_KEYS, into="both"), "into: 'both' is no run; choose 'corrupted' or 'clean'"),
    (along([(0, 3)], [(1, 0)]), r"senders\.0: there is no head 3 in layer 0; choose one from 0 to 2"),
    (along([(0, 0)], [(1, 0), (2, 0)]), r"receivers\.1: there is no head 0 in layer 2; layers go from 0 to 1"),
    (along([(1, 0)], [(1, 1)]), "senders: are in no layer before a receiver"),
    (along([(0, 0)], [(1, 0)], "z"), r"inputs\.0: 'z' is no input of a head"),
    (along([(0, 0)], []), "receivers: are none"),
    (steered(KEYS, torch.ones(3)), r"direction: has shape \(3,\), .* give \[45\], or \[1, 45\]"),
    (steered(KEYS, torch.zeros(PREDICTED.stop)), "direction: has length 0"),
    (steered(KEYS, coordinate(0), multiples=[]), "multiples: are none"),
    (steered(KEYS[:2], coordinate(0)), "targets: have shape"),
    (steered(KEYS, coordinate(0), site="blocks.0.hook_resid_pots"), "did you mean"),
]


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_errors_name_the_remedy(solver, ask, message):
    with pytest.raises((SiteError, SpecError), match=message):
        ask(solver)
