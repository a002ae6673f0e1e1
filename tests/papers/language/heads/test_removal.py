"""Predictions without heads and layers, against transformers' own losses and weights changed by hand."""

import copy
from collections import Counter

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from anchorlab.language import wrap
from anchorlab.lens import Intervention, look
from anchorlab.papers.language.heads import removal as of
from tests.language.tiny import HEADS, LAYERS, WIDTH, hugging_face, tokens

ALL = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


def test_the_loss_on_text_is_that_of_transformers_also_without_a_layer():
    theirs = hugging_face("llama")
    with torch.no_grad():
        expected = float(theirs(tokens(), labels=tokens(), use_cache=False).loss)
    found = of.losses(wrap(theirs), tokens())
    assert found.shape == (len(tokens()),) and float(found.mean()) == pytest.approx(expected, abs=1e-5)
    torch.testing.assert_close(of.losses(wrap(theirs), tokens()[1:2]), found[1:2])
    theirs = hugging_face("llama")
    by_hand = copy.deepcopy(theirs)
    with torch.no_grad():
        for layer in (1, 2):
            by_hand.model.layers[layer].self_attn.o_proj.weight.zero_()
            by_hand.model.layers[layer].mlp.down_proj.weight.zero_()
        expected = float(by_hand(tokens(), labels=tokens(), use_cache=False).loss)
    assert float(of.losses_without_layers(wrap(theirs), tokens(), (1, 2)).mean()) == pytest.approx(expected, abs=1e-5)


def test_a_removed_head_puts_out_its_mean_over_the_texts():
    model = wrap(hugging_face("llama"))
    heads = [(2, 3), (0, 1), (2, 0)]
    sites = {layer: f"blocks.{layer}.attn.hook_z" for layer in (0, 2)}
    record = look(model, tokens(), list(sites.values()))
    outputs = {layer: record[site][0].mean(dim=0) for layer, site in sites.items()}
    means = [Intervention(site=sites[layer], where={"head": head}, rule="mean") for layer, head in heads]
    expected = look(model, tokens(), interventions=means)["output"]
    found = look(model, tokens(), interventions=of.removal(heads, outputs))["output"]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert not torch.equal(found, record["output"])


def test_repeated_tokens_are_predicted_from_the_first_of_them_on():
    for before in (0, 1):  # with and without a token in front
        repeated = of.RepeatedTexts(torch.tensor([[9] * before + [4, 5, 6, 4, 5, 6]]), half=3)
        assert repeated.inputs[0, repeated.predicting].tolist() == [4, 5]
        assert repeated.inputs[0, repeated.predicting + 1].tolist() == [5, 6]
        assert int(repeated.predicting[0]) == before + 3


def test_as_many_others_are_drawn_from_the_same_layers_or_the_nearest():
    removed = [(0, 1), (0, 2), (2, 3)]
    draws = [of.draw_others(removed, ALL, np.random.default_rng(seed)) for seed in range(20)]
    for drawn in draws:
        assert Counter(layer for layer, _ in drawn) == {0: 2, 2: 1}
        assert len(set(drawn)) == 3 and not set(drawn) & set(removed)
    assert len({tuple(drawn) for drawn in draws}) > 1
    removed = [(0, head) for head in range(HEADS - 1)]
    for seed in range(50):
        drawn = of.draw_others(removed, ALL, np.random.default_rng(seed))
        assert Counter(layer for layer, _ in drawn) == {0: 1, 1: HEADS - 2}
        assert len(set(drawn)) == HEADS - 1 and (0, HEADS - 1) in drawn
    assert of.draw_others(ALL, ALL, np.random.default_rng(0)) == []


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
    repeated = of.RepeatedTexts(tokens()[:, :5].repeat(1, 2), half=5)
    found = of.without_heads(model, tokens(), repeated, [(1, 2)], [(2, 0)], draws=3)
    assert len(found.draws) == 3
    names = ("text_loss", "repeated", "induction")
    for name in names:
        assert found.drawn(name).shape == (len(tokens()), 3)
        assert float(found.drawn(name).abs().max()) < 1e-6
        assert float(found.change(name).abs().min()) > 1e-5, name  # the score is read in the layer behind
    torch.testing.assert_close(found.unchanged.text_loss, of.losses(model, tokens()))
    with torch.no_grad():
        logits = model(repeated.inputs)
    probabilities = logits.softmax(-1)[:, 5:9].gather(2, repeated.inputs[:, 6:, None])[..., 0]
    torch.testing.assert_close(found.unchanged.repeated, probabilities.mean(dim=1), atol=1e-6, rtol=0)
    again = of.without_heads(model, tokens(), repeated, [(1, 2)], [], draws=1, seed=1)
    assert len(again.unchanged.induction) == 0


def test_a_removal_is_compared_with_each_draw_on_each_text():
    def predictions(*of_texts: float) -> of.Predictions:
        one = torch.tensor(of_texts)
        return of.Predictions(one, 1 - one, torch.zeros(0))

    draws = [predictions(0.3, 0.5), predictions(0.1, 1.0)]
    found = of.WithoutHeads(((0, 0),), predictions(0.1, 0.2), predictions(0.4, 0.4), draws)
    torch.testing.assert_close(found.change("text_loss"), torch.tensor([0.3, 0.2]))
    torch.testing.assert_close(found.change("repeated"), torch.tensor([-0.3, -0.2]))
    torch.testing.assert_close(found.drawn("text_loss"), torch.tensor([[0.2, 0.0], [0.3, 0.8]]))
