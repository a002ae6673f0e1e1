"""The anchor paper's fully connected network."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.models.attention import affine
from anchorlab.models.embedding import PositionEmbedding, TokenEmbedding, Unembedding
from anchorlab.models.initialisation import DRAWS, Initialisation
from anchorlab.models.model import Draw, Model, ModelSpec, register_model
from anchorlab.models.sites import LOGITS, STREAM, Positions, Site, Tap, by_name, identity_tap
from anchorlab.models.transformer import require_inputs

_FLAT = ("batch", "width")  # here the width of all positions, concatenated
_HIDDEN = ("batch", "hidden")


@register_model("fnn")
class FNNSpec(ModelSpec):
    """A fully connected network that makes one prediction per sequence (anchor functions, 4.1 and appendix A).

    Concatenates the sums of token and position embeddings, `length * width` numbers, and applies `layers` blocks
    `x + ReLU(x W_in + b_in) W_out + b_out`, then a map to `width` and a map to the outputs, all with biases. The
    defaults are the paper's model: 416 M parameters on 9 positions and its vocabulary of 201. Use it for tasks that
    score only the last position.
    """

    kind: Literal["fnn"] = "fnn"
    layers: int = Field(default=4, gt=0, le=1024)
    width: PositiveInt = 400
    hidden_factor: PositiveInt = Field(default=4, description="neurons per block, as a multiple of length x width")
    hidden: PositiveInt | None = Field(default=None, description="neurons per block, in place of hidden_factor")
    initialisation: Initialisation = "torch"

    def build(self, shape: TaskShape) -> "FNN":
        """Build a member for token tasks of one length. Errors: `SpecError` for vector inputs."""
        require_inputs(self, shape, "tokens")
        hidden = self.hidden or self.hidden_factor * shape.length * self.width
        return FNN(shape, self.width, self.layers, hidden, DRAWS[self.initialisation])


class FNN(Model):
    """Concatenated embeddings, residual blocks, two output maps."""

    predicts_last_alone: ClassVar[bool] = True

    def __init__(self, shape: TaskShape, width: int, layers: int, hidden: int, draw: Draw) -> None:
        super().__init__()
        flat = shape.length * width
        self.length = shape.length
        self.embed = TokenEmbedding(shape.input_size, width)
        self.pos_embed = PositionEmbedding(shape.length, width)
        blocks = [FlatBlock(f"blocks.{layer}", flat, hidden) for layer in range(layers)]
        self.blocks = nn.ModuleList(blocks)
        self.flat = FlatMap(flat, width)
        self.unembed = Unembedding(width, shape.output_size, bias=True)
        self._draw = draw
        sites = [Site("hook_embed", STREAM), Site("hook_pos_embed", STREAM)]
        sites += [site for block in blocks for site in block.sites]
        self.sites = by_name([*sites, Site("hook_flat_out", _FLAT), LOGITS])

    def forward(
        self, inputs: Int[Tensor, "batch position"], positions: Positions = None, tap: Tap = identity_tap
    ) -> Float[Tensor, "batch scored output"]:
        """Return one prediction per sequence, at the single position in `positions`, or repeated everywhere when None.

        Errors: `SpecError` for more than one position, and for sequences whose length is not the task's.
        """
        if positions is not None and positions.shape[-1] > 1:
            problem = f"an 'fnn' makes one prediction for a whole sequence, not {positions.shape[-1]}"
            raise SpecError("positions", problem, "give only the last position")
        if inputs.shape[-1] != self.length:
            problem = f"an 'fnn' made for {self.length} positions cannot read {inputs.shape[-1]}"
            raise SpecError("inputs", problem, "give whole sequences")
        x = tap("hook_embed", self.embed(inputs))
        x = (x + tap("hook_pos_embed", self.pos_embed.W_pos.expand_as(x))).flatten(1)
        for block in self.blocks:
            x = block(x, tap)
        logits = self.unembed(tap("hook_flat_out", self.flat(x)).unsqueeze(1))
        return tap("hook_logits", logits.expand(-1, self.length if positions is None else 1, -1))


class FlatBlock(nn.Module):
    """Compute `x + ReLU(x W_in + b_in) W_out + b_out` on concatenated positions."""

    def __init__(self, name: str, width: int, hidden: int) -> None:
        super().__init__()
        self.name = name
        self.W_in = nn.Parameter(torch.empty(width, hidden))
        self.b_in = nn.Parameter(torch.empty(hidden))
        self.W_out = nn.Parameter(torch.empty(hidden, width))
        self.b_out = nn.Parameter(torch.empty(width))

    @property
    def sites(self) -> list[Site]:
        """The sites, in the order of visits."""
        axes = {"resid_pre": _FLAT, "pre": _HIDDEN, "post": _HIDDEN, "mlp_out": _FLAT, "resid_post": _FLAT}
        return [Site(f"{self.name}.hook_{name}", kept) for name, kept in axes.items()]

    def forward(self, x: Float[Tensor, "batch width"], tap: Tap) -> Float[Tensor, "batch width"]:
        """Return the stream after the block."""
        x = tap(f"{self.name}.hook_resid_pre", x)
        pre = tap(f"{self.name}.hook_pre", affine(x, self.W_in, self.b_in))
        post = tap(f"{self.name}.hook_post", functional.relu(pre))
        x = x + tap(f"{self.name}.hook_mlp_out", affine(post, self.W_out, self.b_out))
        return tap(f"{self.name}.hook_resid_post", x)


class FlatMap(nn.Module):
    """Compute `x W_flat + b_flat`, which maps concatenated positions to one vector."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.W_flat = nn.Parameter(torch.empty(width, outputs))
        self.b_flat = nn.Parameter(torch.empty(outputs))

    def forward(self, x: Float[Tensor, "batch width"]) -> Float[Tensor, "batch output"]:
        """Return the vector."""
        return affine(x, self.W_flat, self.b_flat)
