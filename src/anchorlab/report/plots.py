"""Draw runs, and a value's `plot`: make a figure as a plain value, then `draw` it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from itertools import product
from math import prod
from typing import Any

from matplotlib.figure import Figure as Drawing
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.findings import Findings, LineFigure, Map, MapFigure, grid, line, provenance
from anchorlab.lens import Circuit, Effects, Landscape, Patching, PathPatching, Record, Steering
from anchorlab.lens.grids import layers_of
from anchorlab.report.figures import draw
from anchorlab.runs import Entry, differences, words
from anchorlab.spec import check_known
from anchorlab.studies.circuit_panel import circuit_figure
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, along_units
from anchorlab.studies.landscape_figures import minimal_figure, shapley_figure, sizes_figure
from anchorlab.training import TrainedRun
from anchorlab.training.evaluation import UNEDITED

_MOST_MAPS = 32  # in a figure
_IN_A_ROW = 4
_LONGEST = 40  # characters that tell a curve from others of the same label
_MOST_TICKS = 1000  # ticks with texts in a map
_PANELS = ("candidate", "head")  # axes that become maps rather than rows or columns
_OF_TOKENS = ("position", "query", "key")


def plot(
    runs: TrainedRun | Sequence[TrainedRun],
    metric: str | None = None,
    split: str | None = None,
    *,
    group: str = "all",
    edit: str = UNEDITED,
    log: bool = False,
) -> Drawing:
    """Draw a metric of one or more runs along training: the mean over members, with a band from lowest to highest.

    Args:
        runs: one run, or several that are compared
        metric: a name such as `loss`; when None, the accuracy, or the loss if a run has no accuracy
        split: the only split to draw; when None, all splits of one run, and the last split of several
        group: the group of sequences; `all` for every sequence of the split
        edit: the name of a weight edit of the recipes' evaluation
        log: whether the time has a logarithmic axis, which leaves out the start

    Errors: `SpecError` for an unknown name, and for runs that count time in different units.

    >>> plot(runs, "accuracy", log=True)  # doctest: +SKIP
    """
    compared = [runs] if isinstance(runs, TrainedRun) else list(runs)
    if not compared or not all(isinstance(one, TrainedRun) for one in compared):
        raise SpecError("runs", "are not runs", "give what al.train, al.run or al.zoo(NAME) returned")
    units = {one.experiment.recipe.unit for one in compared}
    if len(units) > 1:
        raise SpecError("runs", "count their time in epochs and in steps", "plot each unit by itself")
    known = [one.metrics["metric"].unique(maintain_order=True).to_list() for one in compared]
    metric = metric or ("accuracy" if all("accuracy" in one for one in known) else "loss")
    for one in known:
        check_known("metric", metric, one, "metric")
    alone, names = len(compared) == 1, _names(compared)
    splits = [_splits(run, metric)[0 if alone else -1 :] if split is None else [split] for run in compared]
    shared = {one for each in splits for one in each}
    lines = [
        line(one if alone else name if len(shared) == 1 else f"{name}, {one}", times[start:], values[:, start:])
        for name, run, each in zip(names, compared, splits, strict=True)
        for one in each
        for times, values in [along_units(run, one, metric, edit, group)]
        for start in [int(log and times[0] <= 0)]  # a logarithmic axis has no place for it
    ]
    chosen = [f"group {group}"] * (group != "all") + [f"edit {edit}"] * (edit != "none")
    chosen += [] if alone or len(shared) > 1 else [*shared]
    figure = LineFigure(
        title=f"{names[0]}: {', '.join([metric, *chosen])}" if alone else ", ".join([metric, *chosen]),
        caption=MEAN_AND_RANGE,
        x_label=units.pop(),
        y_label=metric,
        lines=tuple(lines),
        log_x=log,
        y_range=ACCURACY if metric == "accuracy" else (None, None),
    )
    return draw(figure, provenance("own", compared, 0.0))


def _splits(run: TrainedRun, metric: str) -> list[str]:
    found = run.metrics.filter(run.metrics["metric"] == metric)["split"].unique()
    return [one for one in run.experiment.task.splits if one in found]


def _names(runs: Sequence[TrainedRun]) -> list[str]:
    """Return the label of each run; if another has it too, what tells them apart, or the beginning of the address."""
    entries = [Entry(one.run.address, "", one.run.label, 0, 0, 0, one.experiment.to_json()) for one in runs]
    labels, found = [one.name for one in entries], differences(entries)
    told = [words(found[one.address]) for one in entries]
    return [
        label if labels.count(label) == 1 else f"{label}, {text}" if 0 < len(text) <= _LONGEST else f"{label} {at[:5]}"
        for label, text, (at, *_) in zip(labels, told, entries, strict=True)
    ]


@singledispatch
def draw_value(value: Any, **choices: Any) -> Drawing:
    """Return the drawing of a value; `choices` are the arguments of its class's method `plot`."""
    raise TypeError(f"a {type(value).__name__} has no figure")


draw_value.register(TrainedRun, plot)


@draw_value.register
def _record(record: Record, site: str, tokens: Sequence[str] | None, index: Mapping[str, int]) -> Drawing:
    return draw(_record_maps(record, site, index, tokens))


@draw_value.register
def _effects(effects: Effects, metric: str, member: int | None) -> Drawing:
    figure = _places(effects, len(effects.change(metric)), member, lambda one: effects.map(metric, one))
    title = f"Change of {metric}, {_pattern(effects.sites)}"
    caption = "The metric under each intervention minus the metric without."
    return draw(replace(figure, title=title, caption=caption, value_label=f"change of {metric}", signed=True))


@draw_value.register
def _patching(patching: Patching, member: int | None) -> Drawing:
    figure = _places(patching, len(patching.clean), member, patching.map)
    title = f"Recovered by each patch, {_pattern(patching.sites)}"
    caption = "1 as in the clean run, 0 as in the corrupted one."
    return draw(replace(figure, title=title, caption=caption, value_label="recovered fraction", signed=True))


@draw_value.register
def _path_patching(paths: PathPatching) -> Drawing:
    down, across = (tuple(f"{layer}.{head}" for layer, head in heads) for heads in (paths.senders, paths.receivers))
    shown = [(member, at) for member in range(len(paths.clean)) for at in range(len(paths.inputs))]
    if len(shown) > _MOST_MAPS:
        raise SpecError("plot", f"{len(shown)} maps do not fit into a figure", "patch one input, or fewer members")
    maps = [
        Map(f"member {one}, {paths.inputs[at]}", grid(paths.recovered[one, :, :, at]), down, across)
        for one, at in shown
    ]
    figure = MapFigure(
        title="Recovered by each path",
        caption="From a head to another's queries, keys or values; 1 as in the clean run, 0 as in the corrupted one.",
        maps=_in_rows(maps, len(paths.inputs)),
        x_label="receiver",
        y_label="sender",
        value_label="recovered fraction",
        value_range=(None, None),
        signed=True,
    )
    return draw(figure)


@draw_value.register
def _steering(steering: Steering, metric: str) -> Drawing:
    values, at = steering.curve(metric), steering.metrics.index(metric)
    lines = [line(site, steering.multiples, values[:, place]) for place, site in enumerate(steering.sites)]
    if len(steering.random):
        random = steering.random[:, at].flatten(0, 1)  # direction and member
        lines += [
            line(f"random at {site}" if len(steering.sites) > 1 else "random directions", steering.multiples, one)
            for site, one in zip(steering.sites, random.unbind(dim=1), strict=True)
        ]
    figure = LineFigure(
        title=f"Steering: {metric}",
        caption=MEAN_AND_RANGE,
        x_label="multiple of the direction",
        y_label=metric,
        lines=tuple(lines),
        y_range=ACCURACY if metric == "accuracy" else (None, None),
    )
    return draw(figure)


@draw_value.register
def _findings(findings: Findings, title: str | None) -> Drawing:
    figures = {figure.title: figure for figure in findings.figures}
    if not figures:
        raise SpecError("title", f"{findings.study} has no figures", "read findings.tables")
    found = [one for one in figures if title is None or title.casefold() in one.casefold()]
    found = [title] if title in figures else found
    if len(found) != 1:
        problem = "is missing" if title is None else f"{len(found) or 'no'} figures have {title!r} in their titles"
        raise SpecError("title", problem, f"choose one of {'; '.join(found or figures)}")
    return draw(figures[found[0]], findings.provenance)


@draw_value.register
def _circuit(circuit: Circuit, title: str) -> Drawing:
    return draw(circuit_figure(title, circuit))


@draw_value.register
def _landscape(found: Landscape, what: str, share: float, member: int | None) -> Drawing:
    members = range(len(found.loss)) if member is None else [member]
    if what == "shapley":
        return draw(shapley_figure("Shapley values of the loss", found, members))
    figure = sizes_figure if what == "sizes" else minimal_figure
    title = "Best loss by number of units" if what == "sizes" else f"Minimal sets within {share:.0%} of the effect"
    return draw(figure(title, found, share, members))


def _places(
    grid_of: Effects | Patching, members: int, member: int | None, heat_map: Callable[[int], Tensor]
) -> MapFigure:
    """Return a figure, without title, with a heat map over sites and places for each member, or only for `member`."""
    shown = range(members) if member is None else [member]
    if len(shown) > _MOST_MAPS:
        raise SpecError("member", f"{len(shown)} maps do not fit into a figure", "choose one, as in member=0")
    layers = layers_of(grid_of.sites)
    by_layer = len(set(layers)) == len(layers)
    values = grid_of.values[0] if isinstance(grid_of, Effects) else grid_of.difference
    rows = [[str(layer) for layer in layers] if by_layer else list(grid_of.sites)]
    rows += [
        [f"{axis} {at}" for at in range(size)] for axis, size in zip(grid_of.over[:-1], values.shape[2:], strict=False)
    ]
    ticks = tuple(", ".join(places) for places in product(*rows))
    return MapFigure(
        title="",
        caption="",
        maps=_in_rows([Map(f"member {one}", grid(heat_map(one)), ticks) for one in shown]),
        x_label=grid_of.over[-1] if grid_of.over else "",
        y_label="layer" if by_layer else "",
        value_range=(None, None),
    )


def _pattern(sites: Sequence[str]) -> str:
    """Return the sites as patterns: sites that differ only in numbers are one, such as `blocks.*.attn.hook_z`."""
    return ", ".join(sorted({re.sub(r"\d+", "*", site) for site in sites}))


def _record_maps(record: Record, site: str, index: Mapping[str, int], tokens: Sequence[str] | None) -> MapFigure:
    """Return the figure of a site at the given indices; `member` and `batch` default to index 0.

    Of the remaining axes, the last two other than `candidate` and `head` become rows and columns; all others become
    separate maps. `tokens` are the texts of the sequence's positions; None shows its token ids.

    Errors: as `Record.at`; `SpecError` for more axes or maps than fit in a figure.
    """
    record.at(site, **index)  # its errors name the sites, the axes and their sizes
    axes = record.axes(site)
    chosen = {axis: 0 for axis in ("member", "batch") if axis in axes} | dict(index)
    left = [axis for axis in axes if axis not in chosen]
    inside = [axis for axis in left if axis not in _PANELS][-2:]
    panels = [axis for axis in left if axis not in inside]
    values = record.at(site, **chosen).double()
    sizes = dict(zip(left, values.shape, strict=True))
    count = prod(sizes[axis] for axis in panels)
    if len(panels) > 2 or count > _MOST_MAPS:
        problem = f"{site} has {count} maps, more than a figure has room for"
        raise SpecError("plot", problem, f"choose an index, as in {panels[0]}=0")
    values = values.permute([left.index(axis) for axis in (*panels, *inside)])
    values = values.reshape(*_padded([sizes[axis] for axis in panels]), *_padded([sizes[axis] for axis in inside]))
    rows, columns = ["", "", *inside][-2:]
    written = _ids(record, chosen.get("batch", 0)) if tokens is None else tuple(tokens)
    if tokens is not None and len(written) != record.inputs.shape[1]:
        problem = f"are {len(written)} for {record.inputs.shape[1]} positions"
        raise SpecError("tokens", problem, "give the text of each position")
    shown = written if len(written) <= _MOST_TICKS else ()  # a longer text has no room for them
    ticks = {axis: shown if axis in _OF_TOKENS else () for axis in (rows, columns)}
    maps = [
        Map(_map_name(record, panels, (i, j)[-len(panels) :]), grid(values[i, j]), ticks[rows], ticks[columns])
        for i in range(values.shape[0])
        for j in range(values.shape[1])
    ]
    is_pattern = site.endswith("hook_pattern")
    shares = is_pattern and bool(((values >= 0) & (values < 1.01)).all())  # linear attention may have other weights
    return MapFigure(
        title=", ".join([site, *(_map_name(record, [axis], [at]) for axis, at in chosen.items())]),
        caption="The recorded values.",
        maps=_in_rows(maps, values.shape[1] if len(panels) == 2 else _IN_A_ROW),
        x_label=columns,
        y_label=rows,
        value_label="attention" if is_pattern else site.rpartition(".")[2],
        value_range=(0.0, 1.0) if shares else (None, None),
        signed=bool((values < 0).any()),
    )


def _in_rows(maps: Sequence[Map], columns: int = _IN_A_ROW) -> tuple[tuple[Map, ...], ...]:
    return tuple(tuple(maps[start : start + columns]) for start in range(0, len(maps), columns))


def _padded(sizes: Sequence[int]) -> list[int]:
    """Return exactly two sizes: up to two given sizes, padded with 1 in front."""
    return [1, 1, *sizes][-2:]


def _map_name(record: Record, panels: Sequence[str], at: Sequence[int]) -> str:
    """Return the name of a map by its indices along the axes `panels`, such as `head 1`."""
    return ", ".join(
        record.candidates[place]
        if axis == "candidate" and record.candidates
        else f"{'sequence' if axis == 'batch' else axis} {place}"
        for axis, place in zip(panels, at, strict=False)
    )


def _ids(record: Record, sequence: int) -> tuple[str, ...]:
    """Return the token ids of a sequence as text; empty for vectors."""
    if record.inputs.ndim != 2 or record.inputs.is_floating_point():
        return ()
    return tuple(map(str, record.inputs[sequence].tolist()))
