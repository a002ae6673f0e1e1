"""Turn a trained decoder into a model of transformers, which generates text and which other libraries read."""

from typing import TYPE_CHECKING, Any

import torch

from anchorlab.errors import SpecError, from_extra
from anchorlab.language.architectures import ARCHITECTURES
from anchorlab.language.weight_names import BASE, HEAD, join_all, layout, split_all
from anchorlab.models.decoder import DecoderSpec
from anchorlab.models.transformer import Transformer
from anchorlab.training.ensemble import Ensemble

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FORMS = {
    "gpt2": {"norm": "pre", "positions": "learned", "activation": "gelu"},
    "llama": {"norm": "rms", "positions": "rotary", "activation": "swiglu"},
}
_REMEDY = "use run.save_pretrained for a model in a form of its own"
_ALWAYS = dict.fromkeys(("residual", "output_linear", "layer_norm", "feed_forward", "projection", "mask"), True)


def to_hugging_face(model: Ensemble, member: int = 0) -> "PreTrainedModel":
    """Copy one member into a model of transformers: `GPT2LMHeadModel` or `LlamaForCausalLM`.

    A decoder in GPT-2's form has `norm="pre"`, learned positions and `activation="gelu"`; one in Llama's form has
    `norm="rms"`, rotary positions and `activation="swiglu"`. The copy computes the same logits, in float64 if the
    member is in float64; transformers computes the angles of rotary positions in float32. It has no tokenizer and no
    tokens that begin or end a text. Its `save_pretrained` writes a folder that `al.pretrained` opens.

    Errors: `SpecError` for any other model, naming the first field in the way; for a member that does not exist; and if
    transformers is not installed.
    """
    spec, template = model.spec, model.template
    if not isinstance(spec, DecoderSpec) or not isinstance(template, Transformer):
        raise SpecError("model", "is not a decoder", "train a DecoderSpec in the form of GPT-2 or Llama")
    form = _form(spec, template)
    if not 0 <= member < model.size:
        raise SpecError("member", f"there is no member {member}", f"choose one from 0 to {model.size - 1}")
    kind = next(iter(model.weights.values())).dtype
    made = _blank(form, spec, template).to(torch.promote_types(kind, torch.float32))
    theirs = {
        f"{start}.{name}": weight
        for start, part in ((BASE, made.base_model), (HEAD, made.get_output_embeddings()))
        for name, weight in part.named_parameters()
    }
    entries = layout(ARCHITECTURES[form], theirs, spec.layers, spec.heads)
    weights = {name: value.detach().cpu() for name, value in model.member_weights(member).items()}
    if spec.tied:
        weights["unembed.W_U"] = weights["embed.W_E"].T
    zeros = split_all(entries, {name: torch.zeros_like(weight) for name, weight in theirs.items()})
    with torch.no_grad():
        for name, value in join_all(entries, {**zeros, **weights}).items():  # zeros: biases that the decoder lacks
            theirs[name].copy_(value)
    return made.eval()


def _form(spec: DecoderSpec, template: Transformer) -> str:
    """Return the architecture whose form a decoder has. Errors: `SpecError` that names the first field in the way."""
    form = "llama" if spec.norm == "rms" or spec.positions == "rotary" else "gpt2"
    tokens = len(template.embed.W_E)
    outputs = tokens if template.unembed is None else template.unembed.W_U.shape[1]
    for field, needed in (_FORMS[form] | _ALWAYS | {"shift_values": 0}).items():
        given = getattr(spec, field)
        if given != needed and set(given if isinstance(given, tuple) else (given,)) != {needed}:
            raise SpecError(f"model.{field}", f"is {given!r}, not {needed!r} as in {form}", _REMEDY)
    if not all(block.attn.softmax for block in template.blocks):  # uniform attention is a softmax of zeros
        raise SpecError("model.attention", f"is {spec.attention!r}, and {form} has a softmax", _REMEDY)
    if form == "gpt2" and spec.heads * spec.head_width != spec.width:
        problem = f"is {spec.head_width}; in gpt2, heads x head_width is the width {spec.width}"
        raise SpecError("model.head_width", problem, _REMEDY)
    if tokens != outputs:
        problem = f"reads {tokens} tokens and predicts {outputs}, and a language model predicts what it reads"
        raise SpecError("model", problem, _REMEDY)
    return form


def _blank(form: str, spec: DecoderSpec, template: Transformer) -> Any:
    """Return a model of transformers in the decoder's sizes; its weights are still to be copied."""
    with from_extra("transformers", "language"):
        import transformers
    hidden, tokens = spec.hidden or 3 * spec.width, len(template.embed.W_E)
    norm: Any = template.ln_final
    shared = {"vocab_size": tokens, "tie_word_embeddings": spec.tied, "bos_token_id": None, "eos_token_id": None}
    if form == "gpt2":
        positions: Any = template.pos_embed
        config: Any = transformers.GPT2Config(
            n_positions=len(positions.W_pos),
            n_embd=spec.width,
            n_layer=spec.layers,
            n_head=spec.heads,
            n_inner=hidden,
            activation_function="gelu_new",
            layer_norm_epsilon=norm.epsilon,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
            **shared,
        )
        return transformers.GPT2LMHeadModel(config)
    config = transformers.LlamaConfig(
        hidden_size=spec.width,
        intermediate_size=hidden,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        head_dim=spec.head_width,
        rms_norm_eps=norm.epsilon,
        attention_bias=spec.biases,
        mlp_bias=spec.biases,
        **shared,
    )
    return transformers.LlamaForCausalLM(config)
