"""The table of head scores, for `anchorlab inspect` and `anchorlab look-at`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from anchorlab.cli.terminal.output import Rows

if TYPE_CHECKING:
    import polars

# detectors without a column: each is one offset of the detector on its right, whose column shows the best offset
_SPECIAL_CASES = {
    "previous_token": "shift",
    "self_attending": "shift",
    "first_token": "fixed_position",
    "anchor_attending": "broadcast_profile",
    "broadcast": "broadcast_profile",
}
_ROUNDING = 0.005  # half of the last digit shown


def heads_table(
    found: "polars.DataFrame", title: str, by: str | None = None, most: int | None = None, hidden: Sequence[str] = ()
) -> Rows:
    """Return the `detect` table of one member to print; heads with the same index in different members are unrelated.

    Heads are in the model's order, or sorted by the scores of the detector `by`; at most `most` are shown, by default
    all. Detectors in `hidden` have no column, unless heads are sorted by them. Broadcast has one column with the
    higher of two scores: the best offset from the anchor (`@1`) or the keys (`@key`).
    """
    import polars as pl

    from anchorlab.lens import describe

    called = {(layer, head): label for layer, head, label in describe(found)["layer", "head", "label"].rows()}
    shown = [name for name in found["detector"].unique(maintain_order=True) if name == by or name not in hidden]
    detectors = [name for name in shown if name == by or _SPECIAL_CASES.get(name) not in shown]
    heads: dict[tuple[int, int], dict[str, tuple[float, int | str | None]]] = {}
    ordered = found if by is None else found.filter(pl.col("detector") == by).sort("value", descending=True)
    for head in ordered.select("layer", "head").unique(maintain_order=True).head(most or len(found)).rows():
        heads[head] = {}
    for layer, head, detector, value, offset in found["layer", "head", "detector", "value", "offset"].rows():
        if (layer, head) in heads:
            heads[layer, head][detector] = (value, offset)
    for scores in heads.values():
        of_keys, _ = scores.get("broadcast", (0.0, None))
        if of_keys > scores.get("broadcast_profile", (1.0, None))[0] + _ROUNDING:
            scores["broadcast_profile"] = (of_keys, "key")
    rows = [
        (
            f"{layer}.{head}",
            called[layer, head],
            *(_shaded(*scores[name]) if name in scores else "" for name in detectors),
        )
        for (layer, head), scores in heads.items()
    ]
    columns = ("layer\n.head", "mostly", *(name.removesuffix("_profile").replace("_", "\n") for name in detectors))
    return Rows(columns, rows, title)


def _shaded(value: float, offset: int | str | None) -> Text:
    text = Text(f"{value:.2f}", "bold green" if value >= 0.8 else "green" if value >= 0.5 else "dim", no_wrap=True)
    return text if offset is None else text.append(f" @{offset}", "dim")
