"""The anchor paper's LSTM."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from anchorlab.axes import TaskShape
from anchorlab.models.attention import affine
from anchorlab.models.embedding import TokenEmbedding, Unembedding
from anchorlab.models.initialisation import DRAWS, Initialisation
from anchorlab.models.model import Draw, Model, ModelSpec, gather_positions, register_model
from anchorlab.models.sites import LOGITS, STREAM, Positions, Site, Tap, by_name, identity_tap
from anchorlab.models.transformer import require_inputs


@register_model("lstm")
class LSTMSpec(ModelSpec):
    """Token embedding, `layers` LSTM layers, projection with bias (anchor functions, 4.1 and appendix A).

    There are no position embeddings. The defaults are the paper's model of 5.3 M parameters: 5 293 801 for its 201
    tokens. The appendix says "hidden size 4" but means four layers: the parameter count requires a width of 400.
    Equations, both bias vectors and the initial distribution are as in `torch.nn.LSTM`; `initialisation = "gamma"` uses
    `draw_gamma`.
    """

    kind: Literal["lstm"] = "lstm"
    layers: int = Field(default=4, gt=0, le=1024)
    width: PositiveInt = 400
    initialisation: Initialisation = "torch"

    def build(self, shape: TaskShape) -> "LSTM":
        """Build a member for token tasks. Errors: `SpecError` for vector inputs."""
        require_inputs(self, shape, "tokens")
        return LSTM(shape.input_size, self.width, self.layers, shape.output_size, DRAWS[self.initialisation])


class LSTM(Model):
    """Embedding, recurrent layers and output map, built from operations that can be mapped over members."""

    def __init__(self, tokens: int, width: int, layers: int, outputs: int, draw: Draw) -> None:
        super().__init__()
        self.embed = TokenEmbedding(tokens, width)
        self.layers = nn.ModuleList(LSTMLayer(width) for _ in range(layers))
        self.unembed = Unembedding(width, outputs, bias=True)
        self._draw = draw
        hidden = [Site(f"layers.{layer}.hook_hidden", STREAM) for layer in range(layers)]
        self.sites = by_name([Site("hook_embed", STREAM), *hidden, LOGITS])

    def forward(
        self, inputs: Int[Tensor, "batch position"], positions: Positions = None, tap: Tap = identity_tap
    ) -> Float[Tensor, "batch scored output"]:
        """Return predictions at `positions` (`[scored]` or `[batch scored]`), or everywhere when None.

        With `positions`, positions after the last scored one are not computed if that is known on the CPU, and sites
        from the last layer's `hook_hidden` on have `scored` rows. A change at a `hook_hidden` reaches the layers above,
        but not the layer's own recurrence.
        """
        if positions is not None:
            inputs = inputs[:, : _needed(positions, inputs.shape[1])]
        x = tap("hook_embed", self.embed(inputs))
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            # position first: every step of the recurrence then reads one block of memory
            x = torch.stack(layer(x.transpose(0, 1)), dim=1)
            x = tap(f"layers.{index}.hook_hidden", gather_positions(x, positions) if index == last else x)
        return tap("hook_logits", self.unembed(x))


class LSTMLayer(nn.Module):
    """Compute `c' = σ(f) c + σ(i) tanh(g)`, `h' = σ(o) tanh(c')`, with `i, f, g, o = x W_ih + b_ih + h W_hh + b_hh`.

    The columns hold the four gates in PyTorch's order; `h` and `c` start at zero. There are two biases, as in PyTorch:
    under Adam their sum moves twice as fast as one bias would.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W_ih, self.W_hh = (nn.Parameter(torch.empty(width, 4 * width)) for _ in range(2))
        self.b_ih, self.b_hh = (nn.Parameter(torch.empty(4 * width)) for _ in range(2))

    def forward(self, x: Float[Tensor, "position batch width"]) -> list[Float[Tensor, "batch width"]]:
        """Return the hidden state after each position."""
        first, *rest = affine(x, self.W_ih, self.b_ih + self.b_hh).unbind(0)
        hidden, cell = _step(first, None)
        states = [hidden]
        for given in rest:
            hidden, cell = _step(torch.addmm(given, hidden, self.W_hh), cell)
            states.append(hidden)
        return states


def _step(
    gates: Float[Tensor, "batch gates"], cell: Float[Tensor, "batch width"] | None
) -> tuple[Float[Tensor, "batch width"], Float[Tensor, "batch width"]]:
    """Return the next hidden and cell state; a cell of None means zero."""
    enter, keep, new, show = gates.chunk(4, dim=-1)
    cell = enter.sigmoid() * new.tanh() + (0 if cell is None else keep.sigmoid() * cell)
    return show.sigmoid() * cell.tanh(), cell


def _needed(positions: Tensor, length: int) -> int:
    """Return how many positions to compute: up to the last scored one, or all if it cannot be read cheaply."""
    if positions.device.type != "cpu" or positions.numel() == 0:
        return length  # reading a number from a GPU would wait for it, and cannot be captured in a graph
    try:
        return min(length, int(positions.max()) + 1)
    except RuntimeError:  # mapped over members; each has its own positions
        return length
