"""How initial weights are drawn: PyTorch's defaults, or GPT-2's recipe; always from an explicit generator."""

import math

import torch
from torch import nn


def draw_torch_default(model: nn.Module, generator: torch.Generator) -> None:
    """PyTorch's defaults: embeddings N(0, 1), maps and their biases uniform within 1/sqrt(inputs), norms 1 and 0."""
    for path, weight in model.named_parameters():
        name = path.rpartition(".")[2]
        if name in ("W_E", "W_pos"):
            nn.init.normal_(weight, generator=generator)
        elif name == "b_U":
            bound = 1 / math.sqrt(model.get_parameter(path.replace("b_U", "W_U")).shape[0])
            nn.init.uniform_(weight, -bound, bound, generator=generator)
        elif weight.ndim == 2:
            bound = 1 / math.sqrt(weight.shape[0])
            nn.init.uniform_(weight, -bound, bound, generator=generator)
        else:
            nn.init.constant_(weight, 1.0 if name == "w" else 0.0)


def draw_gpt2(
    model: nn.Module, generator: torch.Generator, scale: float, layers: int, keys_like_queries: bool = False
) -> None:
    """GPT-2's recipe: maps N(0, scale²), over sqrt(2 layers) where they write into the stream; biases 0, norms 1.

    With `keys_like_queries` every key map starts as a copy of its query map, so that attention begins at what is alike.
    """
    for path, weight in model.named_parameters():
        name = path.rpartition(".")[2]
        if weight.ndim == 2:
            into_stream = name in ("W_O", "W_out")
            nn.init.normal_(weight, std=scale / math.sqrt(2 * layers) if into_stream else scale, generator=generator)
            if keys_like_queries and name == "W_K":
                weight.copy_(model.get_parameter(path.replace("W_K", "W_Q")))
        else:
            nn.init.constant_(weight, 1.0 if name == "w" else 0.0)
