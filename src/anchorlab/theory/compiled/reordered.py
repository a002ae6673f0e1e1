"""Put the heads of a compiled model in random order, so that their numbers do not show which of them matter."""

import dataclasses

import torch

from anchorlab.models import DecoderSpec
from anchorlab.theory.compiled.model import Compiled


def reordered(made: Compiled, generator: torch.Generator) -> Compiled:
    """Return the same model with the heads of each layer in random order, in its weights and in its truth.

    Without this, the first head of every layer is in a minimal set, and any other head is a backup, an error or idle.
    """
    spec, weights, names = made.ensemble.spec, dict(made.ensemble.weights), dict[str, str]()
    assert isinstance(spec, DecoderSpec)
    for layer in range(spec.layers):
        order = torch.randperm(spec.heads, generator=generator)
        names |= {f"{layer}.{old}": f"{layer}.{new}" for new, old in enumerate(order.tolist())}
        columns = torch.arange(spec.heads * spec.head_width).reshape(spec.heads, -1)[order].flatten()
        for role in "QKVO":
            name = f"blocks.{layer}.attn.W_{role}"
            weights[name] = weights[name].index_select(1 if role == "O" else 2, columns)  # axis 0 is the member
    old = made.truth
    moved = {names.get(unit.name, unit.name): unit for unit in old.units}
    units = tuple(moved[unit.name].replace(name=unit.name) for unit in old.units)
    minimal = (tuple(sorted(names.get(name, name) for name in one)) for one in old.minimal)
    cancelling = tuple((names[first], names[second]) for first, second in old.cancelling)
    truth = old.replace(units=units, minimal=tuple(sorted(minimal)), cancelling=cancelling)
    return dataclasses.replace(made, ensemble=dataclasses.replace(made.ensemble, weights=weights), truth=truth)
