"""Emergence: anything that can be measured of a model, at every checkpoint, and when it first passes a level."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look.look import look
from anchorlab.spec import unknown_name
from anchorlab.training.ensemble import Ensemble

if TYPE_CHECKING:
    from anchorlab.training import TrainedRun

Measure = Callable[[Ensemble], Mapping[str, Float[Tensor, "member"]]]
"""What is measured of the members at one checkpoint: one number each, by name."""


@dataclass(frozen=True)
class Emergence:
    """Numbers of every member along training: `values[name]` is `[member step]`, measured at `steps`."""

    steps: tuple[int, ...]
    values: Mapping[str, Float[Tensor, "member step"]]

    def crossings(
        self, level: float, names: Sequence[str] | None = None, falling: bool = False
    ) -> dict[str, Float[Tensor, "member"]]:
        """The step at which each number, or each of some, first reaches `level`; see `first_crossing`.

        Errors: `SpecError` with the nearest name for a number that was not measured.
        """
        for name in names or ():
            if name not in self.values:
                raise unknown_name("names", name, self.values, "number")
        return {
            name: first_crossing(self.steps, self.values[name], level, falling)
            for name in (self.values if names is None else names)
        }


@dataclass(frozen=True)
class PathAttention:
    """An attention path: which head looks from which positions to which, in each sequence.

    Shapes
        queries, keys: `[batch asked]`, positions, -1 where one of them is missing
    """

    layer: int
    head: int
    queries: Int[Tensor, "batch asked"]
    keys: Int[Tensor, "batch asked"]


@dataclass(frozen=True)
class CrossingOrder:
    """In which order members pass their levels; what never does comes after all that do.

    Shapes
        before: `[row column]`, the share of members in which `names[row]` comes strictly before `names[column]`
        in_order: `[member]`, whether all names come in the order given, none of them never
    """

    names: tuple[str, ...]
    before: Float[Tensor, "row column"]
    in_order: Bool[Tensor, "member"]


def emergence(
    run: "TrainedRun",
    measure: Measure,
    steps: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Emergence:
    """Measures a run at all its checkpoints, or at those of `steps`; one of them is in memory at a time.

    `measure` may join what it likes: detector scores, memories, path attentions. `progress` is called with how many
    checkpoints are done, and how many there are.

        emergence(run, lambda ensemble: {"noise": noise_share(memory(ensemble, ...))}).crossings(0.5)

    Errors: `SpecError` where there is no checkpoint to measure or the numbers change their names on the way;
    `StoreError` for a step without a checkpoint.
    """
    steps = tuple(run.checkpoints if steps is None else steps)
    if not steps:
        raise SpecError("steps", "there are none", "name one of the run's checkpoints, or leave it out")
    found: dict[str, list[Tensor]] = {}
    for done, step in enumerate(steps):
        if progress is not None:
            progress(done, len(steps))
        measured = measure(run.ensemble(step))
        if done and measured.keys() != found.keys():
            raise SpecError("measure", f"gives {sorted(measured)} at step {step}", f"always give {sorted(found)}")
        for name, value in measured.items():
            found.setdefault(name, []).append(value.detach().double().cpu())
    if progress is not None:
        progress(len(steps), len(steps))
    return Emergence(steps, {name: torch.stack(values, dim=1) for name, values in found.items()})


def path_attention(inputs: Tensor, paths: Mapping[str, PathAttention]) -> Measure:
    """The mean attention along paths, over sequences and asked positions (stacked attention heads, section 9.1).

    All paths are measured in one pass over `inputs`, `[batch position]` or `[batch position feature]`. What is missing
    is left out of the mean, which is NaN where a path has no positions at all.
    """

    def measure(ensemble: Ensemble) -> dict[str, Tensor]:
        sites = {name: f"blocks.{path.layer}.attn.hook_pattern" for name, path in paths.items()}
        seen = look(ensemble, inputs, list(dict.fromkeys(sites.values())))
        return {name: _along(paths[name], seen[site][:, :, paths[name].head]) for name, site in sites.items()}

    return measure


def _along(path: PathAttention, pattern: Float[Tensor, "member batch query key"]) -> Float[Tensor, "member"]:
    row, asked = torch.nonzero((path.queries >= 0) & (path.keys >= 0), as_tuple=True)
    return pattern[:, row, path.queries[row, asked], path.keys[row, asked]].mean(dim=1)


def first_crossing(
    steps: Sequence[int], values: Float[Tensor, "member step"], level: float, falling: bool = False
) -> Float[Tensor, "member"]:
    """The step at which each member's values `[member step]` first reach `level`, `[member]`; NaN where never.

    Between two measurements by linear interpolation; `falling` values are to come down to it.
    """
    values, level = (-values, -level) if falling else (values, level)
    reached, at = (values >= level).cummax(dim=1).values, torch.tensor(steps, dtype=torch.float64)
    after = (~reached).sum(dim=1)
    before, index = (after - 1).clamp(min=0), after.clamp(max=len(steps) - 1)
    members = torch.arange(len(values))
    low, high = values[members, before].double(), values[members, index].double()
    share = torch.where((high > low) & low.isfinite(), (level - low) / (high - low), 1.0)
    crossing = torch.where(after == 0, at[0], at[before] + share * (at[index] - at[before]))
    return torch.where(reached[:, -1], crossing, torch.nan)


def crossing_order(crossings: Mapping[str, Float[Tensor, "member"]]) -> CrossingOrder:
    """How the crossings of several numbers follow each other, over members."""
    at = torch.stack([value.double() for value in crossings.values()])
    at = at.where(~at.isnan(), torch.inf)
    before = (at.unsqueeze(1) < at.unsqueeze(0)).double().mean(dim=-1)
    in_order = (at.diff(dim=0) > 0).all(dim=0) & at.isfinite().all(dim=0)
    return CrossingOrder(tuple(crossings), before, in_order)
