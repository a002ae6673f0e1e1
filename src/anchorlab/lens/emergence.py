"""Emergence: measures of a model at every checkpoint, and the training steps at which they cross a level."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look.look import look
from anchorlab.models.input_checks import check_range
from anchorlab.progress import Counted, counted
from anchorlab.spec import check_known
from anchorlab.training.ensemble import Ensemble

if TYPE_CHECKING:
    from anchorlab.training import TrainedRun

Measure = Callable[[Ensemble], Mapping[str, Float[Tensor, "member"]]]
"""A function from an ensemble at one checkpoint to named numbers, one for each member."""


@dataclass(frozen=True)
class Emergence:
    """Measures of every member along training.

    Shapes
        values: `[member step]` by name, measured at the training steps in `steps`
    """

    steps: tuple[int, ...]
    values: Mapping[str, Float[Tensor, "member step"]]

    def crossings(
        self, level: float, names: Sequence[str] | None = None, falling: bool = False
    ) -> dict[str, Float[Tensor, "member"]]:
        """Return the step at which each measure, or each of `names`, first reaches `level` (`first_crossing`)."""
        for name in names or ():
            check_known("names", name, self.values, "measure")
        return {
            name: first_crossing(self.steps, self.values[name], level, falling)
            for name in (self.values if names is None else names)
        }


@dataclass(frozen=True)
class PathAttention:
    """An attention path: a head, and the queries and their keys in each sequence.

    Shapes
        queries, keys: `[batch query]`, positions; -1 in either leaves the pair out
    """

    layer: int
    head: int
    queries: Int[Tensor, "batch query"]
    keys: Int[Tensor, "batch query"]


@dataclass(frozen=True)
class CrossingOrder:
    """The order in which several measures cross their level. Measures that never cross come last.

    Shapes
        before: `[row column]`, the share of members in which `names[row]` crosses strictly before `names[column]`
        in_order: `[member]`, whether all measures cross, strictly in the order of `names`
    """

    names: tuple[str, ...]
    before: Float[Tensor, "row column"]
    in_order: Bool[Tensor, "member"]


def emergence(
    run: "TrainedRun",
    measure: Measure,
    steps: Sequence[int] | None = None,
    progress: Counted = None,
) -> Emergence:
    """Measure a run at every checkpoint, or at `steps`; only one checkpoint is in memory at a time.

        emergence(run, lambda ensemble: {"noise": noise_share(memory(ensemble, ...))}).crossings(0.5)

    Args:
        measure: returns named numbers, one for each member, such as detector scores or path attentions.
        steps: the training steps to measure at; None: all checkpoints.
        progress: as in `effects`, counted in checkpoints.
    """
    steps = tuple(run.checkpoints if steps is None else steps)
    if not steps:
        raise SpecError("steps", "there are none", "name one of the run's checkpoints, or leave it out")
    found: dict[str, list[Tensor]] = {}
    with counted("measuring checkpoints", progress) as tell:
        for done, step in enumerate(steps):
            tell(done, len(steps))
            measured = measure(ensemble := run.ensemble(step))
            if done and measured.keys() != found.keys():
                raise SpecError("measure", f"returns {[*measured]} at step {step}", f"return {[*found]} at each")
            for name, value in measured.items():
                found.setdefault(name, []).append(torch.as_tensor(value).detach().double().cpu())
                if (shape := tuple(found[name][-1].shape)) != (ensemble.size,):
                    raise SpecError(
                        f"measure.{name}", f"has shape {shape}", f"return [{ensemble.size}], one for each member"
                    )
        tell(len(steps), len(steps))
    return Emergence(steps, {name: torch.stack(values, dim=1) for name, values in found.items()})


def path_attention(inputs: Shaped[Tensor, "batch position *feature"], paths: Mapping[str, PathAttention]) -> Measure:
    """Return a measure of the mean attention along each path, over sequences and queries.

    All paths are measured in one pass over the inputs. The mean is NaN for a path without any pair of query and key.
    Source: stacked attention heads, section 9.1.
    """

    def measure(ensemble: Ensemble) -> dict[str, Tensor]:
        sites = {name: f"blocks.{path.layer}.attn.hook_pattern" for name, path in paths.items()}
        seen = look(ensemble, inputs, list(dict.fromkeys(sites.values())))
        return {name: _along(path, seen[sites[name]], f"paths.{name}") for name, path in paths.items()}

    return measure


def _along(path: PathAttention, pattern: Float[Tensor, "member batch head query key"], field: str) -> Tensor:
    batch, heads, length = pattern.shape[1:4]
    if not 0 <= path.head < heads:
        raise SpecError(f"{field}.head", f"there is no head {path.head}", f"choose from 0 to {heads - 1}")
    if path.queries.shape != path.keys.shape or len(path.keys) != batch:
        problem = f"has queries of shape {tuple(path.queries.shape)} and keys of shape {tuple(path.keys.shape)}"
        raise SpecError(field, problem, f"give both as [batch query] for {batch} sequences")
    queries, keys = places = torch.stack([path.queries, path.keys])
    check_range(places.clamp(min=0), length, field, "a position", "keep queries and keys within a sequence")
    row, query = torch.nonzero((places >= 0).all(dim=0), as_tuple=True)
    return pattern[:, row, path.head, queries[row, query], keys[row, query]].mean(dim=1)


def first_crossing(
    steps: Sequence[int], values: Float[Tensor, "member step"], level: float, falling: bool = False
) -> Float[Tensor, "member"]:
    """Return the step at which each member's values first reach `level`, or NaN if they never do.

    The step is interpolated linearly between the last measurement before the level is reached and the next one. With
    `falling`, values reach the level from above.
    """
    at, order = torch.tensor(steps, dtype=torch.float64).sort()
    values = values[:, order]
    if falling:
        values, level = -values, -level
    reached = (values >= level).cummax(dim=1).values
    after = (~reached).sum(dim=1)
    before, index = (after - 1).clamp(min=0), after.clamp(max=len(steps) - 1)
    low, high = (values.double().gather(1, one.unsqueeze(1)).squeeze(1) for one in (before, index))
    share = torch.where((high > low) & low.isfinite(), (level - low) / (high - low), 1.0)
    crossing = torch.where(after == 0, at[0], at[before] + share * (at[index] - at[before]))
    return torch.where(reached[:, -1], crossing, torch.nan)


def crossing_order(crossings: Mapping[str, Float[Tensor, "member"]]) -> CrossingOrder:
    """Return the order of the crossings of several measures, by name; NaN means that a measure never crosses."""
    at = torch.stack([value.double() for value in crossings.values()])
    at = at.where(~at.isnan(), torch.inf)
    before = (at.unsqueeze(1) < at.unsqueeze(0)).double().mean(dim=-1)
    in_order = (at.diff(dim=0) > 0).all(dim=0) & at.isfinite().all(dim=0)
    return CrossingOrder(tuple(crossings), before, in_order)
