"""Figures and tables as plain values; `anchorlab.report` draws them.

Fields accept lists for tuples, and anything that `float` accepts for a number. A value that does not fit raises
pydantic's `ValidationError`.
"""

from math import isfinite, isnan
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.findings.limits import (
    FEW,
    MANY,
    MOST_PANELS,
    MOST_PIECES,
    Finite,
    Grid,
    Label,
    Labels,
    Number,
    Numbers,
    Range,
    Text,
    Whole,
)
from anchorlab.spec import JSON_CONFIG


@dataclass(frozen=True, config=JSON_CONFIG)
class Line:
    """One curve: its mean at each `x`, and a band from `low` to `high`, both empty for no band. NaN leaves a gap."""

    label: Label
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

    label: Label
    value: Finite
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True, config=JSON_CONFIG)
class LineFigure:
    """Curves over a common axis.

    Fields
        y_range: the ends of the y axis
        seeds: the seeds shown, as text; None for all seeds of the findings
        drawn: the meaning of lines and bands; printed only if there is a band
    """

    title: Label
    caption: Text
    x_label: Label
    y_label: Label
    lines: Annotated[tuple[Line, ...], MANY]
    log_x: bool = False
    log_y: bool = False
    y_range: Range = (None, None)
    references: Annotated[tuple[Reference, ...], MANY] = ()
    seeds: Label | None = None
    drawn: Label = "line: mean, band: lowest to highest"
    kind: Literal["lines"] = "lines"

    @property
    def has_intervals(self) -> bool:
        """Whether any line has a band of nonzero width; the band of a single member has none."""
        return any(low < high for line in self.lines for low, high in zip(line.low, line.high, strict=True))


@dataclass(frozen=True, config=JSON_CONFIG)
class Map:
    """One heat map of `values` `[row column]`. Ticks are labelled with the given texts, or from 0 if there are none.

    `x_label` and `y_label` name the axes if they differ from the figure's.
    """

    title: Label
    values: Grid
    row_ticks: Labels = ()
    column_ticks: Labels = ()
    x_label: Label | None = None
    y_label: Label | None = None

    def __post_init__(self) -> None:
        columns = {len(row) for row in self.values}
        if len(columns) != 1:
            raise SpecError("map.values", f"has rows of {sorted(columns)[:9]} columns", "give rows of one length")
        if columns == {0}:
            raise SpecError("map.values", "has rows without columns", "give at least one")
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
        maps: `[row of the grid][column of the grid]`; cells without a finite value are hatched
        value_range: the ends of the colour scale
        signed: whether the colour scale is white at zero, for values of both signs
        seeds: as in `LineFigure`
    """

    title: Label
    caption: Text
    maps: tuple[tuple[Map, ...], ...]
    x_label: Label = "key"
    y_label: Label = "query"
    value_label: Label = "attention"
    value_range: Range = (0.0, None)
    signed: bool = False
    seeds: Label | None = None
    kind: Literal["maps"] = "maps"

    def __post_init__(self) -> None:
        if not self.maps or not all(self.maps):
            raise SpecError("figure.maps", "has a row without maps" if self.maps else "has none", "give at least one")
        places = len(self.maps) * max(map(len, self.maps))
        if places > MOST_PANELS:
            raise SpecError("figure.maps", f"is a grid of {places} places", f"give {MOST_PANELS} or fewer")


@dataclass(frozen=True, config=JSON_CONFIG)
class Scatter:
    """Points in a plane, each coloured by its entry of `values`."""

    title: Label
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

    title: Label
    caption: Text
    scatters: Annotated[tuple[Scatter, ...], FEW]
    x_label: Label
    y_label: Label
    value_label: Label
    value_names: Labels = ()
    seeds: Label | None = None
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

    title: Label
    ticks: Labels
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

    title: Label
    caption: Text
    panels: Annotated[tuple[Dots, ...], FEW]
    y_label: Label
    y_range: Range = (None, None)
    seeds: Label | None = None
    kind: Literal["dots"] = "dots"

    def __post_init__(self) -> None:
        if not self.panels:
            raise SpecError("figure.panels", "has none", "give at least one")
        _check_pieces("figure.panels", "ticks", sum(len(panel.ticks) for panel in self.panels))


@dataclass(frozen=True, config=JSON_CONFIG)
class Bars:
    """One bar in each group, with an interval from `low` to `high`; both are empty without one. NaN means no bar."""

    label: Label
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

    title: Label
    caption: Text
    groups: Labels
    bars: Annotated[tuple[Bars, ...], MANY]
    y_label: Label
    dashed: Numbers = ()
    dashed_label: Label = ""
    y_range: Range = (0.0, None)
    seeds: Label | None = None
    drawn: Label = "line: 95 % interval"
    kind: Literal["bars"] = "bars"

    def __post_init__(self) -> None:
        for name, values in [("dashed", self.dashed or self.groups), *((bar.label, bar.values) for bar in self.bars)]:
            if len(values) != len(self.groups):
                raise SpecError(f"bars.{name}", f"has {len(values)} values", f"give one for each of {len(self.groups)}")
        if not self.bars or not self.groups:
            raise SpecError("figure.bars" if self.groups else "figure.groups", "has none", "give at least one")
        _check_pieces("figure.bars", "bars", len(self.bars) * len(self.groups))

    @property
    def has_intervals(self) -> bool:
        """Whether any bar has an interval."""
        return any(bar.low for bar in self.bars)


@dataclass(frozen=True, config=JSON_CONFIG)
class Event:
    """The step at which something happened in each member; None for never. Events of one `group` share a colour."""

    label: Label
    group: Label
    at: Annotated[tuple[Number | None, ...], Field(max_length=1_000_000)]


@dataclass(frozen=True, config=JSON_CONFIG)
class TimelineFigure:
    """Events along training, one row each: a point for every member and a bar at their median.

    `end` is the last step of training, where the drawing notes how many members never had the event. `seeds` is as in
    `LineFigure`.
    """

    title: Label
    caption: Text
    x_label: Label
    events: Annotated[tuple[Event, ...], MANY]
    end: Finite
    log_x: bool = False
    seeds: Label | None = None
    kind: Literal["timeline"] = "timeline"

    def __post_init__(self) -> None:
        if not self.events:
            raise SpecError("figure.events", "has none", "give at least one")


@dataclass(frozen=True, config=JSON_CONFIG)
class CircuitArrow:
    """An attention path: a head carries information from the column `key` of a panel to the column `query`."""

    layer: int
    head: Annotated[int, Field(lt=1_000_000)]
    query: Label
    key: Label
    label: Label


@dataclass(frozen=True, config=JSON_CONFIG)
class CircuitPanel:
    """One circuit, as made by `circuit_panel`: its columns from left to right, the number of layers, and its paths.

    `roles` names the columns: roles of the task, and keys or queries that are not roles, such as `every position`.
    """

    title: Label
    roles: Labels
    layers: Annotated[int, Field(ge=0, le=1000)]
    arrows: Annotated[tuple[CircuitArrow, ...], FEW]

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

    title: Label
    caption: Text
    panels: Annotated[tuple[CircuitPanel, ...], FEW]
    seeds: Label | None = None
    kind: Literal["circuits"] = "circuits"

    def __post_init__(self) -> None:
        if not self.panels:
            raise SpecError("figure.panels", "has none", "give at least one")
        pieces = sum(len(panel.roles) + len(panel.arrows) for panel in self.panels)
        _check_pieces("figure.panels", "roles and arrows", pieces)


Figure = LineFigure | MapFigure | ScatterFigure | DotFigure | BarFigure | TimelineFigure | CircuitFigure


@dataclass(frozen=True, config=JSON_CONFIG)
class Table:
    """Rows below column names; floats are shown with four significant digits, None as a dash.

    A float that is not finite becomes None: in JSON it would be a word, and be read as one.
    """

    title: Label
    caption: Text
    columns: Labels
    rows: Annotated[tuple[Annotated[tuple[Text | Whole | float | None, ...], MANY], ...], Field(max_length=1_000_000)]

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise SpecError(f"table.rows.{index}", f"has {len(row)} cells for {len(self.columns)} columns", "")
        finite = ([None if isinstance(one, float) and not isfinite(one) else one for one in row] for row in self.rows)
        object.__setattr__(self, "rows", tuple(map(tuple, finite)))


def _check_pieces(at: str, what: str, count: int) -> None:
    if count > MOST_PIECES:
        raise SpecError(at, f"has {count} {what}", f"give {MOST_PIECES} or fewer")


def numbers(values: Any) -> Numbers:
    """Return a row of numbers from anything that numpy accepts, such as a tensor."""
    import numpy as np  # late, for commands that only print claims

    return tuple(np.asarray(values, dtype=np.float64).tolist())


def grid(values: Any) -> Grid:
    """Return a grid of numbers, `[row][column]`, from anything that numpy accepts, such as a tensor."""
    import numpy as np  # late, for commands that only print claims

    return tuple(map(tuple, np.asarray(values, dtype=np.float64).tolist()))


def event(label: str, group: str, at: Any) -> Event:
    """Return an event from a tensor or array of steps, `[member]`; NaN means never."""
    return Event(label, group, tuple(None if isnan(one) else one for one in numbers(at)))


def line(label: str, x: Any, values: Any) -> Line:
    """Return the curve of values `[member x]`: their mean over members, with a band from the lowest to the highest."""
    import numpy as np  # late, for commands that only print claims

    array = np.asarray(values, dtype=np.float64)
    return Line(label, numbers(x), numbers(array.mean(0)), numbers(array.min(0)), numbers(array.max(0)))
