"""How initial weights are drawn: PyTorch's defaults, a normal law by the inputs, unit embeddings, GPT-2's recipe."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError

Initialisation = Literal["torch", "normal"]
"""PyTorch's defaults, or normal with standard deviation `inputs^-γ`."""

Embeddings = Literal["sphere", "orthonormal"]
"""Unit vectors drawn independently, or the first vectors of a random orthonormal basis."""

WeightGroup = Literal["embedding", "attention", "feed_forward", "recurrent", "projection"]
"""The kinds of weight matrices whose γ can be set apart."""

GAMMA = 0.5
"""The γ of `draw_normal`, at which a map keeps the size of what passes it."""

_WEIGHT_GROUPS: dict[str, WeightGroup] = {
    **dict.fromkeys(("W_E", "W_pos"), "embedding"),
    **dict.fromkeys(("W_Q", "W_K", "W_KQ", "W_V", "W_O"), "attention"),
    **dict.fromkeys(("W_in", "W_out", "W_F"), "feed_forward"),
    **dict.fromkeys(("W_ih", "W_hh"), "recurrent"),
    **dict.fromkeys(("W_U", "W_flat"), "projection"),
}


def weight_group(weight: str) -> WeightGroup | None:
    """The block type of a weight matrix by its name, such as `attention` for `blocks.0.attn.W_Q`; None for others."""
    return _WEIGHT_GROUPS.get(weight.rpartition(".")[2])


def draw_torch_default(model: nn.Module, generator: torch.Generator) -> None:
    """PyTorch's defaults: embeddings N(0, 1), maps and their biases uniform within 1/sqrt(inputs), norms 1 and 0."""
    for path, weight in model.named_parameters():
        stem, _, name = path.rpartition(".")
        if name in ("W_E", "W_pos"):
            nn.init.normal_(weight, generator=generator)
        elif weight.ndim == 2 or name.startswith("b_"):
            matrix = weight if weight.ndim == 2 else model.get_parameter(f"{stem}.W_{name.removeprefix('b_')}")
            bound = 1 / math.sqrt(matrix.shape[0])
            nn.init.uniform_(weight, -bound, bound, generator=generator)
        else:
            nn.init.constant_(weight, 1.0 if name == "w" else 0.0)


def draw_normal(model: nn.Module, generator: torch.Generator) -> None:
    """Every matrix N(0, inputs^-2γ) at γ = 0.5, biases 0, norms 1 and 0; `gamma_factor` leads to another γ.

    The inputs of a matrix are its rows: of an embedding the tokens or positions, since it maps their one-hot vectors.
    Source: Zhang et al., Initialization is Critical to Whether Transformers Fit Composite Functions by Reasoning or
    Memorizing (2024), whose initialisation rate γ this is.
    """
    for path, weight in model.named_parameters():
        if weight.ndim == 2:
            nn.init.normal_(weight, std=weight.shape[0] ** -GAMMA, generator=generator)
        else:
            nn.init.constant_(weight, 1.0 if path.rpartition(".")[2] == "w" else 0.0)


def gamma_factor(inputs: int, gamma: float) -> float:
    """What a matrix drawn by `draw_normal` is multiplied by to have the standard deviation `inputs^-gamma`."""
    return float(inputs ** (GAMMA - gamma))


DRAWS: dict[Initialisation, Callable[[nn.Module, torch.Generator], None]] = {
    "torch": draw_torch_default,
    "normal": draw_normal,
}
"""How each initialisation fills a module's weights from a generator."""


def draw_unit_embeddings(model: nn.Module, generator: torch.Generator, embeddings: Embeddings) -> None:
    """Every matrix as `draw_normal`; of the rows of `embed.W_E` and the columns of `unembed.W_U` directions alone stay.

    The two are drawn apart: orthonormal ones are two families, each of its own basis.
    """
    draw_normal(model, generator)
    for name, axis in (("embed.W_E", 1), ("unembed.W_U", 0)):
        vectors = model.get_parameter(name)
        if embeddings == "sphere":
            vectors.div_(vectors.norm(dim=axis, keepdim=True))
        else:
            columns = vectors if axis == 0 else vectors.T
            basis, triangle = torch.linalg.qr(columns)
            columns.copy_(basis * triangle.diagonal().sign())  # without these signs the basis would not be uniform


def require_room(embeddings: Embeddings, width: int, shape: TaskShape) -> None:
    """Refuses more orthonormal vectors than fit in a width with a `SpecError`."""
    most = max(shape.input_size, shape.output_size)
    if embeddings == "orthonormal" and most > width:
        problem = f"{width} coordinates hold no {most} orthonormal vectors"
        raise SpecError("width", problem, f"use at least {most}, or embeddings = sphere")


def draw_gpt2(
    model: nn.Module, generator: torch.Generator, scale: float, into_stream: float, keys_like_queries: bool = False
) -> None:
    """GPT-2's recipe: maps N(0, scale²), times `into_stream` where they write into the stream; biases 0, norms 1.

    GPT-2 has `into_stream` = 1 / sqrt(2 layers). With `keys_like_queries` every key map starts as a copy of its query
    map, so that attention begins at what is alike.
    """
    for path, weight in model.named_parameters():
        name = path.rpartition(".")[2]
        if weight.ndim == 2:
            std = scale * into_stream if name in ("W_O", "W_out") else scale
            nn.init.normal_(weight, std=std, generator=generator)
            if keys_like_queries and name == "W_K":
                weight.copy_(model.get_parameter(path.replace("W_K", "W_Q")))
        else:
            nn.init.constant_(weight, 1.0 if name == "w" else 0.0)
