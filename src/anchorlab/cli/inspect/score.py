"""`anchorlab score`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import Rows, counted, hand_out, number, waiting

_COLUMNS = ("model", "area", "chance", "correlation", "recovered")


def score(file: Path, /, *, truth: Path | None = None, json: shared.Json = False) -> None:
    """Score rankings of the units of compiled models, whose circuits are known by construction.

    `anchorlab export 'compiled:*'` writes the models and the truth. The rankings are one JSON file, with a number for
    each unit: {"method": "...", "rankings": {"identity-1": {"0.0": 4, "0.1": 3, ...}, ...}}.

    Parameters
    ----------
    file
        The rankings.
    truth
        Folder `truth` of the export; by default all models of seed 0 are measured, in about half a minute.
    """
    from anchorlab.truth import known_models, means, read_rankings, score_rankings, units_to_rank

    rankings = read_rankings(file, units_to_rank(truth))  # before anything is measured
    with waiting("measuring every subset of the units", quiet=json or truth is not None):
        known = known_models(truth)
    scored = score_rankings(rankings, known)
    mean = means(scored)

    def data() -> dict[str, Any]:
        ends = {name: {"mean": value, "low": low, "high": high} for name, (value, low, high) in mean.items()}
        return {"method": rankings.method, "models": scored.to_dicts(), "means": ends}

    def shown() -> Iterator[str | Rows]:
        yield Rows(_COLUMNS, [[_rounded(cell) for cell in row] for row in scored.drop("size").rows()], rankings.method)
        yield f"means of {counted(len(known), 'model')}, with 95% intervals over models:"
        for name, (value, low, high) in mean.items():
            interval = "" if low is None or high is None else f" [{_rounded(low)}, {_rounded(high)}]"
            yield f"  {name.replace('_', ' '):15} {number(_rounded(value))}{interval}"

    hand_out(json, data, shown())


def _rounded(cell: str | float) -> str | float | None:
    """Return a number with three decimals, and nothing for NaN."""
    if isinstance(cell, str):
        return cell
    return round(cell, 3) + 0.0 if cell == cell else None  # + 0.0: no -0.0
