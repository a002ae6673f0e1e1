"""Predictions without heads and layers, against transformers' own losses and weights changed by hand."""

import copy
from collections import Counter

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from anchorlab.language import wrap
from anchorlab.lens import Intervention, look
from anchorlab.studies.language.removal import (
    Predictions,
    RepeatedTexts,
    WithoutHeads,
    draw_others,
    loss_without_layers,
    removal,
    text_loss,
    without_heads,
)
from tests.language.tiny import HEADS, LAYERS, WIDTH, hugging_face, tokens

ALL = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


def test_the_loss_on_text_is_that_of_transformers():
    theirs = hugging_face("llama")
    with torch.no_grad():
        expected = float(theirs(tokens(), labels=tokens(), use_cache=False).loss)
    assert text_loss(wrap(theirs), tokens()) == pytest.approx(expected, abs=1e-5)


def test_a_removed_layer_adds_nothing_to_the_stream():
    theirs = hugging_face("llama")
    by_hand = copy.deepcopy(theirs)
    with torch.no_grad():
        for layer in (1, 2):
            by_hand.model.layers[layer].self_attn.o_proj.weight.zero_()
            by_hand.model.layers[layer].mlp.down_proj.weight.zero_()
        expected = float(by_hand(tokens(), labels=tokens(), use_cache=False).loss)
    assert loss_without_layers(wrap(theirs), tokens(), (1, 2)) == pytest.approx(expected, abs=1e-5)


def test_a_removed_head_puts_out_its_mean_over_the_texts():
    model = wrap(hugging_face("llama"))
    heads = [(2, 3), (0, 1), (2, 0)]
    sites = {layer: f"blocks.{layer}.attn.hook_z" for layer in (0, 2)}
    record = look(model, tokens(), list(sites.values()))
    outputs = {layer: record[site][0].mean(dim=0) for layer, site in sites.items()}
    means = [Intervention(site=sites[layer], where={"head": head}, rule="mean") for layer, head in heads]
    expected = look(model, tokens(), interventions=means)["output"]
    found = look(model, tokens(), interventions=removal(heads, outputs))["output"]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert not torch.equal(found, record["output"])


def test_repeated_tokens_are_predicted_from_the_first_of_them_on():
    for before in (0, 1):  # with and without a token in front
        repeated = RepeatedTexts(torch.tensor([[9] * before + [4, 5, 6, 4, 5, 6]]), half=3)
        assert repeated.inputs[0, repeated.predicting].tolist() == [4, 5]
        assert repeated.inputs[0, repeated.predicting + 1].tolist() == [5, 6]
        assert int(repeated.predicting[0]) == before + 3


def test_as_many_others_are_drawn_from_the_same_layers():
    removed = [(0, 1), (0, 2), (2, 3)]
    draws = [draw_others(removed, ALL, np.random.default_rng(seed)) for seed in range(20)]
    for drawn in draws:
        assert Counter(layer for layer, _ in drawn) == {0: 2, 2: 1}
        assert len(set(drawn)) == 3 and not set(drawn) & set(removed)
    assert len({tuple(drawn) for drawn in draws}) > 1


def test_the_rest_is_drawn_anywhere():
    removed = [(1, head) for head in range(HEADS - 1)]
    for seed in range(50):
        drawn = draw_others(removed, ALL, np.random.default_rng(seed))
        assert len(set(drawn)) == HEADS - 1 and (1, HEADS - 1) in drawn and not set(drawn) & set(removed)
    assert draw_others(ALL, ALL, np.random.default_rng(0)) == []


def test_only_the_head_that_matters_changes_predictions():
    """Of a model whose other heads are cut off at the output map."""
    theirs = hugging_face("llama")
    width = WIDTH // HEADS
    with torch.no_grad():
        for layer in theirs.model.layers:
            kept = layer.self_attn.o_proj.weight[:, 2 * width : 3 * width].clone()
            layer.self_attn.o_proj.weight.zero_()
            if layer is theirs.model.layers[1]:
                layer.self_attn.o_proj.weight[:, 2 * width : 3 * width] = 10 * kept
    model = wrap(theirs)
    repeated = RepeatedTexts(tokens()[:, :5].repeat(1, 2), half=5)
    found = without_heads(model, tokens(), repeated, [(1, 2)], [(2, 0)], draws=3)
    assert len(found.draws) == 3
    for drawn in found.draws:
        assert drawn.text_loss == pytest.approx(found.unchanged.text_loss, abs=1e-6)
        assert drawn.repeated == pytest.approx(found.unchanged.repeated, abs=1e-6)
        assert drawn.induction == pytest.approx(found.unchanged.induction, abs=1e-6)
    for name in ("text_loss", "repeated", "induction"):  # the score is read in the layer behind
        assert abs(getattr(found.without, name) - getattr(found.unchanged, name)) > 1e-4, name
    assert found.unchanged.text_loss == pytest.approx(text_loss(model, tokens()), abs=1e-6)
    with torch.no_grad():
        logits = model(repeated.inputs)
    probabilities = logits.softmax(-1)[:, 5:9].gather(2, repeated.inputs[:, 6:, None])
    assert found.unchanged.repeated == pytest.approx(float(probabilities.mean()), abs=1e-6)


def test_a_removal_is_compared_with_the_draws():
    def predictions(loss: float) -> Predictions:
        return Predictions(loss, 1 - loss, 0.5)

    found = WithoutHeads(((0, 0),), predictions(0.1), predictions(0.4), [predictions(0.2), predictions(0.5)])
    assert found.exceeded("text_loss", 1).float().mean() == 0.5
    assert found.exceeded("repeated", -1).float().mean() == 0.5
    assert not found.exceeded("induction", -1).any()  # a tie exceeds nothing
    assert found.drawn("text_loss") == (pytest.approx(0.35), 0.2, 0.5)
