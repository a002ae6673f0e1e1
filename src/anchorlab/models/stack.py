"""The common interface of stacks of blocks around a residual stream: anchorlab's transformers and pretrained models."""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float, Shaped
from torch import Tensor

from anchorlab.models.sites import Positions, Sites, Tap, identity_tap


@runtime_checkable
class StackedNorm(Protocol):
    """A norm `(x - mean) / scale * (offset + w) + b`; if not `centred`, the mean is not subtracted and there is no b.

    The scale is sqrt(variance + `epsilon`), or sqrt(mean square + `epsilon`) if not centred.
    """

    name: str
    centred: bool
    epsilon: float
    offset: float

    def __call__(self, x: Float[Tensor, "batch position width"], tap: Tap) -> Float[Tensor, "batch position width"]:
        """Return the normalised stream."""


@runtime_checkable
class StackedAttention(Protocol):
    """Attention with separate query and key maps; several query heads may share one key-value head."""

    name: str
    heads: int
    scale: float

    @property
    def key_value_heads(self) -> int:
        """The number of key-value heads."""

    def written(self, z: Float[Tensor, "batch query head head_width"]) -> Float[Tensor, "head batch query width"]:
        """Return what each head adds to the stream, without the layer's bias, from the values that it mixed."""


@runtime_checkable
class StackedBlock(Protocol):
    """A block with its parts; the fields mean the same as in `Block`."""

    name: str
    attn: StackedAttention
    mlp: object | None
    ln1: StackedNorm | None
    ln2: StackedNorm | None
    norm_first: bool
    residual: bool
    parallel: bool
    adds_normed: bool


@runtime_checkable
class Stack(Protocol):
    """A model whose stream passes through `blocks`, a last norm and an output map, with weights under our names.

    If `tied`, the output map is the transposed token embedding, and `unembed` is None. If `positions_narrow_sites`,
    scored positions select rows not only of the logits but also of the last block's sites.
    """

    positions_narrow_sites: ClassVar[bool]
    sites: Sites
    blocks: Sequence[StackedBlock]
    ln_final: Any  # a module that is a StackedNorm, or None
    unembed: Any  # a module, or None
    tied: bool

    def __call__(
        self,
        inputs: Shaped[Tensor, "batch position *feature"],
        positions: Positions = None,
        tap: Tap = identity_tap,
        entering: tuple[int, Float[Tensor, "batch position width"]] | None = None,
    ) -> Float[Tensor, "batch scored output"]:
        """Return the logits at `positions`, or everywhere. `entering`: a block's index and the stream entering it."""
