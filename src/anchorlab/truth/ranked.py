"""The scores that every method gives to a model's units, and how well they agree with the model's landscape."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab import lens
from anchorlab.lens.effects.effects import Metric
from anchorlab.rng import torch_generator
from anchorlab.tasks import Batch, Task
from anchorlab.training import Ensemble
from anchorlab.truth.agreement import measures, minimal_sets, nearest_area_by_chance
from anchorlab.truth.heads import circuit_paths, detected, of_heads

STEPS = 5  # runs on the path of integrated gradients
PRUNED = 0.01  # ACDC's threshold, in nats

ABLATION, RESAMPLED = OWN = "ablation, mean *", "ablation, resampled *"
"""Methods that read their scores off a truth: the losses without one unit, by the mean or resampled."""

PATCHING, PATHS, DIRECT, ACDC = "activation patching", "path patching", "direct attribution", "ACDC"
PLAIN, INTEGRATED = "attribution patching", f"attribution patching, {STEPS} steps"
EDGES, INTEGRATED_EDGES = "edge attribution patching", f"edge attribution patching, {STEPS} steps"
BY_BASELINE: Mapping[str, Callable[..., lens.Scores]] = {
    PATCHING: partial(lens.patch_units, progress=False),
    PLAIN: lens.score_units,
    INTEGRATED: partial(lens.score_units, steps=STEPS),
    PATHS: partial(lens.patch_edges, progress=False),
    EDGES: lens.score_edges,
    INTEGRATED_EDGES: partial(lens.score_edges, steps=STEPS),
    ACDC: partial(lens.prune_edges, threshold=PRUNED, progress=False),
}
"""Methods that replace units or edges by any baseline."""


def cross_entropy(
    output: Float[Tensor, "sequence scored output"], answers: Int[Tensor, "sequence scored 2"]
) -> Float[Tensor, "sequence scored"]:
    """Return the loss of the clean answer, in nats."""
    return -output.log_softmax(dim=-1).gather(-1, answers[..., :1]).squeeze(-1)


BY_LOSS = ", loss"
METRICS: Mapping[str, Metric | None] = {"": None, BY_LOSS: cross_entropy}
"""The metrics on which effects are measured, by suffix: the difference of logits (None) or the loss."""

DENOISING = f"{PATCHING}, denoising"
FORMS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    name: {
        f"{name}, {baseline}{by}": {"baseline": baseline, "metric": metric}
        for by, metric in METRICS.items()
        for baseline in ("pair", "mean", "zero")
        if (name, by) not in ((PATHS, BY_LOSS), (ACDC, BY_LOSS)) and (name, baseline) != (ACDC, "zero")
    }
    | ({DENOISING: {"into": "corrupted"}} if name == PATCHING else {})
    for name in BY_BASELINE
}
"""The arguments of each form of each method: a baseline and a metric, without forms that take too many passes."""

FAMILIES: Mapping[str, tuple[str, ...]] = {**{name: tuple(forms) for name, forms in FORMS.items()}, DIRECT: (DIRECT,)}
"""The forms of every method that takes nothing from the truth."""

METHODS = (*OWN, *(form for forms in FAMILIES.values() for form in forms))
RANDOM, WRONG, OTHER = "random", "wrong circuit", "another member"
CONTROLS = ("weight norms", OTHER, RANDOM, WRONG)
DETECTORS, CIRCUIT = "detectors", "find_circuit"
OF_HEADS = (DETECTORS, CIRCUIT)


@dataclass(frozen=True)
class Ranked:
    """The scores that methods and controls give to the units of each member, and the truth.

    Fields
        truth: the landscape of heads and feed-forward layers
        scores: by the name of the method or control, in the order of `METHODS` and `CONTROLS`
    """

    truth: lens.Landscape
    scores: Mapping[str, lens.Scores]

    @cached_property
    def sets(self) -> list[Bool[Tensor, "set unit"]]:
        """The minimal circuits of each member."""
        return minimal_sets(self.truth)

    @cached_property
    def chance(self) -> Float[Tensor, "member"]:
        """The mean area of random rankings against the nearest minimal circuit."""
        return nearest_area_by_chance(self.sets, torch_generator(0, "rankings"))

    @cached_property
    def columns(self) -> dict[str, Float[Tensor, "member method"]]:
        """The columns of `agreement` that are measures, for all methods and controls."""
        each = [measures(one.of(self.truth.units), self.sets, self.truth, self.chance) for one in self.scores.values()]
        return {name: torch.stack([one[name].double() for one in each], dim=1) for name in each[0]}

    @cached_property
    def skill(self) -> Float[Tensor, "member method"]:
        """The area under the ROC curve against the nearest minimal circuit, scaled to 0 for chance, 1 if all is right.

        NaN for a member whose only circuits are all units or none.
        """
        chance = self.columns["area_by_chance"]
        return (self.columns["area"] - chance) / (1 - chance)

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
    """Return clean sequences, and as the corrupted partner of each the previous sequence (of the first, the last)."""
    clean = task.sample(split_of(task), count, seed=0)
    return clean, replace(clean, inputs=clean.inputs.roll(1, dims=0), answers=clean.answers.roll(1, dims=0))


class ByTruth(NamedTuple):
    """The rankings of the members of one ensemble, against three truths.

    Fields
        whole: against the landscape of all units, replaced by their mean
        resampled: against the landscape of all units, replaced by their output in another sequence
        heads: against the landscape of heads, with every feed-forward layer kept; methods for heads alone come last
    """

    whole: Ranked
    resampled: Ranked
    heads: Ranked


def ranked(ensemble: Ensemble, task: Task, pairs: int, sequences: int, seed: int = 0) -> ByTruth:
    """Apply every method and control to the members of an ensemble, and measure their landscapes.

    Args:
        pairs: the number of pairs of a clean and a corrupted sequence that the methods see
        sequences: the number of sequences on which each landscape is measured
        seed: seeds the random ranking
    """
    truth, resampled = (
        lens.landscape(ensemble, "all", how, task=task, split=split_of(task), sequences=sequences, progress=False)
        for how in ("mean", "resample")
    )
    both = paired(task, pairs)
    found = [alone(truth, ABLATION), alone(resampled, RESAMPLED)]
    for name, score in BY_BASELINE.items():
        found += [replace(score(ensemble, *both, **given), method=form) for form, given in FORMS[name].items()]
    integrated = next(one for one in found if one.method == f"{INTEGRATED}, mean")
    found += [
        direct(ensemble, *both, truth.units),
        lens.weight_norms(ensemble),
        replace(lens.other_members(integrated) if ensemble.size > 1 else nothing(integrated), method=OTHER),
        lens.random_scores(ensemble, seed),
    ]
    heads = [
        replace(detected(ensemble, both[0]), method=DETECTORS),
        replace(circuit_paths(ensemble, task, split_of(task), pairs), method=CIRCUIT),
    ]
    return ByTruth(against(truth, found), against(resampled, found), against(of_heads(truth), [*found, *heads]))


def against(truth: lens.Landscape, found: Sequence[lens.Scores]) -> Ranked:
    """Return scores against a truth, with the control `WRONG`, which is made from this truth, after other controls."""
    scores = {one.method: one for one in found if one.method not in OF_HEADS}
    scores[WRONG] = reversed_truth(truth)
    assert (*METHODS, *CONTROLS) == tuple(scores)
    return Ranked(truth, scores | {one.method: one for one in found if one.method in OF_HEADS})


def alone(truth: lens.Landscape, name: str) -> lens.Scores:
    """Return how much the loss rises if one unit alone is replaced."""
    every = truth.loss.shape[1] - 1
    without = [every - (1 << place) for place in range(len(truth.units))]
    return lens.Scores(
        name, truth.units, truth.loss[:, without] - truth.loss[:, [every]], lens.Passes(len(without) + 1, 0)
    )


def direct(ensemble: Ensemble, clean: Batch, corrupted: Batch, units: tuple[str, ...]) -> lens.Scores:
    """Return the mean contribution of each unit to the clean answer's logit minus the corrupted answer's."""
    right, wrong = (lens.attribute(ensemble, clean.inputs, one.answers, clean.positions) for one in (clean, corrupted))
    places = []
    for unit in units:
        layer, _, part = unit.partition(".")
        name = f"blocks.{layer}.mlp" if part == "mlp" else f"blocks.{layer}.attn.head.{part}"
        places.append(right.components.index(name))
    values = (right.contributions - wrong.contributions)[:, places].double().mean(dim=(2, 3))
    return lens.Scores(DIRECT, units, values, lens.Passes(1, 0))


def reversed_truth(truth: lens.Landscape) -> lens.Scores:
    """Return the reverse of the ranking by Shapley values: the least important unit first."""
    sizes = truth.shapley.abs()
    return lens.Scores(WRONG, truth.units, sizes.amax(dim=1, keepdim=True) - sizes, lens.Passes(0, 0))


def nothing(scores: lens.Scores) -> lens.Scores:
    """Return scores that are all NaN, for a control that needs more than one member."""
    return replace(scores, values=torch.full_like(scores.values, torch.nan), edges=(), edge_values=None)
