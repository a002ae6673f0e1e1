"""Logits from the residual stream: the direct contribution of each component, and the logit lens at each depth."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.func import functional_call

from anchorlab.errors import SpecError
from anchorlab.lens.grids import Tabled, grid_table
from anchorlab.lens.look import AnyInputs, AnyModel, AnyPositions, Record, Subject, as_ensemble, look_at, row_ranges
from anchorlab.models.attention import affine
from anchorlab.models.block import Block
from anchorlab.models.input_checks import check_range
from anchorlab.models.model import gather_positions
from anchorlab.models.precision import at_least_float32
from anchorlab.models.sites import identity_tap
from anchorlab.models.stack import Stack, StackedBlock, StackedNorm
from anchorlab.models.transformer import Transformer
from anchorlab.training.ensemble import Ensemble

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, repr=False)
class Attribution(Tabled):
    """The contribution of each component to the logits; all contributions add up to `logits`.

    `components` are `hook_embed`, `hook_pos_embed`, `blocks.0.attn.head.0` and so on, `blocks.0.mlp` and so on, and
    last `bias`: the biases of attention outputs, layer norms and the output map. The bias of a feed-forward layer
    counts as part of that layer.

    Shapes
        contributions: `[member component batch scored]` for given tokens, with a last axis `output` for all tokens
        logits: `[member batch scored]`, also with a last axis `output` for all tokens
        positions: the scored positions, `[batch scored]`
        tokens: the token at each scored position, sequence by sequence: its text in a pretrained model, else its
            number; empty if the model reads vectors
    """

    components: tuple[str, ...]
    contributions: Float[Tensor, "member component batch scored *output"]
    logits: Float[Tensor, "member batch scored *output"]
    positions: Int[Tensor, "batch scored"]
    tokens: tuple[str, ...]

    @property
    def table(self) -> "polars.DataFrame":
        """One row per member and component, in the model's order, with its mean contribution over batch and scored."""
        means = self._of_given_tokens().mean(dim=(2, 3))
        return grid_table({"member": range(len(means)), "component": self.components}, {"contribution": means})

    @property
    def by_token(self) -> "polars.DataFrame":
        """One row per member, component, text and scored token: its position, the token there, the contribution.

        `text` counts the sequences.
        """
        import polars

        if not self.tokens:
            raise SpecError("inputs", "are vectors, which have no names", "read `contributions`")
        contributions = self._of_given_tokens()
        members, components, texts, scored = contributions.shape
        axes = {"member": range(members), "component": self.components, "text": range(texts), "place": range(scored)}
        values = {"position": self.positions.expand(contributions.shape), "contribution": contributions}
        rows = grid_table(axes, values).drop("place")
        return rows.insert_column(3, polars.Series("token", self.tokens * (members * components)))

    def _of_given_tokens(self) -> Float[Tensor, "member component batch scored"]:
        if self.contributions.ndim > 4:
            raise SpecError("tokens", "contributions to all tokens make no table", "attribute to given tokens")
        return self.contributions


def attribute(
    model: AnyModel,
    inputs: AnyInputs,
    tokens: Int[Tensor, "batch scored"] | None = None,
    positions: AnyPositions | None = None,
    batch_size: int = 512,
) -> Attribution:
    """Return the direct contribution of each component to the logits.

    The residual stream is the sum of the outputs of embeddings, heads and feed-forward layers. A layer norm is linear
    once its scale is frozen: `x -> (x - mean(x)) / s * w + b`, with the standard deviation s of the whole stream. The
    same holds for a root-mean-square norm. So every summand can be followed through all later norms of the stream and
    the output map. In a pre-layer-norm model, such as a pretrained model, this is only the last norm; in the
    post-layer-norm decoder it is every norm. Effects of a component through later layers do not count. Without a
    residual path, earlier components contribute 0.

    Args:
        model: as in `look`, with a transformer of this package or a pretrained model.
        tokens: the tokens whose logits to attribute, one per scored position; None: all tokens.
        positions: the scored positions, `[scored]` or `[batch scored]`; None: the last of each sequence.

    Other arguments: as in `look`.
    """
    subject = Subject.of(model, inputs, positions)
    ensemble, inputs, positions = subject.ensemble, subject.inputs, subject.scored
    template = stack(ensemble)
    if template.blocks[0].adds_normed:
        raise SpecError("model", "normalises what its layers add, which is then no sum over heads", "use logit_lens")
    if tokens is not None and tokens.shape != (shape := (len(inputs), positions.shape[-1])):
        raise SpecError("tokens", f"have shape {tuple(tokens.shape)}", f"give one for each scored position, {shape}")
    ends = ("hook_embed", "hook_pos_embed", "hook_z", "hook_mlp_out", "hook_resid_mid", "hook_resid_post")
    summed = [site for site in template.sites if site.endswith(ends)]
    by_member = []
    for member in range(ensemble.size):
        one, found = ensemble.select([member]), []
        for rows in row_ranges(range(len(inputs)), batch_size):
            here = slice(rows.start, rows.stop)
            scored = positions if positions.ndim == 1 else positions[here]
            record = look_at(Subject(one, subject.access, inputs[here], scored), summed)
            parts = _Parts(template, one.member_weights(0), record, scored)
            asked = None if tokens is None else tokens[here]
            whole = at_least_float32(record["output"])  # of one member
            if asked is not None:
                check_range(asked, whole.shape[-1], "tokens", "a token", "give tokens that the model predicts")
            logits = whole if asked is None else whole.gather(-1, asked[None, ..., None]).squeeze(-1)
            found.append((parts.logits(asked), logits))
        by_member.append([torch.cat(each, dim=1) for each in zip(*found, strict=True)])
    contributions, logits = (torch.stack(each) for each in zip(*by_member, strict=True))
    scored = positions.expand(len(inputs), -1).cpu()
    names = _names(template, inputs.cpu(), scored)
    return Attribution(tuple(parts.names), contributions, logits.squeeze(1), scored, names)


def _names(
    template: Stack, inputs: Shaped[Tensor, "batch position *feature"], positions: Int[Tensor, "batch scored"]
) -> tuple[str, ...]:
    """Return the token at each scored position: its text if the model has a tokenizer, else its number."""
    if inputs.ndim > 2:
        return ()
    ids = inputs.gather(1, positions).flatten()
    if getattr(template, "tokenizer", None) is None:
        return tuple(map(str, ids.tolist()))
    return tuple(template.words(ids))  # type: ignore[attr-defined]


def unembed(model: AnyModel, vectors: Float[Tensor, "*row width"]) -> Float[Tensor, "*rows output"]:
    """Return the logits of vectors as if they were the final stream, `[member ... output]`.

    Each member's last layer norm is applied, if it has one, and its output map with bias. Without an output map,
    the result is the vectors after the norm. `vectors` are `[member ... width]`, such as a recorded site, or one vector
    for all members, `[width]`. For the streams of the model's own blocks see `logit_lens`.

    Source: anchor functions, appendix B.5, Fig 27.
    """
    ensemble = as_ensemble(model)
    template = stack(ensemble)
    width = ensemble.weights["embed.W_E"].shape[-1]
    if vectors.ndim == 1:
        vectors = vectors.expand(ensemble.size, -1)
    if len(vectors) != ensemble.size or vectors.shape[-1] != width:
        problem = f"have shape {tuple(vectors.shape)}, but {ensemble.size} members have a stream of width {width}"
        raise SpecError(
            "vectors", problem, f"give shape ({ensemble.size}, ..., {width}), or ({width},) for all members"
        )
    logits = []
    for member in range(ensemble.size):
        weights = {name: value.to(vectors) for name, value in ensemble.member_weights(member).items()}
        rows = vectors[member].reshape(1, -1, width)
        with torch.no_grad():
            if template.ln_final is not None:
                rows = functional_call(template.ln_final, _part(weights, "ln_final"), (rows, identity_tap))
            rows = affine(rows, *_output_map(template, weights))
        logits.append(rows.view(*vectors.shape[1:-1], -1))
    return torch.stack(logits)


def logit_lens(
    model: AnyModel,
    inputs: AnyInputs,
    positions: AnyPositions | None = None,
    batch_size: int = 512,
) -> Float[Tensor, "member depth batch scored output"]:
    """Return the logits of the residual stream before each block, and the model's own logits as the last `depth`.

    The last layer norm is applied at each depth, with the scale of the stream at that depth.

    Args: as in `attribute`; with `positions` None, all positions are scored.
    """
    subject = Subject.of(model, inputs, positions)
    sites = [f"{block.name}.hook_resid_pre" for block in stack(subject.ensemble).blocks]
    record = look_at(subject, sites, batch_size=batch_size)
    streams = [[gather_positions(of_member, subject.positions) for of_member in record[site]] for site in sites]
    early = unembed(subject.ensemble, torch.stack([torch.stack(stream) for stream in streams], dim=1))
    return torch.cat([early, record["output"].unsqueeze(1)], dim=1)


def transformer(ensemble: Ensemble) -> Transformer:
    """Return the template of an ensemble as a transformer."""
    if not isinstance(ensemble.template, Transformer):
        kind = type(ensemble.template).__name__
        raise SpecError("model", f"is of type {kind}", "give a transformer, such as a decoder")
    return ensemble.template


def stack(ensemble: Ensemble) -> Stack:
    """Return the template of an ensemble as blocks around a residual stream: a transformer or a pretrained model."""
    if not isinstance(ensemble.template, Stack):
        kind = type(ensemble.template).__name__
        raise SpecError("model", f"is of type {kind}", "give a transformer, such as a decoder, or a pretrained model")
    return ensemble.template


def blocks(template: Transformer) -> list[Block]:
    """Return the blocks of a transformer, in order."""
    return [cast(Block, block) for block in template.blocks]


class _Parts:
    """The summands of one member's residual stream at the scored positions, followed through the model."""

    def __init__(self, template: Stack, weights: dict[str, Tensor], record: Record, positions: Tensor) -> None:
        self.weights = {name: at_least_float32(value.cpu()) for name, value in weights.items()}
        self.template, self.record, self.positions = template, record, positions
        embeddings = [site for site in ("hook_embed", "hook_pos_embed") if site in record]
        self.names = [*embeddings, "bias"]
        first = torch.stack([self._seen(site) for site in embeddings])
        self.values: Float[Tensor, "component batch scored width"] = torch.cat([first, torch.zeros_like(first[:1])])
        # in the model's order: each layer adds its outputs as new summands, and each norm on the stream acts on all
        for block in template.blocks:
            self._attend(block)
            if block.ln1 is not None and not block.norm_first:
                self._normalise(block.ln1, f"{block.name}.hook_resid_mid")
            if block.mlp is not None:
                output = self._seen(f"{block.name}.hook_mlp_out").unsqueeze(0)
                self._join([f"{block.name}.mlp"], output, added=block.residual or block.parallel)
            if block.ln2 is not None and not block.norm_first:
                self._normalise(block.ln2, f"{block.name}.hook_resid_post")
        if template.ln_final is not None:
            self._normalise(template.ln_final, f"{template.blocks[-1].name}.hook_resid_post")

    def logits(self, tokens: Int[Tensor, "batch scored"] | None) -> Float[Tensor, "component batch scored *output"]:
        """Return the contributions to the logits of the given tokens, or of all tokens for None."""
        output_map, bias = _output_map(self.template, self.weights)
        bias = output_map.new_zeros(output_map.shape[-1]) if bias is None else bias
        if tokens is None:
            values = self.values @ output_map
            values[-1] += bias
        else:
            values = torch.einsum("c b s w, w b s -> c b s", self.values, output_map[:, tokens])
            values[-1] += bias[tokens]
        return values

    def _attend(self, block: StackedBlock) -> None:
        z = self._seen(f"{block.attn.name}.hook_z")  # [batch scored head head_width]
        heads, head_width = z.shape[-2:]
        written = self.weights.get(f"{block.attn.name}.W_O", torch.eye(heads * head_width, dtype=z.dtype))
        # the output map is a sum over heads: each head has its own rows of W_O
        each = torch.einsum("b s h i, h i w -> h b s w", z, written.view(heads, head_width, -1))
        self._join([f"{block.attn.name}.head.{head}" for head in range(heads)], each, added=block.residual)
        self.values[-1] += self.weights.get(f"{block.attn.name}.b_O", 0.0)

    def _join(self, names: list[str], outputs: Tensor, added: bool) -> None:
        """Insert new summands before the biases; unless `added` to the stream, they set all earlier summands to 0."""
        kept = self.values if added else torch.zeros_like(self.values)
        self.values = torch.cat([kept[:-1], outputs, kept[-1:]])
        self.names = [*self.names[:-1], *names, "bias"]

    def _normalise(self, norm: StackedNorm, stream_site: str) -> None:
        # freeze the scale at the whole stream's; the rest of the norm is linear, so it acts on each summand by itself.
        # The shift of the norm belongs to no component and joins the biases
        stream = self._seen(stream_site)
        if norm.centred:
            stream, self.values = _centred(stream), _centred(self.values)
        scale = (stream.square().mean(dim=-1, keepdim=True) + norm.epsilon).sqrt()
        self.values = self.values / scale * (norm.offset + self.weights[f"{norm.name}.w"])
        self.values[-1] += self.weights.get(f"{norm.name}.b", 0.0)

    def _seen(self, site: str) -> Tensor:
        return at_least_float32(gather_positions(self.record[site][0], self.positions))


def _part(weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}


def _output_map(
    template: Stack, weights: Mapping[str, Tensor]
) -> tuple[Float[Tensor, "width output"], Float[Tensor, "output"] | None]:
    """Return the map from the stream to logits and its bias; the identity if the stream itself is the prediction."""
    embedding = weights["embed.W_E"]
    if template.tied:
        return embedding.T, None
    return weights.get("unembed.W_U", torch.eye(embedding.shape[-1]).to(embedding)), weights.get("unembed.b_U")


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(dim=-1, keepdim=True)
