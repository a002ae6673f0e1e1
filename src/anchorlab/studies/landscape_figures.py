"""Figures of a landscape: best loss by number of units, Shapley values, minimal sets."""

from collections.abc import Sequence

import torch

from anchorlab.errors import SpecError
from anchorlab.findings.figures import Line, LineFigure, Map, MapFigure, Reference, grid, numbers
from anchorlab.lens import Landscape

_IN_A_ROW, _MOST_MAPS, _MOST_SETS = 4, 32, 24


def sizes_figure(title: str, found: Landscape, share: float, members: Sequence[int]) -> LineFigure:
    """Return the figure of the lowest loss with each number of units: a curve for each member, the threshold dashed."""
    rise = (found.best_loss - found.loss[:, -1:]) / found.effect.unsqueeze(1)
    sizes = range(len(found.units) + 1)
    return LineFigure(
        title=title,
        caption="The lowest loss of all subsets of each size: 0 is the model's loss, 1 the loss without any unit.",
        x_label="units kept",
        y_label="rise of the loss / effect",
        lines=tuple(Line(f"member {member}", numbers(sizes), numbers(rise[member])) for member in members),
        references=(Reference("threshold", share),),
    )


def shapley_figure(title: str, found: Landscape, members: Sequence[int]) -> MapFigure:
    """Return a heat map of the Shapley values of the units, a row for each member."""
    rows = tuple(str(member) for member in members)
    return MapFigure(
        title=title,
        caption="How far each unit lowers the loss, on average over all orders in which the units may join.",
        maps=((Map("", grid(found.shapley[list(members)]), rows, found.units),),),
        x_label="unit",
        y_label="member",
        value_label="Shapley value",
        value_range=(None, None),
        signed=True,
    )


def minimal_figure(title: str, found: Landscape, share: float, members: Sequence[int]) -> MapFigure:
    """Return a map for each member with its minimal sets in rows; a filled cell is a unit of the set.

    Colours show how far the loss rises without the unit. At most 24 sets are drawn, the smallest. Errors: `SpecError`
    for more members than fit into a figure.
    """
    if len(members) > _MOST_MAPS:
        raise SpecError("member", f"{len(members)} maps do not fit into a figure", "choose one, as in member=0")
    minimal, maps = found.minimal(share), []
    for member in members:
        sets, loss = minimal[member], found.loss[member]
        cells = torch.full((min(len(sets), _MOST_SETS), len(found.units)), torch.nan, dtype=torch.float64)
        subsets = [found.subset(*names) for names in sets[:_MOST_SETS]]
        for row, subset in enumerate(subsets):
            for name in found.names(subset):
                cells[row, found.units.index(name)] = loss[subset ^ found.subset(name)] - loss[subset]
        count = f"{len(sets)} set{'s' if len(sets) != 1 else ''}"
        title_of_map = f"member {member}: {count}" + (f", {_MOST_SETS} drawn" if len(sets) > _MOST_SETS else "")
        maps.append(Map(title_of_map, grid(cells), tuple(f"{loss[one]:.3g}" for one in subsets), found.units))
    return MapFigure(
        title=title,
        caption=f"Sets of units whose loss stays within {share:.0%} of the effect, and that contain no other such set. "
        "Hatched: not in the set.",
        maps=tuple(tuple(maps[start : start + _IN_A_ROW]) for start in range(0, len(maps), _IN_A_ROW)),
        x_label="unit",
        y_label="loss of the set",
        value_label="rise of the loss without the unit",
    )
