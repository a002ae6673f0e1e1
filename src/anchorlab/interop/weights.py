"""A trained member in TransformerLens 4: its weights in the library's layout, and a model with them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.errors import SpecError
from anchorlab.lens.look.inputs import as_ensemble
from anchorlab.lens.vectors.attribution import blocks, transformer
from anchorlab.models.attention import Attention, MergedAttention
from anchorlab.models.block import Block
from anchorlab.models.embedding import TokenEmbedding
from anchorlab.models.feedforward import FeedForward, LinearFeedForward
from anchorlab.models.transformer import Transformer
from anchorlab.training.ensemble import Ensemble


def transformer_lens_weights(model: Ensemble | nn.Module, member: int = 0) -> dict[str, Float[Tensor, "..."]]:
    """Return one member's weights in the layout of TransformerLens's `HookedTransformer`; the library is not needed.

    Parts that the model lacks are filled in: biases with zeros, output maps with the identity, missing feed-forward
    neurons with zeros. A merged key-query matrix becomes the query map, with the identity as the key map. A linear
    feed-forward layer W becomes `relu(x W) - relu(-x W)`. The weights of a model with unscaled scores
    (`RecallSpec(scale_scores=False)`) belong in a model with `use_attn_scale=False`.

    Shapes
        W_Q, W_K, W_V: `[head width head_width]`, with biases `[head head_width]`
        W_O: `[head head_width width]`
        W_in: `[width hidden]`, W_out: `[hidden width]`
        W_E: `[token width]`, W_pos: `[position width]`, W_U: `[width output]`

    Errors: `SpecError` for a model that is not one of this package's transformers on tokens; for a part that is not
    converted (no residual path, no positions, shifted values, linear attention, a mask or scaled scores in some blocks
    only, layer norm without feed-forward, norms before the layers, parallel layers); and for a member that does not
    exist.
    """
    ensemble = as_ensemble(model)
    template = transformer(ensemble)
    _check(template)
    if not 0 <= member < ensemble.size:
        raise SpecError("member", f"there is no member {member}", f"choose one from 0 to {ensemble.size - 1}")
    weights = ensemble.member_weights(member)
    held = {name: weights[name] for name in ("embed.W_E", "pos_embed.W_pos")}
    layers = blocks(template)
    perceptrons = [_perceptron(block, weights) for block in layers]
    hidden = max(W_in.shape[1] for W_in, *_ in perceptrons)
    for block, (W_in, b_in, W_out, b_out) in zip(layers, perceptrons, strict=True):
        held |= _heads(block.attn, weights)
        spare = hidden - W_in.shape[1]
        if hidden:
            held[f"{block.name}.mlp.W_in"] = functional.pad(W_in, (0, spare))
            held[f"{block.name}.mlp.b_in"] = functional.pad(b_in, (0, spare))
            held[f"{block.name}.mlp.W_out"] = functional.pad(W_out, (0, 0, 0, spare))
            held[f"{block.name}.mlp.b_out"] = b_out
        norms = (f"{block.name}.{norm}.{part}" for norm in ("ln1", "ln2") for part in ("w", "b"))
        held |= {name: weights[name] for name in norms if name in weights}
    W_E = held["embed.W_E"]
    W_U = held["unembed.W_U"] = weights.get("unembed.W_U", W_E.T if template.tied else torch.eye(W_E.shape[1]).to(W_E))
    held["unembed.b_U"] = weights.get("unembed.b_U", W_U.new_zeros(W_U.shape[1]))
    return held


def sizes(weights: Mapping[str, Float[Tensor, "..."]], layers: Sequence[Block]) -> dict[str, Any]:
    """Return the fields of TransformerLens's configuration for the weights of `transformer_lens_weights`."""
    heads, width, head_width = weights["blocks.0.attn.W_Q"].shape
    hidden = weights["blocks.0.mlp.W_in"].shape[1] if "blocks.0.mlp.W_in" in weights else None
    return {
        "n_layers": len(layers),
        "d_model": width,
        "n_heads": heads,
        "d_head": head_width,
        "d_mlp": hidden,
        "d_vocab": len(weights["embed.W_E"]),
        "d_vocab_out": weights["unembed.W_U"].shape[1],
        "n_ctx": len(weights["pos_embed.W_pos"]),
        "act_fn": "relu",
        "attn_only": hidden is None,
        "attention_dir": "causal" if layers[0].causal else "bidirectional",
        "use_attn_scale": scaled(layers[0]),
        "init_weights": False,
        "device": str(weights["embed.W_E"].device),
        "dtype": weights["embed.W_E"].dtype,
    }


def _check(template: Transformer) -> None:
    if not isinstance(template.embed, TokenEmbedding):
        problem = "reads vectors, but TransformerLens reads tokens at numbered positions"
        raise SpecError("model", problem, "use anchorlab.look instead")
    if template.pos_embed is None:
        problem = "is missing, but TransformerLens reads tokens at numbered positions"
        raise SpecError("model.pos_embed", problem, "use anchorlab.look instead")
    first = blocks(template)[0]
    for block in blocks(template):
        perceptron = block.mlp if isinstance(block.mlp, FeedForward) else None
        for part, refused, problem in (
            ("residual", not block.residual, "TransformerLens always has a residual path"),
            ("parallel", block.parallel, "parallel layers are not converted"),
            ("shift_values", getattr(block.attn, "shift_values", 0), "TransformerLens does not shift values"),
            ("attention", not block.attn.softmax, "TransformerLens always has a softmax"),
            ("mask", block.causal != first.causal, "TransformerLens masks all blocks or none"),
            ("scale_scores", scaled(block) != scaled(first), "TransformerLens scales all scores or none"),
            ("layer_norm", block.norm_first or template.ln_final, "norms before their layers are not converted"),
            ("layer_norm", block.ln1 and not block.mlp, "layer norm without a feed-forward layer is not converted"),
            ("feed_forward", perceptron and perceptron.activation != "relu", "only ReLU is converted"),
        ):
            if refused:
                raise SpecError(f"model.{part}", f"{block.name}: {problem}", "use anchorlab.look instead")


def scaled(block: Block) -> bool:
    """Return whether scores are divided by sqrt(head_width)."""
    return block.attn.scaled if isinstance(block.attn, MergedAttention) else True


def _heads(attention: Attention | MergedAttention, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a block's attention weights and biases under the library's names (shapes: `transformer_lens_weights`)."""
    name = attention.name
    W_V = weights[f"{name}.W_V"]
    identity = torch.eye(W_V.shape[1]).to(W_V)
    if isinstance(attention, MergedAttention):
        heads, inputs = 1, {"Q": weights[f"{name}.W_KQ"], "K": identity, "V": W_V}
    else:
        heads, inputs = attention.heads, {role: weights[f"{name}.W_{role}"] for role in "QKV"}
    held = {
        f"{name}.W_{role}": weight.reshape(len(weight), heads, -1).transpose(0, 1) for role, weight in inputs.items()
    }
    for role in "QKV":
        held[f"{name}.b_{role}"] = weights.get(f"{name}.b_{role}", W_V.new_zeros(W_V.shape[1])).reshape(heads, -1)
    held[f"{name}.W_O"] = weights.get(f"{name}.W_O", identity).reshape(heads, -1, W_V.shape[0])
    held[f"{name}.b_O"] = weights.get(f"{name}.b_O", W_V.new_zeros(W_V.shape[0]))
    return held


def _perceptron(
    block: Block, weights: Mapping[str, Tensor]
) -> tuple[
    Float[Tensor, "width hidden"], Float[Tensor, "hidden"], Float[Tensor, "hidden width"], Float[Tensor, "width"]
]:
    """Return a block's feed-forward layer as a two-layer ReLU perceptron; a block without one gets no neurons."""
    name = f"{block.name}.mlp"
    W_V = weights[f"{block.attn.name}.W_V"]
    identity = torch.eye(len(W_V)).to(W_V)
    if isinstance(block.mlp, LinearFeedForward):
        W_F = weights[f"{name}.W_F"]
        W_in, W_out = torch.cat([W_F, -W_F], dim=1), torch.cat([identity, -identity])
    else:
        W_in = weights.get(f"{name}.W_in", identity[:, :0])
        W_out = weights.get(f"{name}.W_out", identity[:0])
    b_in = weights.get(f"{name}.b_in", W_in.new_zeros(W_in.shape[1]))
    return W_in, b_in, W_out, weights.get(f"{name}.b_out", identity.new_zeros(len(identity)))
