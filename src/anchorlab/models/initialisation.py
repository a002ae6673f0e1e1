"""Draw initial weights: PyTorch's defaults, normal with a rate γ, unit embeddings, or GPT-2's recipe."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError

Initialisation = Literal["torch", "gamma"]
"""PyTorch's defaults, or normal with standard deviation `d^-γ`, where d is the size of a weight (`size_of`)."""

Embeddings = Literal["sphere", "orthonormal"]
"""Unit vectors drawn independently, or the first vectors of a random orthonormal basis."""

WeightGroup = Literal["embedding", "attention", "feed_forward", "recurrent", "projection"]
"""The groups of weight matrices whose γ can be set separately."""

GAMMA = 0.5
"""The γ of `draw_gamma`, at which a map preserves the scale of its input."""

_WEIGHT_GROUPS: dict[str, WeightGroup] = {
    **dict.fromkeys(("W_E", "W_pos"), "embedding"),
    **dict.fromkeys(("W_Q", "W_K", "W_KQ", "W_V", "W_O"), "attention"),
    **dict.fromkeys(("W_gate", "W_in", "W_out", "W_F"), "feed_forward"),
    **dict.fromkeys(("W_ih", "W_hh"), "recurrent"),
    **dict.fromkeys(("W_U", "W_flat"), "projection"),
}


def weight_group(weight: str) -> WeightGroup | None:
    """Return the group of a weight matrix by its name, such as `attention` for `blocks.0.attn.W_Q`, or None."""
    return _WEIGHT_GROUPS.get(weight.rpartition(".")[2])


def draw_torch_default(model: nn.Module, generator: torch.Generator) -> None:
    """Draw PyTorch's defaults: embeddings N(0, 1), maps and biases uniform in ±1/sqrt(inputs), norms 1 and 0."""
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


def size_of(weight: str, shape: Sequence[int]) -> int:
    """Return the size d in a weight matrix's standard deviation `d^-γ`: the number of inputs (rows) of a map.

    For token and position embeddings, d is the width of the stream: their rows are drawn like the vectors to which they
    are added.
    """
    return shape[1] if weight_group(weight) == "embedding" else shape[0]


def draw_gamma(model: nn.Module, generator: torch.Generator) -> None:
    """Draw every matrix as N(0, d^-2γ) with γ = 0.5 and d from `size_of`; biases 0, norms 1 and 0.

    For another γ, multiply by `gamma_factor`.
    Source of the initialisation rate γ: Zhang et al., Initialization is Critical to Whether Transformers Fit Composite
    Functions by Reasoning or Memorizing (2024).
    """
    draw_normal(model, generator, lambda path, weight: size_of(path, weight.shape) ** -GAMMA)


def draw_normal(model: nn.Module, generator: torch.Generator, deviation: Callable[[str, nn.Parameter], float]) -> None:
    """Draw every matrix from a normal distribution of the given standard deviation; biases 0, norms 1 and 0."""
    for path, weight in model.named_parameters():
        if weight.ndim == 2:
            nn.init.normal_(weight, std=deviation(path, weight), generator=generator)
        else:
            nn.init.constant_(weight, 1.0 if path.rpartition(".")[2] == "w" else 0.0)


def gamma_factor(size: int, gamma: float) -> float:
    """Return the factor that changes the standard deviation of `draw_gamma` for this size to `size^-gamma`."""
    return float(size ** (GAMMA - gamma))


DRAWS: dict[Initialisation, Callable[[nn.Module, torch.Generator], None]] = {
    "torch": draw_torch_default,
    "gamma": draw_gamma,
}
"""The function that draws a module's weights, for each initialisation."""


def draw_unit_embeddings(model: nn.Module, generator: torch.Generator, embeddings: Embeddings) -> None:
    """Draw every map from N(0, 1 / inputs), and unit vectors for the rows of `embed.W_E` and columns of `unembed.W_U`.

    The two families are independent. In each, the vectors are independent on the sphere, or orthonormal.
    """
    draw_normal(model, generator, lambda path, weight: weight.shape[0] ** -0.5)
    for name, axis in (("embed.W_E", 1), ("unembed.W_U", 0)):
        vectors = model.get_parameter(name)
        if embeddings == "sphere":
            vectors.div_(vectors.norm(dim=axis, keepdim=True))
        else:
            columns = vectors if axis == 0 else vectors.T
            basis, triangle = torch.linalg.qr(columns)
            columns.copy_(basis * triangle.diagonal().sign())  # makes the basis uniform


def require_room(embeddings: Embeddings, width: int, shape: TaskShape) -> None:
    """Raise `SpecError` for more orthonormal vectors than the width allows."""
    most = max(shape.input_size, shape.output_size)
    if embeddings == "orthonormal" and most > width:
        problem = f"{width} coordinates have no room for {most} orthonormal vectors"
        raise SpecError("width", problem, f"use at least {most}, or embeddings = sphere")


def draw_gpt2(
    model: nn.Module, generator: torch.Generator, scale: float, into_stream: float, keys_like_queries: bool = False
) -> None:
    """Draw GPT-2's initial weights: maps N(0, scale²), biases 0, norms 1 and 0.

    Maps that write into the stream are multiplied by `into_stream`, which is 1 / sqrt(2 layers) in GPT-2. With
    `keys_like_queries` every key map starts as a copy of its query map, so that positions attend to similar positions
    at first.
    """
    writes = ("W_O", "W_out")
    draw_normal(model, generator, lambda path, _: scale * (into_stream if path.rpartition(".")[2] in writes else 1))
    for path, weight in model.named_parameters():
        if keys_like_queries and path.endswith(".W_K"):
            weight.copy_(model.get_parameter(path.replace("W_K", "W_Q")))
