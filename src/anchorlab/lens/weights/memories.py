"""Associative memories: how strongly a product of weights associates embeddings of tokens or positions."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call, vmap

from anchorlab.errors import SpecError
from anchorlab.lens.look.inputs import AnyModel, as_ensemble
from anchorlab.models.feedforward import FeedForward, LinearFeedForward
from anchorlab.models.sites import identity_tap
from anchorlab.spec import unknown_name
from anchorlab.training import Ensemble, TrainedRun


def memory(model: AnyModel, left: str, right: str) -> Float[Tensor, "member row column"]:
    """Return the inner products `⟨u_i, v_j⟩` of the rows of `left` with the rows of `right`.

    Each side is a chain: a matrix whose rows are vectors, followed by the matrices or feed-forward layers that are
    applied to these vectors, in order. `.T` transposes a matrix:

        memory(model, "embed.W_E @ blocks.1.attn.W_V", "unembed.W_U.T")  # Figure 7, right
        memory(model, "embed.W_E @ blocks.1.mlp", "unembed.W_U.T")  # Figure 7, middle: F_2
        memory(model, "embed.W_E @ blocks.0.attn.W_V", "embed.W_E @ blocks.1.attn.W_KQ")  # Figure 8
        memory(model, "pos_embed.W_pos @ blocks.0.attn.W_KQ", "pos_embed.W_pos")  # Figure 7, left, before the softmax

    If a head has both `W_V` and `W_O`, write `W_V @ W_O`. Only the named parts are applied: no biases outside
    feed-forward layers, no layer norms, no scaling of attention scores. A module counts as one member.

    Source: truncated weights, appendix A.1.
    """
    ensemble = as_ensemble(model)
    rows, columns = _rows(ensemble, left, "left"), _rows(ensemble, right, "right")
    if rows.shape[-1] != columns.shape[-1]:
        problem = f"ends with vectors of width {columns.shape[-1]}, left with {rows.shape[-1]}"
        raise SpecError("right", problem, "write a matrix with .T to transpose it")
    return rows @ columns.mT


def memory_along(
    run: TrainedRun, left: str, right: str, steps: Sequence[int] | None = None
) -> tuple[list[int], Float[Tensor, "step member row column"]]:
    """Return the training steps and `memory` at each, for all of a run's checkpoints or for `steps`.

    Only one checkpoint is in memory at a time.
    """
    steps = list(run.checkpoints if steps is None else steps)
    if not steps:
        raise SpecError("steps", "names no checkpoint", "give at least one, or leave steps out")
    return steps, torch.stack([memory(run.ensemble(step), left, right) for step in steps])


def _rows(ensemble: Ensemble, chain: str, side: str) -> Float[Tensor, "member row width"]:
    first, *rest = (part.strip() for part in chain.split("@"))
    matrices = {name: value for name, value in ensemble.weights.items() if value.ndim == 3}
    layers = {  # the input matrix of each feed-forward layer
        name: f"{name}.W_F" if isinstance(layer, LinearFeedForward) else f"{name}.W_in"
        for name, layer in ensemble.template.named_modules()
        if isinstance(layer, FeedForward | LinearFeedForward)
    }

    def matrix(part: str) -> Tensor:
        name = part.removesuffix(".T")
        if name not in matrices:
            raise unknown_name(side, part, [*matrices, *layers], "matrix or feed-forward layer")
        return matrices[name] if name == part else matrices[name].mT

    if first in layers:
        problem = f"begins with {first!r}, a layer, which has no rows"
        raise SpecError(side, problem, "begin with a matrix whose rows are vectors")
    rows = matrix(first)
    for part in rest:
        entrance = matrix(layers.get(part, part))
        if rows.shape[-1] != entrance.shape[1]:
            problem = f"{part!r} takes vectors of width {entrance.shape[1]}, not {rows.shape[-1]}"
            raise SpecError(side, problem, "write the parts in the order in which vectors pass them")
        rows = _through(ensemble, part, rows) if part in layers else rows @ entrance
    return rows


def _through(
    ensemble: Ensemble, name: str, rows: Float[Tensor, "member row width"]
) -> Float[Tensor, "member row width"]:
    layer, start = ensemble.template.get_submodule(name), f"{name}."
    weights = {key.removeprefix(start): value for key, value in ensemble.weights.items() if key.startswith(start)}
    one = vmap(lambda own, sequence: functional_call(layer, own, (sequence, identity_tap)))
    passed: Tensor = one(weights, rows.unsqueeze(1))
    return passed.squeeze(1)
