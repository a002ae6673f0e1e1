"""Types of the fields of findings: printable texts, finite or drawable numbers, and lists of bounded length.

Findings may come from another person's store. All accepted values can be drawn and printed in bounded time and
memory. Each limit is at least ten times what our own findings need.
"""

from math import copysign, inf
from typing import Annotated

from pydantic import AfterValidator, Field

from anchorlab.printable import printable

PARTS = Field(max_length=100)
"""The limit on lists of figures, tables and views."""

MANY = Field(max_length=1000)
"""The limit on lists whose entries are each drawn or labelled, such as curves, ticks and arrows."""

MOST_PANELS = 400
FEW = Field(max_length=MOST_PANELS)
"""The limit on lists of panels side by side, and of arrows in one panel, whose labels must avoid each other."""

MOST_PIECES = 10_000
"""The largest number of bars, ticks or arrows in all panels of a figure together."""

_LARGEST, _SMALLEST = 1e100, 1e-300  # matplotlib squares and divides the ends of its axes


def _escaped(text: str) -> str:
    return printable(text, lines=True)


def _drawable(number: float) -> float:
    if -_SMALLEST < number < _SMALLEST:
        return 0.0
    return copysign(inf, number) if abs(number) > _LARGEST else number


Text = Annotated[str, Field(max_length=10_000), AfterValidator(_escaped)]
"""A text of a page, such as a caption; control characters become escapes such as `\\x1b`."""

Label = Annotated[str, Field(max_length=1000), AfterValidator(_escaped)]
"""A text inside a figure or table, escaped as `Text`."""

Labels = Annotated[tuple[Label, ...], MANY]

Finite = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
"""A number that an axis or a duration needs."""

Number = Annotated[float, AfterValidator(_drawable)]
"""A number that is drawn, NaN or infinite for none; beyond 1e100 it counts as infinite, and below 1e-300 as zero."""

Numbers = Annotated[tuple[Number, ...], Field(max_length=1_000_000)]
Grid = Annotated[tuple[Numbers, ...], Field(max_length=10_000)]

Range = tuple[Finite | None, Finite | None]
"""The lower and the upper end of an axis or a colour scale; None fits that end to the data."""

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A whole number of 64 bits, which Python prints at once."""
