"""The accuracy of compiled models with some units removed."""

from itertools import chain, combinations

import torch

from anchorlab.lens import Intervention, look


def removal(unit: str, rule: str) -> Intervention:
    layer, part = unit.split(".")
    if part == "mlp":
        return Intervention(site=f"blocks.{layer}.hook_mlp_out", rule=rule, may_do_nothing=True)
    return Intervention(site=f"blocks.{layer}.attn.hook_z", where={"head": int(part)}, rule=rule, may_do_nothing=True)


def accuracies(made, kept, rule="zero", n=60, seed=3) -> dict[tuple[str, ...], float]:
    """The accuracy if only some units are kept, by set of units, over sequences of every split."""
    every = [unit.name for unit in made.truth.units]
    candidates = {
        ",".join(some): [removal(unit, rule) for unit in every if unit not in some] for some in map(tuple, kept)
    }
    right = []
    for split in made.task.splits:
        batch = made.task.sample(split, n, seed)
        outputs = look(made.ensemble, batch, candidates=candidates, positions=batch.positions)["output"][0]
        right.append((outputs.argmax(dim=-1) == batch.answers).double().flatten(1))
    found = torch.cat(right, dim=1).mean(dim=1).tolist()
    return dict(zip(map(tuple, kept), found, strict=True))


def subsets(units):
    return list(chain.from_iterable(combinations(units, size) for size in range(len(units) + 1)))
