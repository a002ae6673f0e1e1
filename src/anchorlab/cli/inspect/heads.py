"""The table of head scores, for `anchorlab inspect` and `anchorlab look-at`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from anchorlab.cli.terminal.output import print_table

if TYPE_CHECKING:
    import polars

_SPECIAL_CASES = ("previous_token", "self_attending", "anchor_attending")  # of detectors that have a column


def print_heads(
    found: "polars.DataFrame", title: str, by: str | None = None, most: int | None = None, hidden: Sequence[str] = ()
) -> None:
    """Print the `detect` table of one member; heads with the same index in different members are unrelated.

    Heads are in the model's order, or sorted by the scores of the detector `by`; at most `most` are printed, by default
    all. Detectors in `hidden` have no column, unless heads are sorted by them.
    """
    import polars as pl

    from anchorlab.lens import describe

    called = {(layer, head): label for layer, head, label in describe(found)["layer", "head", "label"].rows()}
    left_out = {*_SPECIAL_CASES, *hidden} - {by}
    detectors = [name for name in found["detector"].unique(maintain_order=True) if name not in left_out]
    heads: dict[tuple[int, int], dict[str, Text]] = {}
    ordered = found if by is None else found.filter(pl.col("detector") == by).sort("value", descending=True)
    for head in ordered.select("layer", "head").unique(maintain_order=True).head(most or len(found)).rows():
        heads[head] = {}
    for layer, head, detector, value, offset in found["layer", "head", "detector", "value", "offset"].rows():
        if (layer, head) in heads:
            heads[layer, head][detector] = _shaded(value, offset)
    rows = [
        (f"{layer}.{head}", called[layer, head], *(cells.get(detector, "") for detector in detectors))
        for (layer, head), cells in heads.items()
    ]
    columns = ("layer\n.head", "mostly", *(detector.replace("_", "\n") for detector in detectors))
    print_table(columns, rows, title=title)


def _shaded(value: float, offset: int | None) -> Text:
    """Return a detector's value as text, highlighted if it is high."""
    text = Text(f"{value:.2f}", "bold green" if value >= 0.8 else "green" if value >= 0.5 else "dim", no_wrap=True)
    return text if offset is None else text.append(f" @{offset}", "dim")
