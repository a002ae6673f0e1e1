"""Pretrained language models as modules with named sites and weights under our names."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from anchorlab.errors import SpecError
from anchorlab.language.architectures import Architecture
from anchorlab.language.attention import Pass, passing
from anchorlab.language.encode import TokenisedTexts, text_after, tokenise
from anchorlab.language.taps import install, sites
from anchorlab.language.weight_holders import Heads, Layers, Norm, Output, Part
from anchorlab.language.weight_names import BASE, Entry, join_all, layout, split_all
from anchorlab.models.gpu import check_target
from anchorlab.models.input_checks import lengths_of_mask
from anchorlab.models.model import gather_positions
from anchorlab.models.sites import Sites, Tap, by_name, identity_tap
from anchorlab.models.transformer import Entering

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class LanguageModel(nn.Module):
    """A pretrained decoder: Hugging Face's own computation, with the sites and weights of this package's models.

        model = al.pretrained("smollm2")
        texts = model.tokenise(["The capital of France is", "Once upon a time"])  # inputs and lengths
        record = al.look(model, texts, ["blocks.*.attn.hook_pattern"], output=False)
        al.detect(record)

    Its weights have the names and the orientation `[input output]` of this package, such as `blocks.3.attn.W_Q`, and
    share Hugging Face's memory where its layout allows. Input and output embeddings that Hugging Face ties are two
    weights here, `embed.W_E` and `unembed.W_U`: editing one leaves the other unchanged. A change in place reaches all
    that shares the memory, the other one and Hugging Face's weights; a `copy.deepcopy` has weights of its own.

    Fields
        name: the name under which the model was opened
        sites: the sites by name, in the order of visits
        context: the maximum number of positions
        vocabulary: the number of token ids that the model reads
        tokenizer: Hugging Face's tokenizer; None for a model without a tokenizer
        hugging_face: Hugging Face's model, which computes, with its configuration and methods such as `generate`
    """

    positions_narrow_sites: ClassVar[bool] = False
    """`positions` select rows of the logits only; sites keep all positions."""
    tied: ClassVar[bool] = False

    sites: Sites

    def __init__(
        self,
        name: str,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase | None",
        architecture: Architecture,
    ) -> None:
        super().__init__()
        config = model.config
        self.name, self.tokenizer = name, tokenizer
        self.context = int(config.max_position_embeddings)
        running = _Running(model, architecture)
        heads, layers = int(config.num_attention_heads), len(running.layers)
        theirs = dict(running.named_parameters(remove_duplicate=False))
        try:
            self._entries: list[Entry] = layout(architecture, theirs, layers, heads)
        except KeyError as error:
            problem = f"has other weights than a {config.model_type!r} model: {error.args[0]}"
            raise SpecError("model", problem, "open a model of an architecture as published") from None
        self.vocabulary = len(theirs[f"{BASE}.{architecture.embed}.weight"])
        self._architecture = architecture
        self.__dict__["_running"] = running  # not a submodule, because this module's own weights replace its weights
        attentions = [running.attention(layer) for layer in range(layers)]
        head_width = int(getattr(attentions[0], "head_dim", None) or config.hidden_size // heads)
        shared = int(getattr(config, "num_key_value_heads", None) or heads)
        parallel = architecture.is_parallel(config)
        self.sites = by_name(sites(architecture, layers, shared != heads, parallel))
        install(architecture, running.base, heads, parallel)
        self.embed, self.unembed, self.blocks = Part("embed"), Output("unembed"), nn.ModuleList()
        self.pos_embed = None if architecture.rotary else Part("pos_embed")
        norm = running.base.get_submodule(architecture.final_norm)
        self.ln_final = Norm.like(norm, "ln_final", architecture.gain_offset)
        for layer, attention in enumerate(attentions):
            attn = Heads(f"blocks.{layer}.attn", heads, shared, head_width, float(attention.scaling))
            self.blocks.append(Layers(f"blocks.{layer}", attn, norm, architecture, parallel))
        for ours, value in split_all(self._entries, {key: value.detach() for key, value in theirs.items()}).items():
            owner, _, leaf = ours.rpartition(".")
            _part_of(self, owner).register_parameter(leaf, nn.Parameter(value))
        for place, (_, value) in enumerate(running.named_buffers()):
            self.register_buffer(f"constant_{place}", value, persistent=False)

    @property
    def hugging_face(self) -> "PreTrainedModel":
        """Hugging Face's model with its own weights; edits do not change it, but changes in place may."""
        found: PreTrainedModel = self.__dict__["_running"].model[0]
        return found

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def forward(
        self,
        inputs: Int[Tensor, "batch position"],
        positions: Int[Tensor, "*batch scored"] | None = None,
        tap: Tap = identity_tap,
        entering: Entering | None = None,
        attention_mask: Bool[Tensor, "batch position"] | Int[Tensor, "batch position"] | None = None,
        past: Any = None,
    ) -> Float[Tensor, "batch scored output"]:
        """Return the logits of the next token at `positions`, or at all positions for None.

        Sequences start at position 0. Shorter sequences may be padded on the right with any token: attention is causal,
        so padding changes nothing before it.

        Args:
            inputs: token ids
            positions: `[scored]` or `[batch scored]`; all sites keep all positions, except `hook_logits`, which has
                only these
            tap: called at every site
            entering: a block and the stream that enters it; the pass starts there instead of at the embedding
            attention_mask: a mask of padding on the right, as in transformers; it changes nothing here
            past: a cache of transformers, such as `empty_cache` returns, with the tokens before `inputs`; `inputs` are
                added to it. Sites then have the positions of `inputs`, and patterns the keys of all tokens

        Errors: `SpecError` for sequences longer than the context, for ids outside the vocabulary, and for a mask with
        padding on the left, which would shift the positions.
        """
        self._check(inputs, 0 if past is None else int(past.get_seq_length()))
        if attention_mask is not None:
            lengths_of_mask(attention_mask, inputs, "attention_mask")
        running: _Running = self.__dict__["_running"]
        architecture = self._architecture
        weights = join_all(self._entries, dict(self.named_parameters(remove_duplicate=False)))
        constants = {
            name: getattr(self, f"constant_{place}") for place, (name, _) in enumerate(running.named_buffers())
        }
        this = Pass(tap, len(inputs), architecture.rotary, architecture.float32_softmax, entering)
        arguments = {"positions": positions, "first": 0 if entering is None else entering[0], "past": past}
        with passing(this):
            logits: Tensor = functional_call(running, {**weights, **constants}, (inputs,), arguments, tie_weights=False)
        return tap("hook_logits", logits)

    def empty_cache(self) -> Any:
        """Return an empty cache of keys and values, for `past`."""
        from transformers import DynamicCache

        return DynamicCache(config=self.hugging_face.config)

    def tokenise(self, texts: Sequence[str], special: bool = True) -> TokenisedTexts:
        """Return texts as token ids, padded on the right, with their lengths.

        The special tokens that the tokenizer puts before a text are added, such as `<bos>`, but not to a text that
        begins with them, as chat templates write it. With `special` False nothing is added.

        Errors: `SpecError` for a model without a tokenizer, and for a text without tokens or longer than the context.
        """
        return tokenise(self.tokenizer, texts, self.context, special=special)

    def words(self, ids: Int[Tensor, "position"]) -> list[str]:
        """Return each token as text, with its spaces.

        Errors: `SpecError` for a model without a tokenizer.
        """
        if self.tokenizer is None:
            raise SpecError("tokenizer", f"{self.name} has none", "open a model with one, or give token ids")
        return [text_after(self.tokenizer, [token]) for token in ids.tolist()]

    def to(self, *given: Any, **named: Any) -> "LanguageModel":
        """Move or convert the weights, as in any module. Errors: `SpecError` for a device that does not exist."""
        check_target(given, named)
        return super().to(*given, **named)

    def __deepcopy__(self, memo: dict[int, Any]) -> "LanguageModel":
        """Return a copy with its own weights; Hugging Face's weights stay shared, because no pass reads them."""
        running: _Running = self.__dict__["_running"]
        memo |= {id(value): value for value in (*running.parameters(), *running.buffers())}
        memo[id(self.tokenizer)] = self.tokenizer
        memo[id(self.hugging_face)] = self.hugging_face
        made = self.__class__.__new__(self.__class__)
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            made.__dict__[name] = value if name in ("_entries", "_architecture") else copy.deepcopy(value, memo)
        return made

    def _check(self, inputs: Tensor, before: int) -> None:
        if before + inputs.shape[1] > self.context:
            problem = f"have {before + inputs.shape[1]} tokens, and {self.name} reads {self.context}"
            raise SpecError("inputs", problem, "give shorter texts")
        if inputs.numel() and (int(inputs.min()) < 0 or int(inputs.max()) >= self.vocabulary):
            problem = f"hold a token id outside 0..{self.vocabulary - 1}"
            raise SpecError("inputs", problem, f"use the tokenizer of {self.name}")


class _Running(nn.Module):
    """Hugging Face's base model and output map, run from a given block on, with logits at given positions."""

    def __init__(self, model: "PreTrainedModel", architecture: Architecture) -> None:
        super().__init__()
        self.model = (model,)  # in a tuple, so that its weights do not appear under a second name
        self.base, self.head = model.base_model, model.get_output_embeddings()
        self.layers_path = architecture.layers

    @property
    def layers(self) -> nn.ModuleList:
        found = self.base.get_submodule(self.layers_path)
        assert isinstance(found, nn.ModuleList)
        return found

    def attention(self, layer: int) -> Any:
        """Return the attention module of a layer: its first submodule with a `scaling`."""
        return next(part for part in self.layers[layer].modules() if hasattr(part, "scaling"))

    def forward(self, inputs: Tensor, positions: Tensor | None, first: int, past: Any) -> Tensor:
        base = self.base
        if first:
            base = copy.copy(base)
            skipped = [_Skipped() for _ in range(first)]
            base._modules = {**base._modules, self.layers_path: nn.ModuleList([*skipped, *self.layers[first:]])}
        hidden = base(input_ids=inputs, past_key_values=past, use_cache=past is not None).last_hidden_state
        logits: Tensor = self.head(gather_positions(hidden, positions))
        return logits


class _Skipped(nn.Module):
    def forward(self, stream: Tensor, *others: Any, **named: Any) -> Tensor:
        return stream


def _part_of(model: nn.Module, path: str) -> nn.Module:
    """Return the submodule at a path; missing parts are created."""
    part = model
    for name in path.split("."):
        if getattr(part, name, None) is None:
            setattr(part, name, Part(path))
        part = part.get_submodule(name)
    return part
