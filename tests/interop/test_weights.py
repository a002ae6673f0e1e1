"""Members in TransformerLens's layout: against that library's conventions written out in numpy."""

import numpy as np
import pytest
import torch
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.interop import transformer_lens_weights
from anchorlab.lens import look
from anchorlab.models import FNNSpec, OneLayerSpec, VectorSpec
from anchorlab.models.attention import Attention
from anchorlab.models.block import Block, LayerNorm
from anchorlab.models.embedding import PositionEmbedding, TokenEmbedding, Unembedding
from anchorlab.models.feedforward import FeedForward
from anchorlab.models.transformer import Transformer
from anchorlab.training.ensemble import initialise
from tests.interop.members import DECODER, INPUTS, PLAIN, RECALL, SHAPE, SPECS, drawn


def normalised(x, w, b):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * w + b


def conventional(inputs, W, causal, scaled=True):
    """The logits of TransformerLens's layout: what its documentation says about each weight, for all heads at once."""
    W = {name: value.double().numpy() for name, value in W.items()}
    x = W["embed.W_E"][inputs.numpy()] + W["pos_embed.W_pos"][: inputs.shape[1]]
    hidden = np.triu(np.full((x.shape[1], x.shape[1]), -np.inf), 1) if causal else 0.0
    for layer in range(2):
        w = {name.removeprefix(f"blocks.{layer}."): value for name, value in W.items()}
        q, k, v = (
            np.einsum("bpd,hde->bhpe", x, w[f"attn.W_{role}"]) + w[f"attn.b_{role}"][None, :, None] for role in "QKV"
        )
        scores = np.einsum("bhqe,bhke->bhqk", q, k) / (np.sqrt(q.shape[-1]) if scaled else 1.0) + hidden
        pattern = np.exp(scores - scores.max(axis=-1, keepdims=True))
        pattern /= pattern.sum(axis=-1, keepdims=True)
        x = x + np.einsum("bhqk,bhke,hed->bqd", pattern, v, w["attn.W_O"], optimize=True) + w["attn.b_O"]
        if "ln1.w" in w:
            x = normalised(x, w["ln1.w"], w["ln1.b"])
        if "mlp.W_in" in w:
            x = x + np.maximum(x @ w["mlp.W_in"] + w["mlp.b_in"], 0) @ w["mlp.W_out"] + w["mlp.b_out"]
        if "ln2.w" in w:
            x = normalised(x, w["ln2.w"], w["ln2.b"])
    return x @ W["unembed.W_U"] + W["unembed.b_U"]


def by_hand(*, norm_first=False, parallel=False, activation="relu", ln_final=False):
    """A transformer on tokens with biases everywhere, which no spec builds."""
    block = Block(
        "blocks.0",
        Attention("blocks.0.attn", 6, 2, 3, biases=True),
        FeedForward("blocks.0.mlp", 6, 5, activation, biases=True),
        norm_width=6 if norm_first else None,
        norm_first=norm_first,
        parallel=parallel,
    )
    module = Transformer(
        TokenEmbedding(11, 6),
        PositionEmbedding(7, 6),
        [block, Block("blocks.1", Attention("blocks.1.attn", 6, 2, 3, biases=True), None)],
        LayerNorm("ln_final", 6) if ln_final else None,
        Unembedding(6, 12, bias=True),
        draw=lambda module, generator: None,
    )
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(generator=generator)
    return module


class TestWeights:
    @pytest.mark.parametrize("name", SPECS)
    def test_say_the_same_in_the_library_s_conventions(self, name):
        spec = SPECS[name]
        ensemble = drawn(spec, dtype=torch.float64)
        ours = look(ensemble, INPUTS)["output"]
        for member in range(2):
            weights = transformer_lens_weights(ensemble, member)
            causal, scaled = getattr(spec, "mask", True), getattr(spec, "scale_scores", True)
            theirs = conventional(INPUTS, weights, causal, scaled)
            assert np.abs(theirs - ours[member].numpy()).max() < 1e-10

    def test_have_the_library_s_shapes(self):
        weights = transformer_lens_weights(drawn(DECODER))
        shapes = {name: tuple(value.shape) for name, value in weights.items() if not name.startswith("blocks.1")}
        assert shapes == {
            "embed.W_E": (11, 12),
            "pos_embed.W_pos": (7, 12),
            **{f"blocks.0.attn.W_{role}": (3, 12, 5) for role in "QKV"},
            **{f"blocks.0.attn.b_{role}": (3, 5) for role in "QKV"},
            "blocks.0.attn.W_O": (3, 5, 12),
            "blocks.0.attn.b_O": (12,),
            "blocks.0.mlp.W_in": (12, 9),
            "blocks.0.mlp.b_in": (9,),
            "blocks.0.mlp.W_out": (9, 12),
            "blocks.0.mlp.b_out": (12,),
            **{f"blocks.0.ln{norm}.{part}": (12,) for norm in (1, 2) for part in "wb"},
            "unembed.W_U": (12, 12),
            "unembed.b_U": (12,),
        }

    def test_heads_take_their_own_columns(self):
        ensemble = drawn(DECODER)
        ours = ensemble.weights["blocks.1.attn.W_V"][1]
        theirs = transformer_lens_weights(ensemble, member=1)["blocks.1.attn.W_V"]
        for head in range(3):
            assert torch.equal(theirs[head], ours[:, 5 * head : 5 * head + 5])

    def test_of_a_module_made_by_hand_keep_its_biases(self):
        module = by_hand().double()
        with torch.no_grad():
            ours = module(INPUTS)
        theirs = conventional(INPUTS, transformer_lens_weights(module), causal=True)
        assert np.abs(theirs - ours.numpy()).max() < 1e-10


class TestRefusals:
    @pytest.mark.parametrize(
        ("part", "spec"),
        [
            ("residual", PLAIN.replace(residual=(True, False))),
            ("shift_values", PLAIN.replace(shift_values=1)),
            ("mask", PLAIN.replace(mask=(True, False))),
            ("layer_norm", DECODER.replace(feed_forward=(True, False))),
        ],
    )
    def test_name_the_part_without_a_counterpart(self, part, spec):
        with pytest.raises(SpecError) as error:
            transformer_lens_weights(drawn(spec))
        assert error.value.field == f"model.{part}"
        assert error.value.remedy

    @pytest.mark.parametrize(
        ("part", "switches"),
        [
            ("layer_norm", {"norm_first": True}),
            ("layer_norm", {"ln_final": True}),
            ("parallel", {"parallel": True}),
            ("feed_forward", {"activation": "gelu"}),
        ],
    )
    def test_of_modules_made_by_hand(self, part, switches):
        with pytest.raises(SpecError, match=rf"^model\.{part}: blocks\.0: "):
            transformer_lens_weights(by_hand(**switches))

    def test_of_scores_scaled_in_some_blocks_only(self):
        module = RECALL.build(SHAPE)
        module.blocks[1].attn.scaled = False
        with pytest.raises(SpecError, match=r"^model\.scale_scores: blocks\.1: "):
            transformer_lens_weights(module)

    def test_of_a_model_without_positions(self):
        with pytest.raises(SpecError, match=r"^model\.pos_embed: is missing, .*; use anchorlab.look instead"):
            transformer_lens_weights(drawn(OneLayerSpec(width=13)))

    def test_of_vectors_and_of_other_kinds(self):
        vectors = initialise(VectorSpec(layers=1, heads=2, width=8), TaskShape("vectors", 7, 6, 3), seeds=[0])
        with pytest.raises(SpecError, match=r"^model: reads vectors"):
            transformer_lens_weights(vectors)
        for other in (drawn(FNNSpec(layers=1, width=3)), nn.Linear(2, 2)):
            with pytest.raises(SpecError, match=r"^model: .*give a transformer"):
                transformer_lens_weights(other)

    @pytest.mark.parametrize("member", [-1, 2])
    def test_of_a_member_that_is_not_there(self, member):
        with pytest.raises(SpecError, match=f"^member: there is no member {member}; choose one from 0 to 1"):
            transformer_lens_weights(drawn(PLAIN), member)
