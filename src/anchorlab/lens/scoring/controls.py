"""Control scores, which do not depend on what a unit of the member computes."""

from dataclasses import replace

import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look.inputs import AnyModel, as_ensemble
from anchorlab.lens.scoring.graph import EMBED, graph_of
from anchorlab.lens.scoring.scores import Passes, Scores
from anchorlab.lens.vectors.attribution import blocks, stack, transformer
from anchorlab.rng import torch_generator


def weight_norms(model: AnyModel) -> Scores:
    """Score every unit by the Euclidean norm of all its weights together: sqrt of the sum of their squares.

    A head counts its columns of W_Q, W_K and W_V with their biases, and its rows of W_O; a feed-forward layer all its
    matrices and biases; `embed` the embeddings of tokens and positions. With a merged key-query matrix, W_KQ takes the
    place of W_Q and W_K.
    """
    ensemble = as_ensemble(model)
    own_blocks, units = blocks(transformer(ensemble)), graph_of(stack(ensemble)).units
    squares: dict[str, Tensor] = {
        name: value.double().square().cpu() for name, value in ensemble.weights.items() if value.is_floating_point()
    }
    scores = []
    for unit in units:
        layer, _, part = unit.partition(".")
        if unit == EMBED:
            own = [value for name, value in squares.items() if name.startswith(("embed.", "pos_embed."))]
        elif part == "mlp":
            own = [value for name, value in squares.items() if name.startswith(f"blocks.{layer}.mlp.")]
        else:
            heads = own_blocks[int(layer)].attn.heads
            own = [
                value.chunk(heads, dim=1 if name.endswith("W_O") else -1)[int(part)]
                for name, value in squares.items()
                if name.startswith(f"blocks.{layer}.attn.") and not name.endswith("b_O")
            ]
        scores.append(torch.stack([value.flatten(1).sum(dim=1) for value in own]).sum(dim=0).sqrt())
    return Scores("weight norms", units, torch.stack(scores, dim=1), Passes(0, 0))


def random_scores(model: AnyModel, seed: int = 0) -> Scores:
    """Score every unit by a uniform random number in [0, 1), drawn for each member from `seed`."""
    ensemble = as_ensemble(model)
    units = graph_of(stack(ensemble)).units
    drawn = [
        torch.rand(len(units), dtype=torch.float64, generator=torch_generator(seed, "random scores", member))
        for member in range(ensemble.size)
    ]
    return Scores("random", units, torch.stack(drawn), Passes(0, 0))


def other_members(scores: Scores) -> Scores:
    """Return scores shifted by one member: each member gets the previous one's, and the first gets the last one's.

    They tell how much of an agreement comes from what all seeds of a task share, such as early layers that matter more.
    """
    if len(scores.values) < 2:
        raise SpecError("scores", "are of a single member", "give scores of at least two")
    edges = None if scores.edge_values is None else scores.edge_values.roll(1, dims=0)
    method = f"{scores.method} of another member"
    return replace(scores, method=method, values=scores.values.roll(1, dims=0), edge_values=edges)
