"""The two circuits of an attention head: query-key (where it attends) and output-value (what it writes)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens.look.inputs import AnyModel, as_ensemble
from anchorlab.lens.vectors.attribution import stack
from anchorlab.models.attention import MergedAttention
from anchorlab.models.stack import StackedAttention
from anchorlab.training.ensemble import Ensemble

Stacked = Float[Tensor, "member layer head row column"]


@dataclass(frozen=True)
class HeadCircuits:
    """The matrix `left @ right` of every member, layer and head, kept as its low-rank factors.

    Shapes
        left: `[member layer head row rank]`
        right: `[member layer head rank column]`
    """

    left: Float[Tensor, "member layer head row rank"]
    right: Float[Tensor, "member layer head rank column"]

    @property
    def matrix(self) -> Stacked:
        """The product, `[member layer head row column]`."""
        return self.left @ self.right

    @cached_property
    def singular_values(self) -> Float[Tensor, "member layer head rank"]:
        """The `rank` largest singular values in descending order, computed from the factors; all others are 0."""
        # left = Q R and rightᵀ = Q' R' give left right = Q (R R'ᵀ) Q'ᵀ, whose singular values are the small core's
        core = torch.linalg.qr(self.left).R @ torch.linalg.qr(self.right.mT).R.mT
        values: Tensor = torch.linalg.svdvals(core)
        return values

    def between(
        self,
        rows: Float[Tensor, "*member new_row row"] | None = None,
        columns: Float[Tensor, "*member column new_column"] | None = None,
    ) -> "HeadCircuits":
        """Return the circuit `rows @ matrix @ columns`, such as the full circuit from tokens to tokens.

        `rows` and `columns` are one matrix for all members, or one per member, `[member ...]`; None leaves a side
        unchanged:

            tokens, outputs = ensemble.weights["embed.W_E"], ensemble.weights["unembed.W_U"]
            qk(ensemble).between(tokens, tokens.mT)  # the score of each query token for each key token
            ov(ensemble).between(tokens, outputs)  # what attending to a token adds to the logits
        """
        left = self.left if rows is None else _for_heads(rows) @ self.left
        right = self.right if columns is None else self.right @ _for_heads(columns)
        return HeadCircuits(left, right)


def qk(model: AnyModel) -> HeadCircuits:
    """Return the query-key circuits M: `x_q M x_kᵀ` is the score of query x_q for key x_k, both `[width]`.

    `M = W_Q W_Kᵀ / sqrt(head_width)`. For merged weights it is `W_KQ / sqrt(width)`, or `W_KQ` if scores are not
    scaled. Biases, norms and rotations by position are left out.
    """
    ensemble = as_ensemble(model)

    def factors(attention: StackedAttention | MergedAttention) -> tuple[Tensor, Tensor]:
        if isinstance(attention, MergedAttention):
            queries = ensemble.weights[f"{attention.name}.W_KQ"]
            keys = torch.eye(queries.shape[-1]).to(queries).expand_as(queries)
            return (queries * attention.scale).unsqueeze(1), keys.unsqueeze(1)
        queries = _columns_by_head(ensemble.weights[f"{attention.name}.W_Q"], attention.heads)
        keys = _columns_by_head(ensemble.weights[f"{attention.name}.W_K"], attention.key_value_heads)
        return queries * attention.scale, _for_queries(keys, attention).mT

    return _of_every_layer(ensemble, factors)


def ov(model: AnyModel) -> HeadCircuits:
    """Return the output-value circuits M: attending to a position with the stream x, `[width]`, adds `x M`.

    `M = W_V W_O` with the head's columns of W_V and rows of W_O. Without `W_O` the heads' values are concatenated, so
    each head writes to its own coordinates.
    Biases and layer norms are left out.
    """
    ensemble = as_ensemble(model)

    def factors(attention: StackedAttention | MergedAttention) -> tuple[Tensor, Tensor]:
        values = ensemble.weights[f"{attention.name}.W_V"]
        inner = values.shape[-1]  # without W_O
        written = ensemble.weights.get(f"{attention.name}.W_O", torch.eye(inner).to(values).expand(len(values), -1, -1))
        if isinstance(attention, MergedAttention):
            return values.unsqueeze(1), written.unsqueeze(1)
        by_head = _for_queries(_columns_by_head(values, attention.key_value_heads), attention)
        return by_head, written.reshape(len(values), attention.heads, by_head.shape[-1], -1)

    return _of_every_layer(ensemble, factors)


def _of_every_layer(
    ensemble: Ensemble, factors: Callable[[StackedAttention | MergedAttention], tuple[Tensor, Tensor]]
) -> HeadCircuits:
    left, right = zip(*(factors(block.attn) for block in stack(ensemble).blocks), strict=True)
    return HeadCircuits(torch.stack(left, dim=1), torch.stack(right, dim=1))


def _for_queries(of_heads: Tensor, attention: StackedAttention) -> Tensor:
    """Repeat the matrices of key and value heads, `[member head ...]`, for each of the query heads that share one."""
    return of_heads.repeat_interleave(attention.heads // attention.key_value_heads, dim=1)


def _columns_by_head(
    weight: Float[Tensor, "member width inner"], heads: int
) -> Float[Tensor, "member head width rank"]:
    return weight.reshape(*weight.shape[:2], heads, -1).transpose(1, 2)


def _for_heads(matrix: Tensor) -> Tensor:
    return matrix if matrix.ndim == 2 else matrix[:, None, None]
