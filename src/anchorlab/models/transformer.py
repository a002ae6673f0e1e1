"""The transformer shared by several kinds of models: embedding, blocks, output map."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from anchorlab.axes import InputKind, TaskShape
from anchorlab.errors import SpecError, too_long
from anchorlab.models.attention import Embedded, causal_mask
from anchorlab.models.block import Block, LayerNorm, RMSNorm
from anchorlab.models.embedding import PositionEmbedding, TokenEmbedding, Unembedding, VectorEmbedding
from anchorlab.models.model import Draw, Model, ModelSpec
from anchorlab.models.sites import LOGITS, STREAM, Positions, Site, Tap, by_name, identity_tap

Entering = tuple[int, Float[Tensor, "batch position width"]]
"""The index of a block, and the stream that enters it."""


class Transformer(Model):
    """Embedding, position embedding, blocks, final norm and output map; a part given as None is left out.

    If `tied`, the output map is the transposed token embedding, and `unembed` is None.
    """

    def __init__(
        self,
        embed: TokenEmbedding | VectorEmbedding,
        pos_embed: PositionEmbedding | None,
        blocks: Sequence[Block],
        ln_final: LayerNorm | RMSNorm | None,
        unembed: Unembedding | None,
        draw: Draw,
        *,
        tied: bool = False,
    ) -> None:
        super().__init__()
        self.embed, self.pos_embed, self.ln_final, self.unembed = embed, pos_embed, ln_final, unembed
        self.blocks = nn.ModuleList(blocks)
        self._draw, self.tied = draw, tied
        self.sites = by_name(self._visited(blocks))

    def _visited(self, blocks: Sequence[Block]) -> Iterable[Site]:
        yield Site("hook_embed", STREAM)
        if self.pos_embed is not None:
            yield Site("hook_pos_embed", STREAM)
        for block in blocks:
            yield from block.sites
        if self.ln_final is not None:
            yield from self.ln_final.sites
        yield LOGITS

    def forward(
        self,
        inputs: Shaped[Tensor, "batch position *feature"],
        positions: Positions = None,
        tap: Tap = identity_tap,
        entering: Entering | None = None,
        leaving: int | None = None,
    ) -> Float[Tensor, "batch scored output"]:
        """Return predictions at `positions`, or everywhere when None.

        Args:
            inputs: `[batch position]` token ids, or `[batch position feature]` vectors
            positions: `[scored]` or `[batch scored]`. In the last block only these positions are queries; its query
                sites and all later sites have `scored` rows instead of all positions.
            tap: called at every site
            entering: start at this block, with this stream, instead of at the embedding
            leaving: stop before this block, and return the stream that enters it, `[batch position width]`
        """
        embedded = None
        if entering is None:
            first, (x, embedded) = 0, self.embedding(inputs, tap)
        else:
            first, x = entering
        place = torch.arange(x.shape[1], device=x.device)
        mask = causal_mask(place, place, x.dtype)
        # pass `embedded` by name: torch's operation counter wraps positional tensors, and fails on gradient-free views
        for block in self.blocks[first : -1 if leaving is None else leaving]:
            x, embedded = block(x, None, mask, tap, embedded=embedded), None
        if leaving is not None:
            return x
        if positions is not None:
            mask = causal_mask(positions, place, x.dtype)
        return self.predictions(self.blocks[-1](x, positions, mask, tap, embedded=embedded), tap)

    def predictions(self, x: Float[Tensor, "batch scored width"], tap: Tap) -> Float[Tensor, "batch scored output"]:
        """Return the predictions of a stream after the last block."""
        if self.ln_final is not None:
            x = self.ln_final(x, tap)
        if self.tied:
            return tap("hook_logits", x @ self.embed.W_E.T)
        return tap("hook_logits", x if self.unembed is None else self.unembed(x))

    def embedding(
        self, inputs: Shaped[Tensor, "batch position *feature"], tap: Tap
    ) -> tuple[Float[Tensor, "batch position width"], Embedded | None]:
        """Return the stream that enters the first block; for token inputs, also as an `Embedded` sum of table rows."""
        x = tap("hook_embed", self.embed(inputs))
        places = None if self.pos_embed is None else self.pos_embed.W_pos[: x.shape[1]]
        if places is not None:
            if len(places) < x.shape[1]:
                raise too_long("inputs", x.shape[1], len(places))
            x = x + tap("hook_pos_embed", places.expand_as(x))
        return x, Embedded(inputs, self.embed.W_E, places) if isinstance(self.embed, TokenEmbedding) else None


def require_inputs(spec: ModelSpec, shape: TaskShape, inputs: InputKind) -> None:
    """Raise `SpecError` if a task's inputs are not of the kind `inputs`, which the model reads."""
    if shape.inputs != inputs:
        problem = f"a {spec.kind!r} model reads {inputs}, but the task has {shape.inputs}"
        raise SpecError("kind", problem, "use 'decoder'" if shape.inputs == "tokens" else "use 'vectors'")
