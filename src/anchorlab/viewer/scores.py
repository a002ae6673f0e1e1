"""Collect the detectors' labels and scores of every head, in the order of a view's heads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anchorlab.findings.view import ViewScores
from anchorlab.lens import describe

if TYPE_CHECKING:
    import polars

_DIGITS = 3  # decimal digits, as in the weights of a view


def head_labels(found: "Sequence[polars.DataFrame]") -> list[list[list[str]]]:
    """Return the label of every head, `[member][step][layer*heads + head]`; `found` has one `detect` table per step."""
    steps = [
        [part["label"].to_list() for part in _members(describe(one).sort("member", "layer", "head"))] for one in found
    ]
    return [list(member) for member in zip(*steps, strict=True)]


def head_scores(found: "Sequence[polars.DataFrame]") -> tuple[ViewScores, ...]:
    """Return the scores of every detector that occurs in the tables of all steps; `found` is as in `head_labels`."""
    import polars as pl

    names = [name for name in found[0]["detector"].unique(maintain_order=True) if all(_has(one, name) for one in found)]
    scores = []
    for name in names:
        steps = [
            [
                tuple(round(value, _DIGITS) for value in part["value"])
                for part in _members(one.filter(pl.col("detector") == name).sort("member", "layer", "head"))
            ]
            for one in found
        ]
        scores.append(ViewScores(name, tuple(zip(*steps, strict=True))))
    return tuple(scores)


def _has(found: "polars.DataFrame", detector: str) -> bool:
    return detector in found["detector"]


def _members(heads: "polars.DataFrame") -> "list[polars.DataFrame]":
    return heads.partition_by("member", maintain_order=True)
