"""Figures and tables as plain values: what is drawn, not how.

Lists are read as tuples, and anything that `float` takes as a number. A value that does not fit raises pydantic's
`ValidationError`.
"""

from typing import Any, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.findings.provenance import Provenance
from anchorlab.spec import JSON_CONFIG

Numbers = tuple[float, ...]
Grid = tuple[Numbers, ...]
Range = tuple[float | None, float | None]


@dataclass(frozen=True, config=JSON_CONFIG)
class Line:
    """One curve: its mean at each `x`, and the band from `low` to `high` (empty for none); NaN leaves a gap."""

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
    """A level to compare with, across the figure at this value of `axis`: guessing, the paper's value, a threshold."""

    label: str
    value: float
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True, config=JSON_CONFIG)
class LineFigure:
    """Curves over a common axis.

    `y_range` fixes the ends of the y axis, None where the data decide. `provenance` replaces that of the findings where
    the figure has its own (other seeds, other hardware). `drawn` says what lines and bands are, where there are bands.
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
    provenance: Provenance | None = None
    drawn: str = "line: mean, band: lowest to highest"
    kind: Literal["lines"] = "lines"


@dataclass(frozen=True, config=JSON_CONFIG)
class Map:
    """One heat map: `values` `[row column]`; tick labels are tokens or positions, empty for numbers from 0."""

    title: str
    values: Grid
    row_ticks: tuple[str, ...] = ()
    column_ticks: tuple[str, ...] = ()

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
    """Heat maps in a grid, `maps` `[row of the grid][column of the grid]`, all on one colour scale.

    `value_range` fixes the ends of the scale, None where the data decide; `signed` puts white at zero, for values of
    both signs. `provenance` as in `LineFigure`.
    """

    title: str
    caption: str
    maps: tuple[tuple[Map, ...], ...]
    x_label: str = "key"
    y_label: str = "query"
    value_label: str = "attention"
    value_range: Range = (0.0, None)
    signed: bool = False
    provenance: Provenance | None = None
    kind: Literal["maps"] = "maps"


@dataclass(frozen=True, config=JSON_CONFIG)
class Scatter:
    """Points of a plane, each with the value that colours it."""

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
    """Clouds of points side by side, all on one colour scale, each with axes of its own reach.

    `provenance` as in `LineFigure`.
    """

    title: str
    caption: str
    scatters: tuple[Scatter, ...]
    x_label: str
    y_label: str
    value_label: str
    provenance: Provenance | None = None
    kind: Literal["scatters"] = "scatters"

    def __post_init__(self) -> None:
        if not self.scatters:
            raise SpecError("figure.scatters", "has none", "give at least one")


@dataclass(frozen=True, config=JSON_CONFIG)
class Event:
    """When something happened in each member, None where never; events of one `group` share a colour."""

    label: str
    group: str
    at: tuple[float | None, ...]


@dataclass(frozen=True, config=JSON_CONFIG)
class TimelineFigure:
    """Events along training, a row for each: a point for every member, a bar at their median.

    `end` is the end of training, where what never happened is told. `provenance` as in `LineFigure`.
    """

    title: str
    caption: str
    x_label: str
    events: tuple[Event, ...]
    end: float
    log_x: bool = False
    provenance: Provenance | None = None
    kind: Literal["timeline"] = "timeline"

    def __post_init__(self) -> None:
        if not self.events:
            raise SpecError("figure.events", "has none", "give at least one")


@dataclass(frozen=True, config=JSON_CONFIG)
class CircuitArrow:
    """An attention path: in a layer, a head brings what stands at `key` to `query`, both named by a panel's roles."""

    layer: int
    head: int
    query: str
    key: str
    label: str


@dataclass(frozen=True, config=JSON_CONFIG)
class CircuitPanel:
    """One circuit: `roles` from left to right, the model's number of layers, and the paths; see `circuit_panel`."""

    title: str
    roles: tuple[str, ...]
    layers: int
    arrows: tuple[CircuitArrow, ...]

    def __post_init__(self) -> None:
        if not self.roles or len(set(self.roles)) < len(self.roles):
            raise SpecError("panel.roles", f"are {self.roles}", "name at least one, each of them once")
        for index, arrow in enumerate(self.arrows):
            at = f"panel.arrows.{index}"
            if not (0 <= arrow.layer < self.layers and arrow.head >= 0):
                raise SpecError(at, f"{arrow.layer}.{arrow.head} is no head in {self.layers} layers", "count from 0")
            for role in (arrow.query, arrow.key):
                if role not in self.roles:
                    raise SpecError(at, f"{role!r} is no role", f"choose from {', '.join(self.roles)}")


@dataclass(frozen=True, config=JSON_CONFIG)
class CircuitFigure:
    """Circuits as in figure 5 of the paper on stacked attention heads; `provenance` as in `LineFigure`."""

    title: str
    caption: str
    panels: tuple[CircuitPanel, ...]
    provenance: Provenance | None = None
    kind: Literal["circuits"] = "circuits"

    def __post_init__(self) -> None:
        if not self.panels:
            raise SpecError("figure.panels", "has none", "give at least one")


Figure = LineFigure | MapFigure | ScatterFigure | TimelineFigure | CircuitFigure


@dataclass(frozen=True, config=JSON_CONFIG)
class Table:
    """Rows under column heads; numbers are shown with four significant digits, None as a dash."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise SpecError(f"table.rows.{index}", f"has {len(row)} cells for {len(self.columns)} columns", "")


def numbers(values: Any) -> Numbers:
    """A row of numbers from anything that numpy takes, such as a tensor."""
    return tuple(np.asarray(values, dtype=np.float64).tolist())


def grid(values: Any) -> Grid:
    """A grid `[row column]` of numbers from anything that numpy takes, such as a tensor."""
    return tuple(map(tuple, np.asarray(values, dtype=np.float64).tolist()))


def event(label: str, group: str, at: Any) -> Event:
    """An event from the numbers `[member]` of a tensor or array; NaN is taken for never."""
    return Event(label, group, tuple(None if np.isnan(one) else one for one in numbers(at)))


def line(label: str, x: Any, values: Any) -> Line:
    """The curve of values `[member x]`: their mean over members, with the band from the lowest to the highest."""
    array = np.asarray(values, dtype=np.float64)
    return Line(label, numbers(x), numbers(array.mean(0)), numbers(array.min(0)), numbers(array.max(0)))
