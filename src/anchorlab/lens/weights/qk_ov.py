"""The two circuits of an attention head: where it looks (query-key) and what it carries (output-value)."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anchorlab.lens.look.look import as_ensemble
from anchorlab.lens.vectors.attribution import blocks, transformer
from anchorlab.models.attention import Attention, MergedAttention
from anchorlab.training.ensemble import Ensemble

Stacked = Float[Tensor, "member layer head row column"]


@dataclass(frozen=True)
class HeadCircuits:
    """The product `left @ right` for every head of every layer and member, kept in its factors of low rank.

    Shapes
        left: `[member layer head row rank]`
        right: `[member layer head rank column]`
    """

    left: Float[Tensor, "member layer head row rank"]
    right: Float[Tensor, "member layer head rank column"]

    @property
    def matrix(self) -> Stacked:
        """The product itself, `[member layer head row column]`."""
        return self.left @ self.right

    @cached_property
    def singular_values(self) -> Float[Tensor, "member layer head rank"]:
        """The singular values that may differ from 0, the largest first, found without making the matrix."""
        core = torch.linalg.qr(self.left).R @ torch.linalg.qr(self.right.mT).R.mT
        values: Tensor = torch.linalg.svdvals(core)
        return values

    def between(
        self,
        rows: Float[Tensor, "*member new_row row"] | None = None,
        columns: Float[Tensor, "*member column new_column"] | None = None,
    ) -> "HeadCircuits":
        """The circuit `rows @ matrix @ columns`, such as the full one from tokens to tokens; None leaves a side.

        `rows` and `columns` are one matrix for all members, or `[member ...]` as an ensemble's weights are:

            tokens, outputs = ensemble.weights["embed.W_E"], ensemble.weights["unembed.W_U"]
            qk(ensemble).between(tokens, tokens.mT)  # how much each token asks for each
            ov(ensemble).between(tokens, outputs)  # what attending to a token adds to the logits
        """
        left = self.left if rows is None else _for_heads(rows) @ self.left
        right = self.right if columns is None else self.right @ _for_heads(columns)
        return HeadCircuits(left, right)


def qk(model: Ensemble | nn.Module) -> HeadCircuits:
    """The query-key circuits: `x_q M x_kᵀ` is the score of the query x_q for the key x_k, both `[width]`.

    `M = W_Q W_Kᵀ / sqrt(head_width)`; where the two are merged, `W_KQ / sqrt(width)`, or `W_KQ` of a model whose scores
    have no scale. What is added by biases, and what a layer norm before the attention does to its input, is not in the
    matrix.

    Errors: `SpecError` for a model that is not one of this package's transformers.
    """
    ensemble = as_ensemble(model)

    def factors(attention: Attention | MergedAttention) -> tuple[Tensor, Tensor]:
        if isinstance(attention, MergedAttention):
            queries = ensemble.weights[f"{attention.name}.W_KQ"]
            keys = torch.eye(queries.shape[-1]).to(queries).expand_as(queries)
            return (queries * attention.scale).unsqueeze(1), keys.unsqueeze(1)
        queries = _columns_by_head(ensemble.weights[f"{attention.name}.W_Q"], attention.heads)
        keys = _columns_by_head(ensemble.weights[f"{attention.name}.W_K"], attention.heads)
        return queries * attention.scale, keys.mT

    return _stacked([factors(attention) for attention in _attentions(ensemble)])


def ov(model: Ensemble | nn.Module) -> HeadCircuits:
    """The output-value circuits: attending to a position with the stream x, `[width]`, adds `x M` to the stream.

    `M = W_V W_O`, of each head its own columns and rows; where there is no `W_O`, a head's values are written to the
    head's own coordinates. Biases and layer norms are not in the matrix. Errors: as `qk`.
    """
    ensemble = as_ensemble(model)

    def factors(attention: Attention | MergedAttention) -> tuple[Tensor, Tensor]:
        values = ensemble.weights[f"{attention.name}.W_V"]
        inner = values.shape[-1]
        written = ensemble.weights.get(f"{attention.name}.W_O", torch.eye(inner).to(values).expand(len(values), -1, -1))
        heads = attention.heads if isinstance(attention, Attention) else 1
        return _columns_by_head(values, heads), written.reshape(len(values), heads, inner // heads, -1)

    return _stacked([factors(attention) for attention in _attentions(ensemble)])


def _attentions(ensemble: Ensemble) -> list[Attention | MergedAttention]:
    return [block.attn for block in blocks(transformer(ensemble))]


def _columns_by_head(
    weight: Float[Tensor, "member width inner"], heads: int
) -> Float[Tensor, "member head width rank"]:
    return weight.reshape(*weight.shape[:2], heads, -1).transpose(1, 2)


def _stacked(factors: list[tuple[Tensor, Tensor]]) -> HeadCircuits:
    left, right = zip(*factors, strict=True)
    return HeadCircuits(torch.stack(left, dim=1), torch.stack(right, dim=1))


def _for_heads(matrix: Tensor) -> Tensor:
    return matrix if matrix.ndim == 2 else matrix[:, None, None]
