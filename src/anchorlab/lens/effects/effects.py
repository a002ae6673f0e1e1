"""Effects: what one intervention does to the answers at each site, head or position, one place at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from anchorlab.drawable import plotted
from anchorlab.errors import SpecError
from anchorlab.lens.effects.batched import MappedPasses
from anchorlab.lens.grids import Tabled, grid_table, heat_map, place_axes
from anchorlab.lens.look import AnyInputs, AnyModel, AnyPositions, Intervention, Subject, look_at, sequences_at_a_time
from anchorlab.lens.look.first_sequence import check_read
from anchorlab.lens.look.inputs import as_list
from anchorlab.lens.look.padding import counted_from_own_ends
from anchorlab.lens.threads import Tally, in_threads
from anchorlab.models.cpu import fast_float32
from anchorlab.models.input_checks import check_range
from anchorlab.models.model import accepts
from anchorlab.models.precision import at_least_float32
from anchorlab.progress import Counted, counted
from anchorlab.spec import check_known

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

Metric = Callable[
    [Float[Tensor, "sequence scored output"], Shaped[Tensor, "sequence scored ..."]], Shaped[Tensor, "sequence scored"]
]
"""A function of outputs `[sequence scored output]` and targets `[sequence scored ...]` that returns one number for each
scored position, `[sequence scored]`."""

METRICS: Mapping[str, Metric] = {
    "accuracy": lambda output, targets: output.argmax(dim=-1) == targets,
    "logit": lambda output, targets: _at(output, targets),
    "probability": lambda output, targets: _at(at_least_float32(output).softmax(dim=-1), targets),
}
"""`accuracy`: whether the target has the largest logit; `logit`: its logit; `probability`: its probability."""


@dataclass(frozen=True, repr=False)
class Effects(Tabled):
    """The metrics under each intervention of a grid, averaged over all sequences and scored positions.

    Shapes
        baseline: `[metric member]`, without intervention
        values: `[metric member site ...]`, with one further axis for each name in `over`
    """

    metrics: tuple[str, ...]
    sites: tuple[str, ...]
    over: tuple[str, ...]
    baseline: Float[Tensor, "metric member"]
    values: Float[Tensor, "metric member site *place"]

    def change(self, metric: str) -> Float[Tensor, "member site *place"]:
        """Return the change of a metric: its value under each intervention minus its value without."""
        check_known("metric", metric, self.metrics, "metric")
        index = self.metrics.index(metric)
        return self.values[index] - self.baseline[index].reshape(-1, *(1,) * (self.values.ndim - 2))

    def map(self, metric: str, member: int | None = None) -> Float[Tensor, "row place"]:
        """Return the change as a heat map, of one member or the mean over all, with the grid's last axis in columns.

        The rows are the sites, each with the places of the grid's other axes. Heads, widths and neurons are not
        averaged over several members: head 0 of one member may correspond to head 3 of another.
        """
        return heat_map(self.change(metric), self.over, member, f"map({metric!r}, member=0)")

    def plot(self, metric: str = "accuracy", member: int | None = None) -> "Figure":
        """Draw the change of a metric as heat maps: layers down, places across, a map for each member or for one."""
        return plotted(self, metric=metric, member=member)

    @property
    def table(self) -> "polars.DataFrame":
        """One row per metric, member and intervention: metric, member, site, layer, places, value, baseline, change.

        The layer is as in `layers_of`.
        """
        axes = {"metric": self.metrics} | place_axes(self.sites, self.over, self.values[0])
        changes = torch.stack([self.change(metric) for metric in self.metrics])
        return grid_table(axes, {"value": self.values, "baseline": self.baseline, "change": changes}, layers=True)


def effects(
    model: AnyModel,
    inputs: AnyInputs,
    targets: Shaped[Tensor, "batch scored ..."],
    intervention: Intervention,
    over: str | Sequence[str] = (),
    *,
    positions: AnyPositions | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    patch_inputs: AnyInputs | None = None,
    mapped: bool | None = None,
    axes: Mapping[str, tuple[str, ...]] | None = None,
    batch_size: int | None = None,
    progress: Counted = None,
) -> Effects:
    """Return the metrics of a model under an intervention at each place of a grid, one place at a time.

    The places are the sites that match `intervention.site`, times the indices of the axes in `over`. This example
    zeroes each head of each layer and scores the last position:

        effects(ensemble, inputs, targets, Intervention(site="blocks.*.attn.hook_z", rule="zero"), over=("head",))

    An intervention that changes nothing is no error here; its change is 0. A position that a shorter sequence lacks
    also has a change of 0. An intervention on a submodule's value that the module does not read is an error.

    Args:
        targets: `[batch scored ...]`, the targets that the metrics compare the outputs with.
        intervention: the intervention to apply; its site may be a pattern, and its `where`, `at`, rule and operand are
            the same at every place.
        over: one or several names of axes; every matching site must have these axes, with equal sizes.
        positions: the scored positions, `[scored]` or `[batch scored]`; None: the last of each sequence.
        metrics: functions of outputs and targets, by name.
        mapped: whether to compute all interventions at one site in one pass with `torch.func.vmap`. The pass begins at
            the site's block and computes the last layer only at the scored positions; members run in parallel threads.
            If False, each intervention is one `look`. The results are equal within rounding. None: True for modules
            with their own sites.
        batch_size: the number of sequences times interventions that each thread holds at a time; None: at most 256,
            limited to about 512 MiB in all threads together.
        progress: called, from any thread, with the number of sequences times interventions done and their total; None
            shows it on a terminal and in a notebook, False nowhere.

    Other arguments: as in `look`.
    """
    subject = Subject.of(model, inputs, positions, axes, patch_inputs)
    subject = replace(subject, positions=subject.scored)
    sites = tuple(subject.access.resolve(intervention.site, "intervention.site"))
    intervention = counted_from_own_ends(intervention, subject.lengths, "intervention")
    over = as_list(over, str, "over", "give names of axes")
    check_targets(targets, subject, metrics)
    sizes = place_sizes(subject, sites, intervention, over)
    places = list(product(*(range(size) for size in sizes)))
    single = intervention.replace(may_do_nothing=True)
    grid = {
        site: [single.replace(site=site, where={**single.where, **dict(zip(over, at, strict=True))}) for at in places]
        for site in sites
    }
    access, members, batch = subject.access, subject.ensemble.size, len(subject.inputs)
    if mapped and access.foreign:
        raise SpecError("mapped", "the model has no sites of its own, or another library's", "leave it out")
    mapped = not access.foreign if mapped is None else mapped
    if not intervention.may_do_nothing:
        check_read(subject, {f"intervention at {site}": site for site in sites})
    narrow = accepts(access.module, "positions") and (mapped or access.hands_on_positions(sites))
    scored, passes = subject.positions if narrow else None, min(torch.get_num_threads(), members) if mapped else 1
    size = sequences_at_a_time(subject, scored, given=batch_size, passes=passes, most=256)

    def measured(output: Float[Tensor, "place sequence scored output"], rows: range) -> Float[Tensor, "metric place"]:
        """Return the metrics of some rows, divided by the total of scored positions, so that parts add up to means."""
        own = targets[rows.start : rows.stop].to(output.device)
        own = own.expand(len(output), *own.shape).flatten(0, 1)
        each = [one_each(f"metrics.{name}", metric(output.flatten(0, 1), own), own) for name, metric in metrics.items()]
        sums = [value.reshape(len(output), -1).sum(dim=1, dtype=torch.float64) for value in each]
        return (torch.stack(sums) / targets.shape[:2].numel()).cpu()

    def by_member(member: int) -> Float[Tensor, "metric place"]:
        """Return the metrics of one member without intervention, then at every place of the grid."""
        total = torch.zeros(len(metrics), 1 + len(sites) * len(places), dtype=torch.float64)
        for site, begin, rows, output in MappedPasses(subject, member)(grid, size):
            begin += 0 if site is None else 1 + sites.index(site) * len(places)
            total[:, begin : begin + len(output)] += measured(output, rows)
            advance(0 if site is None else len(output) * len(rows))
        return total

    def by_place(change: Intervention, count: int) -> Float[Tensor, "metric member"]:
        """Return the metrics of all members under one intervention, which counts `count` times towards the progress."""
        record = look_at(subject, interventions=change, batch_size=size)
        advance(count * members * batch)
        return measured(record["output"], range(batch))

    with fast_float32(), counted("effects", progress) as tell:
        advance = Tally(tell, batch * members * len(sites) * len(places))
        if mapped:
            found = torch.stack(in_threads(by_member, members), dim=1)
        else:
            # The first changes nothing, so that the baseline is computed at the same positions as the others.
            idle = single.replace(site=sites[0], rule="scale", operand=1.0, seed=None)
            every = [idle, *(change for changes in grid.values() for change in changes)]
            found = torch.stack([by_place(change, int(at > 0)) for at, change in enumerate(every)], dim=2)
    baseline, values = found[..., 0], found[..., 1:].reshape(len(metrics), members, len(sites), *sizes)
    return Effects(tuple(metrics), sites, tuple(over), baseline, values)


def place_sizes(subject: Subject, sites: Sequence[str], intervention: Intervention, over: Sequence[str]) -> list[int]:
    """Return the sizes of the axes of a grid, which must be free and equal at all sites."""
    record = look_at(subject.first(), sites, output=False)
    sizes = []
    for index, axis in enumerate(over):
        field = f"over.{index}"
        if axis in (*intervention.where, *intervention.at, *over[:index]):
            raise SpecError(field, f"{axis!r} is selected already", "name it once")
        for site in sites:
            check_known(field, axis, record.axes(site)[2:], f"axis of {site}:")
        found = sorted({record[site].shape[record.axes(site).index(axis)] for site in sites})
        if len(found) > 1:
            raise SpecError(field, f"{axis!r} has sizes {found} at different sites", "measure them one by one")
        sizes += found
    return sizes


def one_each(
    name: str, value: Shaped[Tensor, "*any"], targets: Shaped[Tensor, "sequence scored *rest"]
) -> Shaped[Tensor, "*any"]:
    """Return a metric's values unchanged, or raise `SpecError` unless there is one for each scored position."""
    if value.numel() != targets.shape[:2].numel():
        problem = f"returns shape {tuple(value.shape)} for targets of shape {tuple(targets.shape)}"
        raise SpecError(name, problem, "return one number for each scored position, [sequence scored]")
    return value


def check_targets(targets: Shaped[Tensor, "..."], subject: Subject, metrics: Mapping[str, Metric] = METRICS) -> None:
    """Raise `SpecError` for targets that do not begin with the subject's axes batch and scored, or without a metric."""
    if not metrics:
        raise SpecError("metrics", "there is none", "give functions by name, or leave it out")
    expected = (len(subject.inputs), subject.scored.shape[-1])
    if (shape := tuple(getattr(targets, "shape", ())))[:2] != expected:
        problem = f"have shape {shape}, whose first two axes are not batch and scored {expected}"
        raise SpecError("targets", problem, "give a tensor with one for each scored position")
    if metrics is METRICS and (targets.is_floating_point() or targets.ndim > 2):
        raise SpecError("targets", "are no tokens", "give the right token at each scored position, or your own metrics")


def _at(
    values: Float[Tensor, "sequence scored output"], targets: Int[Tensor, "sequence scored"]
) -> Float[Tensor, "sequence scored"]:
    check_range(targets, values.shape[-1], "targets", "a token", "give tokens that the model predicts")
    return values.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
