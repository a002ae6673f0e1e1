"""Sweeps: every single intervention of a grid of sites, heads or positions, and what each does to the answers."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from threading import Lock
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anchorlab.errors import SpecError
from anchorlab.lens.look.access import Access
from anchorlab.lens.look.interventions import Intervention
from anchorlab.lens.look.look import as_ensemble, look
from anchorlab.lens.sweep.batched import MappedPasses
from anchorlab.models.cpu import fast_float32
from anchorlab.spec import unknown_name
from anchorlab.training.ensemble import Ensemble

if TYPE_CHECKING:
    import polars

Metric = Callable[[Tensor, Tensor], Tensor]
"""Outputs `[sequence scored output]` and targets `[sequence scored ...]` to one number each, `[sequence scored]`."""

METRICS: Mapping[str, Metric] = {
    "accuracy": lambda output, targets: output.argmax(dim=-1) == targets,
    "logit": lambda output, targets: _at(output, targets),
    "probability": lambda output, targets: _at(output.softmax(dim=-1), targets),
}
"""Whether the target has the largest logit, its logit, and its probability."""


@dataclass(frozen=True)
class Sweep:
    """What each intervention of a grid does, as means of the metrics over all scored positions.

    Shapes
        baseline: `[metric member]`, without any intervention
        values: `[metric member site ...]`, then one axis for each name in `over`, with the intervention
    """

    metrics: tuple[str, ...]
    sites: tuple[str, ...]
    over: tuple[str, ...]
    baseline: Float[Tensor, "metric member"]
    values: Float[Tensor, "metric member site *place"]

    def change(self, metric: str) -> Float[Tensor, "member site *place"]:
        """By how much a metric changes: with the intervention minus without; `SpecError` for an unknown metric."""
        if metric not in self.metrics:
            raise unknown_name("metric", metric, self.metrics, "metric")
        index = self.metrics.index(metric)
        return self.values[index] - self.baseline[index].reshape(-1, *(1,) * (self.values.ndim - 2))

    def map(self, metric: str) -> Float[Tensor, "row place"]:
        """The change averaged over members, as a heat map: the last axis of the grid along the columns.

        The rows are the sites, and below each the places of the other axes, if there are any.
        """
        mean = self.change(metric).mean(dim=0)
        return mean.reshape(-1, mean.shape[-1] if self.over else 1)

    @property
    def table(self) -> "polars.DataFrame":
        """One row per metric, member and intervention: metric, member, site, layer, places, value, baseline, change.

        A layer is the first number in a site's name, or its place among the sites.
        """
        import polars

        axes = ("metric", "member", "site", *self.over)
        grid = torch.cartesian_prod(*(torch.arange(size) for size in self.values.shape)).reshape(-1, len(axes))
        numbers = dict(zip(axes, grid.unbind(dim=1), strict=True))
        layers = [_layer(site, place) for place, site in enumerate(self.sites)]
        values, baseline = self.values.flatten(), self.baseline[numbers["metric"], numbers["member"]]
        columns: dict[str, list[object]] = {
            "metric": [self.metrics[index] for index in numbers["metric"].tolist()],
            "member": numbers["member"].tolist(),
            "site": [self.sites[index] for index in numbers["site"].tolist()],
            "layer": [layers[index] for index in numbers["site"].tolist()],
        }
        columns |= {axis: numbers[axis].tolist() for axis in self.over}
        columns |= {"value": values.tolist(), "baseline": baseline.tolist(), "change": (values - baseline).tolist()}
        return polars.DataFrame(columns)


def sweep(
    model: Ensemble | nn.Module,
    inputs: Tensor,
    targets: Tensor,
    intervention: Intervention,
    over: Sequence[str] = (),
    *,
    positions: Int[Tensor, "*batch scored"] | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    patch_inputs: Tensor | None = None,
    mapped: bool | None = None,
    axes: Mapping[str, tuple[str, ...]] | None = None,
    chunk: int = 256,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Carries out one intervention at a time, everywhere in a grid, and measures the answers.

    The site of `intervention` may be a pattern: every site that matches is tried, and at each site every index of the
    axes named in `over`, all the rest of the intervention being the same. Zeroing each head of each layer, asked
    at the last position, as it is where no `positions` are given:

        sweep(ensemble, inputs, targets, Intervention(site="blocks.*.attn.hook_z", rule="zero"), over=("head",))

    `targets` are `[batch scored ...]`, `positions` `[scored]` or `[batch scored]`. An intervention that changes nothing
    is not an error here; it shows as no change.

    All interventions at one site are one `mapped` pass, which begins at the block of the site: what comes before the
    site is computed once for all of them, and the last layer only where it is asked. Members are shared out over
    threads. This needs a module with sites of its own that `torch.func.vmap` can map, and is then the default; other
    modules get one `look` for each intervention. Both give the same numbers, equal within rounding. At most `chunk`
    sequences times interventions are held at once in each thread. `progress` is called, in any thread, with how many
    sequences have gone through an intervention, and how many there are to go.

    Errors: those of `look`; `SpecError` for an axis that a site does not have or that differs in size between sites,
    and for targets that do not fit the positions.
    """
    ensemble = as_ensemble(model)
    access = Access(ensemble.template, axes or {})
    sites = tuple(access.resolve(intervention.site, "intervention.site"))
    positions = torch.tensor([inputs.shape[1] - 1]) if positions is None else positions
    _check_targets(targets, (len(inputs), positions.shape[-1]))
    sizes = _sizes(ensemble, inputs, sites, intervention, over, axes)
    places = list(product(*(range(size) for size in sizes)))
    single = intervention.replace(may_do_nothing=True)
    grid = {
        site: [single.replace(site=site, where={**single.where, **dict(zip(over, at, strict=True))}) for at in places]
        for site in sites
    }
    measured = _Measure(metrics, targets)
    if mapped and access.own_sites is None:
        raise SpecError("mapped", "the model has no sites of its own", "leave mapped out, for one look after the other")
    mapped = access.own_sites is not None if mapped is None else mapped
    tell = _Teller(progress, len(inputs) * ensemble.size * len(sites) * len(places))

    def one(member: int) -> Tensor:
        """`[metric place]` of one member, the baseline first."""
        added = torch.zeros(len(metrics), 1 + len(sites) * len(places), dtype=torch.float64)
        for site, begin, rows, output in MappedPasses(ensemble, member, inputs, positions, patch_inputs)(grid, chunk):
            begin += 0 if site is None else 1 + sites.index(site) * len(places)
            added[:, begin : begin + len(output)] += measured(output, rows)
            tell(0 if site is None else len(output) * len(rows))
        return added

    def plainly(*changes: Intervention) -> Tensor:
        record = look(
            ensemble, inputs, (), changes, patch_inputs=patch_inputs, positions=positions, axes=axes, chunk=chunk
        )
        tell(len(changes) * ensemble.size * len(inputs))
        return measured(record["output"], range(len(inputs)))

    with fast_float32():
        if mapped:
            found = torch.stack(_in_threads(one, ensemble.size), dim=1)
        else:
            every = [(), *((change,) for changes in grid.values() for change in changes)]
            found = torch.stack([plainly(*changes) for changes in every], dim=2)
    baseline, values = found[..., 0], found[..., 1:].reshape(len(metrics), ensemble.size, len(sites), *sizes)
    return Sweep(tuple(metrics), sites, tuple(over), baseline, values)


class _Measure:
    """The metrics of outputs, as shares of the mean over all scored positions."""

    def __init__(self, metrics: Mapping[str, Metric], targets: Tensor) -> None:
        self.metrics, self.targets = metrics, targets

    def __call__(self, output: Float[Tensor, "place sequence scored output"], rows: range) -> Tensor:
        """`[metric place]`: for some rows of the batch what they add to the mean."""
        targets = self.targets[rows.start : rows.stop].to(output.device)
        targets = targets.expand(len(output), *targets.shape).flatten(0, 1)
        scored = self.targets.shape[0] * self.targets.shape[1]
        each = [metric(output.flatten(0, 1), targets) for metric in self.metrics.values()]
        sums = [value.reshape(len(output), -1).sum(dim=1, dtype=torch.float64) for value in each]
        return (torch.stack(sums) / scored).cpu()


class _Teller:
    """Counts what is done, in any thread, and tells it."""

    def __init__(self, progress: Callable[[int, int], None] | None, count: int) -> None:
        self.progress, self.count, self.done, self.lock = progress, count, 0, Lock()

    def __call__(self, more: int) -> None:
        with self.lock:
            self.done += more
            if self.progress is not None and more:
                self.progress(self.done, self.count)


def _in_threads(one: Callable[[int], Tensor], members: int) -> list[Tensor]:
    """The members' results in order, computed in as many threads as PyTorch has."""
    threads = torch.get_num_threads()
    workers = min(threads, members)
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,)) as pool:
            return list(pool.map(one, range(members)))
    finally:
        torch.set_num_threads(threads)  # a new thread sets it for those to come, too


def _sizes(
    ensemble: Ensemble,
    inputs: Tensor,
    sites: Sequence[str],
    intervention: Intervention,
    over: Sequence[str],
    axes: Mapping[str, tuple[str, ...]] | None,
) -> list[int]:
    """How many places the sites have along each axis of the grid."""
    record = look(ensemble.select([0]), inputs[:1], record=sites, axes=axes)
    sizes = []
    for index, axis in enumerate(over):
        field = f"over.{index}"
        if axis in (*intervention.where, *intervention.at, *over[:index]):
            raise SpecError(field, f"{axis!r} is selected already", "name it once")
        for site in sites:
            if axis not in record.axes(site)[2:]:
                raise unknown_name(field, axis, record.axes(site)[2:], f"axis of {site}:")
        found = sorted({record[site].shape[record.axes(site).index(axis)] for site in sites})
        if len(found) > 1:
            raise SpecError(field, f"{axis!r} has sizes {found} at different sites", "sweep them one by one")
        sizes += found
    return sizes


def _check_targets(targets: Tensor, expected: tuple[int, int]) -> None:
    if tuple(targets.shape[:2]) != expected:
        problem = f"have shape {tuple(targets.shape)}, which does not lead with batch and scored {expected}"
        raise SpecError("targets", problem, "give one for each scored position")


def _at(values: Tensor, targets: Tensor) -> Tensor:
    return values.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def _layer(site: str, place: int) -> int:
    number = re.search(r"\d+", site)
    return int(number.group()) if number else place
