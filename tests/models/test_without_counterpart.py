"""Scores without a scale and parallel layers elsewhere: converted as they are, or refused in one line."""

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.interop import transformer_lens_weights
from anchorlab.lens import qk
from anchorlab.models import DecoderSpec, OneLayerSpec, RecallSpec
from anchorlab.models.block import Block
from anchorlab.tasks import task as make_task
from anchorlab.training import Ensemble, initialise
from anchorlab.viewer.live import can_run, live_model
from tests.models import reference

TASK = make_task("recall/noisy", source="uniform", tokens=6, length=8)
UNSCALED = RecallSpec(width=10, scale_scores=False)


def test_unscaled_scores_are_those_of_a_library_that_does_not_scale():
    """With `use_attn_scale=False` a `HookedTransformer` divides by nothing: its queries are ours."""
    ensemble = initialise(UNSCALED, TASK.shape, [0, 1], torch.float64)
    ours = {name: value.numpy() for name, value in ensemble.member_weights(1).items()}
    theirs = transformer_lens_weights(ensemble, member=1)
    handed = ours | {f"blocks.{n}.attn.W_KQ": theirs[f"blocks.{n}.attn.W_Q"][0].numpy() for n in range(2)}
    for layer in range(2):
        assert torch.equal(theirs[f"blocks.{layer}.attn.W_K"][0], torch.eye(10).double())
    for tokens in TASK.sample("train", 3, 0).inputs.numpy():
        expected = reference.recall(tokens, ours, ("mlp", "mlp"), scaled=False)
        assert np.abs(reference.recall(tokens, handed, ("mlp", "mlp"), scaled=False) - expected).max() < 1e-10


def test_the_query_key_circuit_of_the_one_layer_model_is_its_matrix():
    ensemble = initialise(OneLayerSpec(width=9, start="normal"), TASK.shape, [0, 1])
    assert torch.equal(qk(ensemble).matrix[:, 0, 0], ensemble.weights["blocks.0.attn.W_KQ"])


def test_a_library_that_adds_positions_has_no_one_layer_model():
    ensemble = initialise(OneLayerSpec(width=9), TASK.shape, [0])
    with pytest.raises(SpecError, match=r"^model\.pos_embed: is missing, .*; use anchorlab.look instead"):
        transformer_lens_weights(ensemble)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (RecallSpec(width=10), None),
        (RecallSpec(width=10, learned_positions=True), None),
        (UNSCALED, "model.blocks.0.attn: does not scale its scores"),
        (OneLayerSpec(width=9), "model.pos_embed: is missing"),
    ],
)
def test_a_page_says_which_it_can_run(spec, problem):
    assert can_run(spec, TASK) == problem


def test_layers_side_by_side_are_refused():
    module = DecoderSpec(layers=1, heads=1, width=6, layer_norm=False).build(TASK.shape)
    block = module.blocks[0]
    assert isinstance(block, Block)
    module.blocks[0] = Block(block.name, block.attn, block.mlp, parallel=True)
    weights = {name: torch.zeros(1, *value.shape) for name, value in module.named_parameters()}
    ensemble = Ensemble(module, weights, tuple(weights))
    with pytest.raises(SpecError, match=r"^model\.blocks\.0: runs its two layers in parallel; show"):
        live_model([ensemble], TASK)
    with pytest.raises(SpecError, match=r"^model\.parallel: blocks\.0: parallel layers are not converted"):
        transformer_lens_weights(ensemble)
