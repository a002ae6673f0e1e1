"""What every method says about the units of a model, and how far it agrees with the model's landscape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import (
    Landscape,
    Passes,
    Scores,
    attribute,
    landscape,
    other_members,
    patch,
    patch_edges,
    prune_edges,
    random_scores,
    score_edges,
    score_units,
    weight_norms,
)
from anchorlab.rng import torch_generator
from anchorlab.tasks import Batch, Task
from anchorlab.training import Ensemble
from anchorlab.truth.agreement import agreement, nearest_area, nearest_area_by_chance
from anchorlab.truth.heads import circuit_paths, detected, of_heads

if TYPE_CHECKING:
    import polars

STEPS = 5  # runs on the path of integrated gradients
PRUNED = 0.01  # ACDC's threshold, in nats

ABLATION, RESAMPLED = "ablation, one by one", "ablation, resampled"
PATHS = "path patching"
PLAIN, INTEGRATED = "attribution patching", f"attribution patching, {STEPS} steps"
EDGES, INTEGRATED_EDGES = "edge attribution patching", f"edge attribution patching, {STEPS} steps"
METHODS = (
    ABLATION,
    RESAMPLED,
    "activation patching",
    PATHS,
    "direct attribution",
    PLAIN,
    INTEGRATED,
    "gradient times activation",
    EDGES,
    INTEGRATED_EDGES,
    "ACDC",
)
RANDOM, WRONG, OTHER = "random", "wrong circuit", "another member"
CONTROLS = ("weight norms", OTHER, RANDOM, WRONG)
DETECTORS, CIRCUIT = "detectors", "find_circuit"
OF_HEADS = (DETECTORS, CIRCUIT)


@dataclass(frozen=True)
class Ranked:
    """What methods and controls say about the units of each member, and what is true.

    Fields
        truth: the landscape of heads and feed-forward layers
        scores: by the name of the method or control, in the order of `METHODS` and `CONTROLS`
    """

    truth: Landscape
    scores: Mapping[str, Scores]

    @cached_property
    def tables(self) -> "list[polars.DataFrame]":
        """`agreement`, for each method and control."""
        return [agreement(one, self.truth) for one in self.scores.values()]

    def column(self, name: str) -> Float[Tensor, "member method"]:
        """Return a column of `agreement`, for all methods and controls."""
        return torch.tensor([one[name].to_list() for one in self.tables], dtype=torch.float64).T

    @cached_property
    def skill(self) -> Float[Tensor, "member method"]:
        """The area under the ROC curve against the nearest minimal circuit: 0 as by chance, 1 if it is all right.

        NaN for a member whose only circuits are all units or none.
        """
        units = self.truth.units
        sets = [torch.tensor([[unit in one for unit in units] for one in own]) for own in self.truth.minimal()]
        chance = nearest_area_by_chance(sets, torch_generator(0, "rankings")).unsqueeze(1)
        areas = [nearest_area(one.of(units).abs().double(), sets) for one in self.scores.values()]
        return (torch.stack(areas, dim=1) - chance) / (1 - chance)

    def shares(self, name: str) -> Float[Tensor, "member unit"]:
        """Return the sizes of a method's scores, as shares of their sum; equal shares if all are 0."""
        return shares(self.scores[name].of(self.truth.units))


def shares(values: Float[Tensor, "*member unit"]) -> Float[Tensor, "*member unit"]:
    """Return the sizes of values as shares of their sum over units; equal shares if all are 0."""
    sizes = values.double().abs()
    whole = sizes.sum(dim=-1, keepdim=True)
    return torch.where(whole > 0, sizes / whole, 1 / sizes.shape[-1])


def split_of(task: Task) -> str:
    """Return the split that sequences come from: `test` if there is one, else the last."""
    return "test" if "test" in task.splits else task.splits[-1]


def paired(task: Task, count: int) -> tuple[Batch, Batch]:
    """Return clean sequences, and for each its corrupted partner: the previous one, and for the first the last."""
    clean = task.sample(split_of(task), count, seed=0)
    return clean, replace(clean, inputs=clean.inputs.roll(1, dims=0), answers=clean.answers.roll(1, dims=0))


class ByTruth(NamedTuple):
    """What methods say of the members of one ensemble, against three truths.

    Fields
        whole: the landscape of all units, replaced by their mean
        resampled: the same, replaced by another sequence's
        heads: the landscape of heads, with every feed-forward layer kept; methods for heads alone come last
    """

    whole: Ranked
    resampled: Ranked
    heads: Ranked


def ranked(ensemble: Ensemble, task: Task, pairs: int, sequences: int, seed: int = 0) -> ByTruth:
    """Apply every method and control to the members of an ensemble, and measure their landscapes.

    Args:
        pairs: the number of clean and corrupted sequences that the methods see
        sequences: the number of sequences behind a landscape
        seed: of the random ranking
    """
    truth, resampled = (
        landscape(ensemble, "all", how, task=task, split=split_of(task), sequences=sequences, progress=False)
        for how in ("mean", "resample")
    )
    both = paired(task, pairs)
    integrated = score_units(ensemble, *both, steps=STEPS)
    found = [
        alone(truth, ABLATION),
        alone(resampled, RESAMPLED),
        patched(ensemble, *both, truth.units),
        patch_edges(ensemble, *both, progress=False),
        direct(ensemble, *both, truth.units),
        score_units(ensemble, *both),
        integrated,
        score_units(ensemble, *both, times="activation"),
        score_edges(ensemble, *both),
        score_edges(ensemble, *both, steps=STEPS),
        prune_edges(ensemble, *both, threshold=PRUNED, progress=False),
        weight_norms(ensemble),
        replace(other_members(integrated) if ensemble.size > 1 else nothing(integrated), method=OTHER),
        random_scores(ensemble, seed),
    ]
    heads = [
        replace(detected(ensemble, both[0]), method=DETECTORS),
        replace(circuit_paths(ensemble, task, split_of(task), pairs), method=CIRCUIT),
    ]
    return ByTruth(against(truth, found), against(resampled, found), against(of_heads(truth), [*found, *heads]))


def against(truth: Landscape, found: Sequence[Scores]) -> Ranked:
    """Return scores against a truth, with the wrong circuit after all controls."""
    scores = {one.method: one for one in found if one.method not in OF_HEADS}
    scores[WRONG] = reversed_truth(truth)
    assert (*METHODS, *CONTROLS) == tuple(scores)
    return Ranked(truth, scores | {one.method: one for one in found if one.method in OF_HEADS})


def alone(truth: Landscape, name: str) -> Scores:
    """Return how much the loss rises if one unit alone is replaced."""
    every = truth.loss.shape[1] - 1
    without = [every - (1 << place) for place in range(len(truth.units))]
    return Scores(name, truth.units, truth.loss[:, without] - truth.loss[:, [every]], Passes(len(without) + 1, 0))


def patched(ensemble: Ensemble, clean: Batch, corrupted: Batch, units: tuple[str, ...]) -> Scores:
    """Return the share of the clean answer that each unit's clean output restores in the corrupted run."""
    found: dict[str, Tensor] = {}
    for site, over in (("blocks.*.attn.hook_z", ("head",)), ("blocks.*.hook_mlp_out", ())):
        if not over and not any(unit.endswith(".mlp") for unit in units):
            continue
        result = patch(ensemble, clean, corrupted, site=site, over=over, progress=False)
        for place, name in enumerate(result.sites):
            layer, values = name.split(".")[1], result.recovered[:, place]
            found |= {f"{layer}.{head}": one for head, one in enumerate(values.T)} if over else {f"{layer}.mlp": values}
    values = torch.stack([found[unit] for unit in units], dim=1).double()
    return Scores("activation patching", units, values.nan_to_num(nan=0.0), Passes(len(units) + 2, 0))


def direct(ensemble: Ensemble, clean: Batch, corrupted: Batch, units: tuple[str, ...]) -> Scores:
    """Return the mean contribution of each unit to the clean answer's logit minus the corrupted answer's."""
    right, wrong = (attribute(ensemble, clean.inputs, one.answers, clean.positions) for one in (clean, corrupted))
    places = []
    for unit in units:
        layer, _, part = unit.partition(".")
        name = f"blocks.{layer}.mlp" if part == "mlp" else f"blocks.{layer}.attn.head.{part}"
        places.append(right.components.index(name))
    values = (right.contributions - wrong.contributions)[:, places].double().mean(dim=(2, 3))
    return Scores("direct attribution", units, values, Passes(1, 0))


def reversed_truth(truth: Landscape) -> Scores:
    """Return the reverse of the ranking by Shapley values: the least important unit first."""
    sizes = truth.shapley.abs()
    return Scores(WRONG, truth.units, sizes.amax(dim=1, keepdim=True) - sizes, Passes(0, 0))


def nothing(scores: Scores) -> Scores:
    """Return scores without a value: the NaN of a control that a single member cannot have."""
    return replace(scores, values=torch.full_like(scores.values, torch.nan), edges=(), edge_values=None)
