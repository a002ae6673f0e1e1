"""Directions of queries and keys: of positions alone, of tokens alone, and of recorded sequences."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look import AnyModel, Intervention, Record, as_ensemble, look
from anchorlab.lens.vectors.attribution import blocks, transformer
from anchorlab.lens.vectors.similarity import cosine_similarity
from anchorlab.models.embedding import TokenEmbedding
from anchorlab.training.ensemble import Ensemble

PerHead = Float[Tensor, "member layer *sequence head"]
PerRow = Float[Tensor, "member layer *sequence head row head_width"]


@dataclass(frozen=True)
class Directions:
    """Queries and keys of every head. The rows are positions alone, tokens alone, or the positions of sequences.

    Shapes
        queries, keys: `[member layer head row head_width]`; for recorded sequences with `batch`, or `candidate batch`,
            after `layer`
    """

    queries: PerRow
    keys: PerRow

    @cached_property
    def similarity(self) -> Float[Tensor, "member layer *sequence head query key"]:
        """The cosine between every query and every key (anchor functions, appendix B.2, Fig 21d)."""
        return cosine_similarity(self.queries, self.keys)

    def match(self, k: int = 0) -> PerHead:
        """Return the mean cosine, over rows p, between the query of row p and the key of row p - k.

        For k = 1 the result is high for a head that shifts by one. A negative k compares with later rows. For
        tokens, 0 compares each token with itself.
        """
        self._require_distance(k)
        return self.similarity.diagonal(-k, dim1=-2, dim2=-1).mean(dim=-1)

    def nearest(self, k: int = 0) -> PerHead:
        """Return the share of rows p whose query is closer in direction to the key of row p - k than to any other key.

        The other keys include those that a causal mask hides.
        """
        self._require_distance(k)
        rows = torch.arange(self.keys.shape[-2])
        matching = rows == rows.unsqueeze(-1) - k
        others = self.similarity.masked_fill(matching, -torch.inf).amax(dim=-1)
        asking = matching.any(dim=-1)
        return (self.similarity.diagonal(-k, dim1=-2, dim2=-1) > others[..., asking]).float().mean(dim=-1)

    def _require_distance(self, k: int) -> None:
        count = self.keys.shape[-2]
        if not -count < k < count:
            raise SpecError("k", f"{k} is not a distance within {count} rows", f"give one of {1 - count}..{count - 1}")


def position_directions(model: AnyModel) -> Directions:
    """Return the queries and keys of every layer for positions alone, one row per position.

    The token embedding is set to zero. In the first layer, the queries are then exactly `W_pos W_Q`, the part of any
    sequence's queries that comes from the position; likewise the keys. In later layers, queries and keys come from a
    stream that no real sequence produces; use `recorded_directions` for real sequences.

    Source: anchor functions, appendix B.2, Fig 21d.
    """
    ensemble = as_ensemble(model)
    if transformer(ensemble).pos_embed is None:
        raise SpecError("model", "has no position embedding", "give one with positions apart from its inputs")
    any_sequence = torch.zeros(1, ensemble.weights["pos_embed.W_pos"].shape[1], dtype=torch.int64)
    alone = _without("hook_embed", ensemble, any_sequence)
    return Directions(alone.queries[:, :, 0], alone.keys[:, :, 0])


def token_directions(model: AnyModel, tokens: Int[Tensor, "row"] | None = None) -> Directions:
    """Return the queries and keys of every layer for tokens alone, one row per token; None: the whole vocabulary.

    Each token forms a sequence of its own, with the position embedding set to zero. In the first layer, the queries are
    then exactly `W_E W_Q`; likewise the keys. In later layers, queries and keys come from the stream of a token that
    has attended only to itself.
    """
    ensemble = as_ensemble(model)
    template = transformer(ensemble)
    if not isinstance(template.embed, TokenEmbedding):
        raise SpecError("model", "reads vectors, not tokens", "give one with a vocabulary")
    vocabulary = ensemble.weights["embed.W_E"].shape[1]
    tokens = torch.arange(vocabulary) if tokens is None else tokens
    if len(tokens) == 0 or bool(((tokens < 0) | (tokens >= vocabulary)).any()):
        raise SpecError("tokens", f"are empty or outside 0..{vocabulary - 1}", "give one known token or more")
    alone = _without("hook_pos_embed", ensemble, tokens.unsqueeze(1))
    return Directions(*(each.squeeze(-2).transpose(2, 3) for each in (alone.queries, alone.keys)))


def recorded_directions(record: Record) -> Directions:
    """Return the queries and keys of every layer whose `attn.hook_q` and `attn.hook_k` were recorded.

    The rows are the positions of each sequence, `[member layer batch head row head_width]` (anchor functions, B.4).
    """
    if record.lengths is not None:
        problem = "has sequences of different lengths, padded to one"
        raise SpecError("record", problem, "look at sequences of one length")
    layers = [site.removesuffix(".hook_q") for site in record if site.endswith(".attn.hook_q")]
    if not layers:
        raise SpecError("record", "has no queries", "record blocks.*.attn.hook_q and blocks.*.attn.hook_k")
    queries, keys = (torch.stack([record[f"{layer}.hook_{kind}"] for layer in layers], dim=1) for kind in "qk")
    keys = keys.repeat_interleave(queries.shape[-2] // keys.shape[-2], dim=-2)  # of heads that share one
    return Directions(queries.transpose(-2, -3), keys.transpose(-2, -3))


def _without(embedding: str, ensemble: Ensemble, inputs: Int[Tensor, "batch position"]) -> Directions:
    sites = [f"{block.attn.name}.hook_{kind}" for block in blocks(transformer(ensemble)) for kind in "qk"]
    zero = Intervention(site=embedding, rule="zero", may_do_nothing=True)
    return recorded_directions(look(ensemble, inputs, sites, [zero]))
