"""Path patching of hand-built models in which it is known which head hands what to which."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import Intervention, Operand, look, patch, patch_paths
from anchorlab.models import DecoderSpec
from anchorlab.training.ensemble import initialise
from tests.lens.hand_built import (
    BROUGHT,
    HEADS,
    LENGTH,
    PREDICTED,
    SHAPE,
    TOKEN,
    blank,
    carrying,
    identity_solver,
    other_anchor,
    shifting,
    stacked,
)
from tests.lens.hand_built import (
    INPUTS as CLEAN,
)

SOME, CORRUPTED, ANSWERS, OTHERS, _ = other_anchor()


@pytest.mark.parametrize("into", ["corrupted", "clean"])
def test_the_shifting_head_reaches_the_keys_of_the_broadcasting_head_alone(into):
    heads = [(0, head) for head in range(HEADS)]
    receivers = [(1, head) for head in range(HEADS)]
    both = stacked(identity_solver(), identity_solver())
    found = patch_paths(both, SOME, CORRUPTED, heads, receivers, ANSWERS, OTHERS, into=into)
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
    module = blank(layers=3)
    shifting(module, 0, 0, 1)
    carrying(module, 0, 0, TOKEN, BROUGHT)
    shifting(module, 1, 0, 0)
    carrying(module, 1, 0, BROUGHT, PREDICTED)
    shifting(module, 2, 0, 1)
    carrying(module, 2, 0, PREDICTED, PREDICTED)
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
    model = initialise(spec, SHAPE, [3, 4], dtype=torch.float64)
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


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize(
    ("senders", "receivers", "inputs", "message"),
    [
        ([(0, 3)], [(1, 0)], "qkv", r"senders\.0: there is no head 3 in layer 0; choose one from 0 to 2"),
        ([(0, 0)], [(1, 0), (2, 0)], "qkv", r"receivers\.1: there is no head 0 in layer 2; layers go from 0 to 1"),
        ([(1, 0)], [(1, 1)], "qkv", "senders: are in no layer before a receiver"),
        ([(0, 0)], [(1, 0)], "z", r"inputs\.0: 'z' is no input of a head"),
        ([(0, 0)], [], "qkv", "receivers: are none"),
    ],
)
def test_errors_name_the_remedy(solver, senders, receivers, inputs, message):
    with pytest.raises(SpecError, match=message):
        patch_paths(solver, SOME, CORRUPTED, senders, receivers, ANSWERS, OTHERS, inputs=[*inputs])
