"""The autoencoder of Toy models of superposition."""

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError, one_sequence
from anchorlab.models.initialisation import draw_normal
from anchorlab.models.model import Model, ModelSpec, gather_positions, register_model
from anchorlab.models.sites import HIDDEN, LOGITS, Positions, Site, Tap, by_name, identity_tap
from anchorlab.models.transformer import require_inputs


@register_model("superposition")
class SuperpositionSpec(ModelSpec):
    """An autoencoder with tied weights, `ReLU(x W Wᵀ + b)`, or without the activation its linear counterpart.

    `W` is `[feature hidden]`, drawn as N(0, 2 / (features + hidden)); `b` starts at zero.
    Source: Elhage et al., Toy models of superposition, 2022.
    """

    kind: Literal["superposition"] = "superposition"
    hidden: PositiveInt = 5
    activation: Literal["relu", "none"] = "relu"

    def build(self, shape: TaskShape) -> "Autoencoder":
        """Build a member for vector tasks whose outputs are as wide as their inputs.

        Errors: `SpecError` for token inputs, and for outputs of another width.
        """
        require_inputs(self, shape, "vectors")
        if shape.input_size != shape.output_size:
            problem = f"an autoencoder gives back {shape.input_size} features, but the task wants {shape.output_size}"
            raise SpecError("kind", problem, "use 'vectors'")
        return Autoencoder(shape.input_size, self.hidden, relu=self.activation == "relu")


class Autoencoder(Model):
    """Compute `ReLU(x W Wᵀ + b)` at every position."""

    def __init__(self, features: int, hidden: int, *, relu: bool) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.empty(features, hidden))
        self.b = nn.Parameter(torch.empty(features))
        self.relu, self._draw = relu, draw_autoencoder
        self.sites = by_name([Site("hook_hidden", HIDDEN), LOGITS])

    def forward(
        self, inputs: Float[Tensor, "batch position feature"], positions: Positions = None, tap: Tap = identity_tap
    ) -> Float[Tensor, "batch scored output"]:
        """Return predictions at `positions` (`[scored]` or `[batch scored]`), or everywhere when None."""
        if inputs.ndim == 2:
            raise one_sequence("inputs")
        hidden = tap("hook_hidden", gather_positions(inputs, positions) @ self.W)
        outputs = hidden @ self.W.T + self.b
        return tap("hook_logits", outputs.relu() if self.relu else outputs)


def draw_autoencoder(model: nn.Module, generator: torch.Generator) -> None:
    """Draw `W` from N(0, 2 / (features + hidden)); `b` is zero."""
    draw_normal(model, generator, lambda path, weight: (2 / sum(weight.shape)) ** 0.5)
