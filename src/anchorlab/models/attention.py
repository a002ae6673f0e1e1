"""Attention in explicit steps: queries, keys, values, scores, pattern and output of each head are sites."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.models.model import gather_positions
from anchorlab.models.sites import Positions, Site, Tap, identity_tap

PER_HEAD = ("batch", "position", "head", "head_width")
_ROTARY_BASE = 10000.0
_LEAST_WIDTH, _LEAST_RATIO = 256, 8  # least width of the stream, and ratio to all heads, for joint products


def attention_sites(name: str, rotary: bool, keys: tuple[str, ...] = PER_HEAD) -> list[Site]:
    """Return the sites of an attention layer in the order of visits; `keys` are the axes of its keys and values."""
    pairs, rotated = ("batch", "head", "query", "key"), {"rot_q": PER_HEAD, "rot_k": keys} if rotary else {}
    axes = {"q": PER_HEAD, "k": keys, **rotated, "v": keys, "attn_scores_unmasked": pairs, "attn_scores": pairs}
    return [Site(f"{name}.hook_{hook}", each) for hook, each in {**axes, "pattern": pairs, "z": PER_HEAD}.items()]


class _WithSites(nn.Module):
    """The base of attention layers: their sites, and what each head writes."""

    name: str
    rotary = False
    softmax = True
    W_O: nn.Parameter | None

    @property
    def sites(self) -> list[Site]:
        return attention_sites(self.name, self.rotary)

    def written(self, z: Float[Tensor, "batch query head head_width"]) -> Float[Tensor, "head batch query width"]:
        """Return what each head adds to the stream, without the layer's bias, from the values that it mixed."""
        weight = torch.eye(z.shape[-2:].numel(), dtype=z.dtype, device=z.device) if self.W_O is None else self.W_O
        return torch.einsum("bqhe,hew->hbqw", z, weight.view(*z.shape[-2:], -1))


class Attention(_WithSites):
    """Multi-head attention with separate query and key maps (anchor functions, appendix B.1.2).

    Computes `softmax(Q Kᵀ / sqrt(head_width)) V W_O` with `Q = x W_Q`, `K = x W_K`, `V = x W_V`. Without
    `output_linear` the heads are concatenated. With `shift_values = n`, position s uses the value of position s + n, or
    zero beyond the ends. With `rotary`, scores see positions through rotated queries and keys (see `rotated`). Without
    `softmax` the scores are the weights, as in linear attention (see `attend`).

    In a wide stream with narrow heads and the identity tap, queries, keys and values come from one product,
    `x [W_Q W_K W_V]`, which takes less time than three narrow ones. The result is the same within rounding.
    """

    def __init__(
        self,
        name: str,
        width: int,
        heads: int,
        head_width: int,
        *,
        output_linear: bool = True,
        biases: bool = False,
        shift_values: int = 0,
        rotary: bool = False,
        softmax: bool = True,
    ) -> None:
        super().__init__()
        self.name, self.heads, self.head_width, self.shift_values = name, heads, head_width, shift_values
        self.rotary, self.softmax = rotary, softmax
        self.scale = 1 / math.sqrt(head_width)
        inner = heads * head_width
        self.joins = width >= max(_LEAST_WIDTH, _LEAST_RATIO * inner)
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.empty(width, inner)) for _ in "QKV")
        self.W_O = nn.Parameter(torch.empty(inner, width)) if output_linear else None
        self.b_Q, self.b_K, self.b_V = (nn.Parameter(torch.empty(inner)) if biases else None for _ in "QKV")
        self.b_O = nn.Parameter(torch.empty(width)) if biases and output_linear else None

    @property
    def key_value_heads(self) -> int:
        """The number of key-value heads; each query head has its own."""
        return self.heads

    def forward(
        self,
        x: Float[Tensor, "batch position width"],
        positions: Positions,
        mask: Float[Tensor, "..."] | None,
        tap: Tap,
    ) -> Float[Tensor, "batch query width"]:
        """Return the output at each query: `positions`, or all. `mask` comes from `causal_mask`; None: no mask."""
        to_q, to_k, to_v = (self.W_Q, self.b_Q), (self.W_K, self.b_K), (self.W_V, self.b_V)
        if not self.joins or tap is not identity_tap:
            q = affine(gather_positions(x, positions), *to_q)
            k, v = affine(x, *to_k), affine(x, *to_v)
        elif positions is None:
            q, k, v = affine_joined(x, to_q, to_k, to_v)
        else:
            q = affine(gather_positions(x, positions), *to_q)
            k, v = affine_joined(x, to_k, to_v)
        z = self._mix(self._split(q), self._split(k), self._split(v), positions, mask, tap).flatten(2)
        return z if self.W_O is None else affine(z, self.W_O, self.b_O)

    def by_head(
        self, x: Float[Tensor, "reader batch position width"], mask: Float[Tensor, "..."] | None, tap: Tap
    ) -> Float[Tensor, "head batch position width"]:
        """Return what each head writes, without the bias, if all queries, keys and values read streams of their own.

        The readers are the queries of all heads, then their keys, then their values.
        """
        maps = (self.W_Q, self.b_Q), (self.W_K, self.b_K), (self.W_V, self.b_V)
        q, k, v = (self._of_each(read, *each) for read, each in zip(x.chunk(3), maps, strict=True))
        return self.written(self._mix(q, k, v, None, mask, tap))

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None, mask: Tensor | None, tap: Tap) -> Tensor:
        """Return the values that each head mixes, with shifted values and rotated queries and keys; as in `attend`."""
        if self.shift_values:
            v = shifted(v, self.shift_values)
        places = None
        if self.rotary:
            keys = torch.arange(k.shape[1], device=k.device)
            places = keys if positions is None else positions, keys
        return attend(q, k, v, self.scale, mask, self.name, tap, places, softmax=self.softmax)

    def _of_each(
        self, x: Float[Tensor, "head batch position width"], weight: Tensor, bias: Tensor | None
    ) -> Float[Tensor, "batch position head head_width"]:
        """Return `x W + b` for each head, from its own stream `x` and its own columns of `W` and `b`."""
        found = torch.einsum("hbpw,whe->bphe", x, weight.view(len(weight), self.heads, self.head_width))
        return found if bias is None else found + bias.view(self.heads, self.head_width)

    def _split(self, x: Float[Tensor, "batch position inner"]) -> Float[Tensor, "batch position head head_width"]:
        return x.view(*x.shape[:2], self.heads, self.head_width)


class Embedded(NamedTuple):
    """The stream `tokens[inputs] + places`, kept as its parts: linear maps can act on tables, not on every position.

    Fields
        inputs: the token ids
        tokens: the token embedding
        places: the position embedding, or None
    """

    inputs: Int[Tensor, "batch position"]
    tokens: Float[Tensor, "token width"]
    places: Float[Tensor, "position width"] | None

    @property
    def pays(self) -> bool:
        """Whether the tables have fewer rows than the stream, so that mapping them is less work."""
        rows = len(self.tokens) + (0 if self.places is None else len(self.places))
        return rows < self.inputs.numel()

    def through(self, *weights: Float[Tensor, "input output"]) -> Float[Tensor, "batch position output"]:
        """Return the stream multiplied by each of `weights` in turn."""
        tokens, places = self.tokens, self.places
        for weight in weights:
            tokens = tokens @ weight
            places = None if places is None else places @ weight
        mapped = functional.embedding(self.inputs, tokens)
        return mapped if places is None else mapped + places


class MergedAttention(_WithSites):
    """One head with a merged key-query matrix (truncated weights, section 4).

    Computes `softmax(x W_KQ xᵀ / sqrt(width)) x W_V`, as in the authors' code. Without `scaled` the scores are not
    divided, as printed in the paper. With `factored` the value map is a product `W_V W_O` of two square matrices
    (Figure 12). The site `hook_q` is `x W_KQ`, and `hook_k` is x itself.

    With the identity tap, the same result takes less work: given `positions`, values are mixed before they are mapped;
    otherwise, if x is known as a sum of table rows, the embedding tables are mapped instead of x.
    """

    heads = key_value_heads = 1

    def __init__(self, name: str, width: int, *, factored: bool = False, scaled: bool = True) -> None:
        super().__init__()
        self.name, self.scaled = name, scaled
        self.scale = 1 / math.sqrt(width) if scaled else 1.0
        self.W_KQ = nn.Parameter(torch.empty(width, width))
        self.W_V = nn.Parameter(torch.empty(width, width))
        self.W_O = nn.Parameter(torch.empty(width, width)) if factored else None

    def forward(
        self,
        x: Float[Tensor, "batch position width"],
        positions: Positions,
        mask: Float[Tensor, "..."] | None,
        tap: Tap,
        embedded: Embedded | None = None,
    ) -> Float[Tensor, "batch query width"]:
        """Return the output at each query position: `positions`, or all.

        `mask` comes from `causal_mask`; None: no mask. `embedded` is x as a sum of table rows, if it is such a sum.
        """
        untapped = tap is identity_tap
        after = [self.W_V] if self.W_O is None else [self.W_V, self.W_O]  # the maps to apply after mixing
        if untapped and embedded is not None and embedded.pays and positions is None:
            # fewer rows in the tables than positions: map the tables once, and look the results up
            q, v = embedded.through(self.W_KQ), embedded.through(*after)
            after = []
        else:
            q, v = gather_positions(x, positions) @ self.W_KQ, x
            # at a few scored positions, mix x itself and map the mixture later, since it has fewer rows; else map x now
            if positions is None or not untapped:
                v = v @ after.pop(0)
        z = attend(q.unsqueeze(2), x.unsqueeze(2), v.unsqueeze(2), self.scale, mask, self.name, tap).squeeze(2)
        for weight in after:
            z = z @ weight
        return z

    def by_head(
        self, x: Float[Tensor, "reader batch position width"], mask: Float[Tensor, "..."] | None, tap: Tap
    ) -> Float[Tensor, "head batch position width"]:
        """Return what the head writes if its query, its key and its value read streams of their own, in this order."""
        q, k, v = x.unsqueeze(3)
        return self.written(attend(q @ self.W_KQ, k, v @ self.W_V, self.scale, mask, self.name, tap))


def attend(
    q: Float[Tensor, "batch query head head_width"],
    k: Float[Tensor, "batch key head head_width"],
    v: Float[Tensor, "batch key head head_width"],
    scale: float,
    mask: Float[Tensor, "..."] | None,
    name: str,
    tap: Tap,
    places: tuple[Int[Tensor, "*batch query"], Int[Tensor, "key"]] | None = None,
    *,
    softmax: bool = True,
) -> Float[Tensor, "batch query head head_width"]:
    """Return the values mixed by `softmax(scale Q Kᵀ + mask)` for each query, and visit the sites below `name`.

    Given `places`, the positions of queries and keys, both are rotated by them first. Without `softmax` the values are
    mixed by `scale Q Kᵀ`, with 0 for hidden keys, not divided by the number of keys. Such weights can be negative.
    Source of linear attention: von Oswald et al., Transformers Learn In-Context by Gradient Descent (2023), section 2.
    """
    q, k = tap(f"{name}.hook_q", q), tap(f"{name}.hook_k", k)
    if places is not None:
        q, k = tap(f"{name}.hook_rot_q", rotated(q, places[0])), tap(f"{name}.hook_rot_k", rotated(k, places[1]))
    v = tap(f"{name}.hook_v", v)
    scores = (q * scale).transpose(1, 2) @ k.permute(0, 2, 3, 1)
    scores = tap(f"{name}.hook_attn_scores_unmasked", scores)
    if mask is not None:
        # unlike a fill, a sum has a free backward pass
        scores = scores + mask.to(scores.dtype) if softmax else scores.masked_fill(mask.isinf(), 0)
    scores = tap(f"{name}.hook_attn_scores", scores)
    pattern = tap(f"{name}.hook_pattern", torch.softmax(scores, dim=-1) if softmax else scores)
    return tap(f"{name}.hook_z", (pattern @ v.transpose(1, 2)).transpose(1, 2))


def rotated(
    x: Float[Tensor, "batch position head head_width"], places: Int[Tensor, "*batch position"]
) -> Float[Tensor, "batch position head head_width"]:
    """Rotate queries or keys by their positions, so that scores depend on the distance between them.

    Coordinates i and i + head_width / 2 turn together, by the angle `place * 10000^(-2 i / head_width)`, as in Llama.
    Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding (2021), equation 34.
    """
    half = x.shape[-1] // 2
    exact = torch.promote_types(x.dtype, torch.float32)  # bfloat16 cannot hold the angles of neighbouring positions
    frequencies = _ROTARY_BASE ** (torch.arange(half, device=x.device, dtype=exact) / -half)
    angles = (places.unsqueeze(-1) * frequencies).unsqueeze(-2)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def affine(
    x: Float[Tensor, "*batch input"],
    weight: Float[Tensor, "input output"],
    bias: Float[Tensor, "output"] | None = None,
) -> Float[Tensor, "*batch output"]:
    """Return `x W + b`."""
    return x @ weight if bias is None else functional.linear(x, weight.T, bias)


def affine_joined(
    x: Float[Tensor, "*batch input"],
    *maps: tuple[Float[Tensor, "input output"], Float[Tensor, "output"] | None],
) -> tuple[Float[Tensor, "*batch output"], ...]:
    """Return `x W + b` for each of several maps `(W, b)` of one size, all or none with a bias, by one product."""
    weights, biases = [weight for weight, _ in maps], [bias for _, bias in maps if bias is not None]
    return affine(x, torch.cat(weights, dim=1), torch.cat(biases) if biases else None).chunk(len(maps), dim=-1)


def causal_mask(
    queries: Int[Tensor, "*batch query"], keys: Int[Tensor, "key"], dtype: torch.dtype
) -> Float[Tensor, "*heads query key"]:
    """Return the mask to add to scores: 0 for keys up to the query's position, minus infinity for later keys.

    For queries `[batch query]`, the mask is `[batch 1 query key]`, with an axis of size 1 for the heads. It is computed
    on the device, without a transfer from the host.
    """
    ahead = keys > queries.unsqueeze(-1)
    mask = torch.zeros_like(ahead, dtype=dtype).masked_fill(ahead, -math.inf)
    return mask if queries.ndim == 1 else mask.unsqueeze(1)


def shifted(v: Float[Tensor, "batch key head head_width"], by: int) -> Float[Tensor, "batch key head head_width"]:
    """Return values shifted along the keys: position s gets value s + `by`, or zero beyond the ends."""
    length = v.shape[1]
    by = max(-length, min(length, by))
    return functional.pad(v, (0, 0, 0, 0, -by, by))  # a negative padding cuts off
