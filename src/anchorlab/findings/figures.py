"""Figures and tables as plain values; `anchorlab.report` draws them.

Fields accept lists for tuples, and anything that `float` accepts for a number. A value that does not fit raises
pydantic's `ValidationError`.
"""

from typing import Any, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.spec import JSON_CONFIG

Numbers = tuple[float, ...]
Grid = tuple[Numbers, ...]
Range = tuple[float | None, float | None]
"""The lower and the upper end of an axis or a colour scale; None fits that end to the data."""


@dataclass(frozen=True, config=JSON_CONFIG)
class Line:
    """One curve: its mean at each `x`, and a band from `low` to `high`, both empty for no band. NaN leaves a gap."""

    label: str
    x: Numbers
    mean: Numbers
    low: Numbers = ()
    high: Numbers = ()

    def __post_init__(self) -> None:
        no_band = not self.low and not self.high
        for name, values in (("mean", self.mean), ("low", self.low), ("high", self.high)):
            if len(values) != len(self.x) and (name == "mean" or not no_band):
                raise SpecError(f"line.{name}", f"has {len(values)} values", f"give one for each of {len(self.x)} x")


@dataclass(frozen=True, config=JSON_CONFIG)
class Reference:
    """A dashed line across the figure at a value of `axis`, such as chance level, the paper's value or a threshold."""

    label: str
    value: float
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True, config=JSON_CONFIG)
class LineFigure:
    """Curves over a common axis.

    Fields
        y_range: the ends of the y axis
        seeds: the seeds shown, as text; None for all seeds of the findings
        drawn: the meaning of lines and bands; printed only if there is a band
    """

    title: str
    caption: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False
    y_range: Range = (None, None)
    references: tuple[Reference, ...] = ()
    seeds: str | None = None
    drawn: str = "line: mean, band: lowest to highest"
    kind: Literal["lines"] = "lines"

    @property
    def has_intervals(self) -> bool:
        """Whether any line has a band of nonzero width; the band of a single member has none."""
        return any(line.low != line.high for line in self.lines)


@dataclass(frozen=True, config=JSON_CONFIG)
class Map:
    """One heat map of `values` `[row column]`. Ticks are labelled with the given texts, or from 0 if there are none.

    `x_label` and `y_label` name the axes if they differ from the figure's.
    """

    title: str
    values: Grid
    row_ticks: tuple[str, ...] = ()
    column_ticks: tuple[str, ...] = ()
    x_label: str | None = None
    y_label: str | None = None

    def __post_init__(self) -> None:
        columns = {len(row) for row in self.values}
        if len(columns) != 1:
            raise SpecError("map.values", f"has rows of {sorted(columns)} columns", "give rows of one length")
        for name, ticks, size in (
            ("row_ticks", self.row_ticks, len(self.values)),
            ("column_ticks", self.column_ticks, columns.pop()),
        ):
            if ticks and len(ticks) != size:
                raise SpecError(f"map.{name}", f"has {len(ticks)} labels for {size}", "give one for each, or none")


@dataclass(frozen=True, config=JSON_CONFIG)
class MapFigure:
    """Heat maps in a grid, all on one colour scale.

    Fields
        maps: `[row of the grid][column of the grid]`
        value_range: the ends of the colour scale
        signed: whether the colour scale is white at zero, for values of both signs
        seeds: as in `LineFigure`
    """

    title: str
    caption: str
    maps: tuple[tuple[Map, ...], ...]
    x_label: str = "key"
    y_label: str = "query"
    value_label: str = "attention"
    value_range: Range = (0.0, None)
    signed: bool = False
    seeds: str | None = None
    kind: Literal["maps"] = "maps"


@dataclass(frozen=True, config=JSON_CONFIG)
class Scatter:
    """Points in a plane, each coloured by its entry of `values`."""

    title: str
    x: Numbers
    y: Numbers
    values: Numbers

    def __post_init__(self) -> None:
        for name, given in (("y", self.y), ("values", self.values)):
            if len(given) != len(self.x):
                raise SpecError(f"scatter.{name}", f"has {len(given)} numbers", f"give one for each of {len(self.x)} x")


@dataclass(frozen=True, config=JSON_CONFIG)
class ScatterFigure:
    """Clouds of points side by side, all on one colour scale but each with its own axis ranges.

    Fields
        value_names: the names of the values 0, 1, .. if values are categories, such as `("no", "yes")`; else empty
        seeds: as in `LineFigure`
    """

    title: str
    caption: str
    scatters: tuple[Scatter, ...]
    x_label: str
    y_label: str
    value_label: str
    value_names: tuple[str, ...] = ()
    seeds: str | None = None
    kind: Literal["scatters"] = "scatters"

    def __post_init__(self) -> None:
        if not self.scatters:
            raise SpecError("figure.scatters", "has none", "give at least one")
        kinds = {value for one in self.scatters for value in one.values}
        if self.value_names and not kinds <= {*map(float, range(len(self.value_names)))}:
            raise SpecError("figure.value_names", f"name {len(self.value_names)} values", "number the kinds from 0")


@dataclass(frozen=True, config=JSON_CONFIG)
class Dots:
    """One panel: at each of `ticks`, a point for each entry of `values` `[tick][point]`; NaN for no point.

    `marked` is the index of a highlighted tick, such as the reference setting that all others modify.
    """

    title: str
    ticks: tuple[str, ...]
    values: Grid
    marked: int | None = None

    def __post_init__(self) -> None:
        if len(self.values) != len(self.ticks):
            raise SpecError("dots.values", f"has {len(self.values)} rows for {len(self.ticks)} ticks", "give one each")
        if self.marked is not None and not 0 <= self.marked < len(self.ticks):
            raise SpecError("dots.marked", f"{self.marked} is not a tick", f"choose 0 to {len(self.ticks) - 1}")


@dataclass(frozen=True, config=JSON_CONFIG)
class DotFigure:
    """Panels of points on one y axis; a line joins the means in each panel. `seeds` is as in `LineFigure`."""

    title: str
    caption: str
    panels: tuple[Dots, ...]
    y_label: str
    y_range: Range = (None, None)
    seeds: str | None = None
    kind: Literal["dots"] = "dots"

    def __post_init__(self) -> None:
        if not self.panels:
            raise SpecError("figure.panels", "has none", "give at least one")


@dataclass(frozen=True, config=JSON_CONFIG)
class Bars:
    """One bar in each group, with an interval from `low` to `high`; both are empty without one. NaN means no bar."""

    label: str
    values: Numbers
    low: Numbers = ()
    high: Numbers = ()

    def __post_init__(self) -> None:
        for name, ends in (("low", self.low), ("high", self.high)):
            if (self.low or self.high) and len(ends) != len(self.values):
                raise SpecError(f"bars.{name}", f"has {len(ends)} ends", f"give one for each of {len(self.values)}")


@dataclass(frozen=True, config=JSON_CONFIG)
class BarFigure:
    """Groups of bars side by side, with a dashed line across each group, such as the accuracy of guessing.

    Fields
        groups: the name of each group
        bars: one entry per colour, with a value for every group
        dashed: the height of each group's dashed line; empty for no lines
        dashed_label: the meaning of the dashed lines
        drawn: the meaning of the intervals; printed only if there are any
    """

    title: str
    caption: str
    groups: tuple[str, ...]
    bars: tuple[Bars, ...]
    y_label: str
    dashed: Numbers = ()
    dashed_label: str = ""
    y_range: Range = (0.0, None)
    seeds: str | None = None
    drawn: str = "line: 95 % interval"
    kind: Literal["bars"] = "bars"

    def __post_init__(self) -> None:
        for name, values in [("dashed", self.dashed or self.groups), *((bar.label, bar.values) for bar in self.bars)]:
            if len(values) != len(self.groups):
                raise SpecError(f"bars.{name}", f"has {len(values)} values", f"give one for each of {len(self.groups)}")
        if not self.bars:
            raise SpecError("figure.bars", "has none", "give at least one")

    @property
    def has_intervals(self) -> bool:
        """Whether any bar has an interval."""
        return any(bar.low for bar in self.bars)


@dataclass(frozen=True, config=JSON_CONFIG)
class Event:
    """The step at which something happened in each member; None for never. Events of one `group` share a colour."""

    label: str
    group: str
    at: tuple[float | None, ...]


@dataclass(frozen=True, config=JSON_CONFIG)
class TimelineFigure:
    """Events along training, one row each: a point for every member and a bar at their median.

    `end` is the last step of training, where the drawing notes how many members never had the event. `seeds` is as in
    `LineFigure`.
    """

    title: str
    caption: str
    x_label: str
    events: tuple[Event, ...]
    end: float
    log_x: bool = False
    seeds: str | None = None
    kind: Literal["timeline"] = "timeline"

    def __post_init__(self) -> None:
        if not self.events:
            raise SpecError("figure.events", "has none", "give at least one")


@dataclass(frozen=True, config=JSON_CONFIG)
class CircuitArrow:
    """An attention path: a head carries information from the column `key` of a panel to the column `query`."""

    layer: int
    head: int
    query: str
    key: str
    label: str


@dataclass(frozen=True, config=JSON_CONFIG)
class CircuitPanel:
    """One circuit, as made by `circuit_panel`: its columns from left to right, the number of layers, and its paths.

    `roles` names the columns: roles of the task, and keys or queries that are not roles, such as `every position`.
    """

    title: str
    roles: tuple[str, ...]
    layers: int
    arrows: tuple[CircuitArrow, ...]

    def __post_init__(self) -> None:
        if not self.roles or len(set(self.roles)) < len(self.roles):
            raise SpecError("panel.roles", f"are {self.roles}", "name at least one, each once")
        for index, arrow in enumerate(self.arrows):
            at = f"panel.arrows.{index}"
            if not (0 <= arrow.layer < self.layers and arrow.head >= 0):
                raise SpecError(at, f"{arrow.layer}.{arrow.head} is not a head of {self.layers} layers", "count from 0")
            for role in (arrow.query, arrow.key):
                if role not in self.roles:
                    raise SpecError(at, f"{role!r} is not a role of the panel", f"choose from {', '.join(self.roles)}")


@dataclass(frozen=True, config=JSON_CONFIG)
class CircuitFigure:
    """Circuits drawn as in Figure 5 of stacked attention heads; `seeds` is as in `LineFigure`."""

    title: str
    caption: str
    panels: tuple[CircuitPanel, ...]
    seeds: str | None = None
    kind: Literal["circuits"] = "circuits"

    def __post_init__(self) -> None:
        if not self.panels:
            raise SpecError("figure.panels", "has none", "give at least one")


Figure = LineFigure | MapFigure | ScatterFigure | DotFigure | BarFigure | TimelineFigure | CircuitFigure


@dataclass(frozen=True, config=JSON_CONFIG)
class Table:
    """Rows below column names; floats are shown with four significant digits, None as a dash."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise SpecError(f"table.rows.{index}", f"has {len(row)} cells for {len(self.columns)} columns", "")


def numbers(values: Any) -> Numbers:
    """Return a row of numbers from anything that numpy accepts, such as a tensor."""
    return tuple(np.asarray(values, dtype=np.float64).tolist())


def grid(values: Any) -> Grid:
    """Return a grid of numbers, `[row][column]`, from anything that numpy accepts, such as a tensor."""
    return tuple(map(tuple, np.asarray(values, dtype=np.float64).tolist()))


def event(label: str, group: str, at: Any) -> Event:
    """Return an event from a tensor or array of steps, `[member]`; NaN means never."""
    return Event(label, group, tuple(None if np.isnan(one) else one for one in numbers(at)))


def line(label: str, x: Any, values: Any) -> Line:
    """Return the curve of values `[member x]`: their mean over members, with a band from the lowest to the highest."""
    array = np.asarray(values, dtype=np.float64)
    return Line(label, numbers(x), numbers(array.mean(0)), numbers(array.min(0)), numbers(array.max(0)))
