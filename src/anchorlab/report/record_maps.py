"""Make the figure of a recorded site: a map for each head or candidate, of one member and one sequence."""

from collections.abc import Mapping, Sequence
from math import prod

from anchorlab.errors import SpecError
from anchorlab.findings import Map, MapFigure, grid
from anchorlab.lens import Record

MOST_MAPS = 32
"""The largest number of maps in a figure."""

_IN_A_ROW = 4
_PANELS = ("candidate", "head")  # axes that become maps rather than rows or columns
_OF_TOKENS = ("position", "query", "key")


def record_maps(record: Record, site: str, index: Mapping[str, int], tokens: Sequence[str] | None = None) -> MapFigure:
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
    if len(panels) > 2 or count > MOST_MAPS:
        problem = f"{site} has {count} maps, more than a figure has room for"
        raise SpecError("plot", problem, f"choose an index, as in {panels[0]}=0")
    values = values.permute([left.index(axis) for axis in (*panels, *inside)])
    values = values.reshape(*_padded([sizes[axis] for axis in panels]), *_padded([sizes[axis] for axis in inside]))
    rows, columns = ["", "", *inside][-2:]
    written = _ids(record, chosen.get("batch", 0)) if tokens is None else tuple(tokens)
    if tokens is not None and len(written) != record.inputs.shape[1]:
        problem = f"are {len(written)} for {record.inputs.shape[1]} positions"
        raise SpecError("tokens", problem, "give the text of each position")
    ticks = {axis: written if axis in _OF_TOKENS else () for axis in (rows, columns)}
    maps = [
        Map(_name(record, panels, (i, j)[-len(panels) :]), grid(values[i, j]), ticks[rows], ticks[columns])
        for i in range(values.shape[0])
        for j in range(values.shape[1])
    ]
    is_pattern = site.endswith("hook_pattern")
    return MapFigure(
        title=", ".join([site, *(_name(record, [axis], [at]) for axis, at in chosen.items())]),
        caption="The recorded values.",
        maps=in_rows(maps, values.shape[1] if len(panels) == 2 else _IN_A_ROW),
        x_label=columns,
        y_label=rows,
        value_label="attention" if is_pattern else site.rpartition(".")[2],
        value_range=(0.0, 1.0) if is_pattern else (None, None),
        signed=bool((values < 0).any()),
    )


def in_rows(maps: Sequence[Map], columns: int = _IN_A_ROW) -> tuple[tuple[Map, ...], ...]:
    """Return maps in rows of `columns` maps."""
    return tuple(tuple(maps[start : start + columns]) for start in range(0, len(maps), columns))


def _padded(sizes: Sequence[int]) -> list[int]:
    """Return exactly two sizes: up to two given sizes, padded with 1 in front."""
    return [1, 1, *sizes][-2:]


def _name(record: Record, panels: Sequence[str], at: Sequence[int]) -> str:
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
