"""Truncate the rank of one matrix of a run at a time, and find the best truncation for a metric (LASER)."""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.models.edits import Truncate, checked_fractions
from anchorlab.patterns import matching
from anchorlab.progress import Counted, counted
from anchorlab.runs.atomic_files import read_json, write_json
from anchorlab.spec import check_known
from anchorlab.training import Ensemble, Evaluation, TrainedRun
from anchorlab.training.evaluation import OBJECTIVE, UNEDITED, Evaluator

if TYPE_CHECKING:
    import polars

FRACTIONS = tuple(step / 20 for step in range(20))
"""The default fractions of the rank to keep: 0, 0.05, ... 0.95; the full rank is always measured too."""


def truncations(
    run: TrainedRun,
    weights: Sequence[str] = ("blocks.**",),
    fractions: Sequence[float] = FRACTIONS,
    *,
    split: str | None = None,
    size: int = 1000,
    step: int | None = None,
    keep: Path | None = None,
    progress: Counted = None,
) -> "polars.DataFrame":
    """Measure each member with one matrix truncated to a fraction of its rank, for every matrix and fraction.

    Returns a table with the columns weight, fraction, rank, member, seed, group, metric, value. Fraction 1 is the full
    model.

    Args:
        weights: names of matrices, patterns such as `blocks.1.mlp.*`, or products such as
            `blocks.0.attn.W_V @ blocks.0.attn.W_O`.
        fractions: the fractions of the rank to keep, from 0 to 1.
        split: the split to measure on; None: the last.
        step: the training step of the checkpoint; None: the last.
        keep: a folder for results. Results found there are not computed again, so a stopped search can go on.
        progress: as in `effects`, counted in truncations.
    """
    import polars

    ensemble, task = run.ensemble(step), run.experiment.task
    names = matrices(ensemble, weights)
    tried = checked_fractions(fractions)
    split = task.splits[-1] if split is None else split
    check_known("split", split, task.splits, "split")
    at = run.checkpoints[-1] if step is None else step
    rows, columns = [], ("weight", "fraction", "rank", "member", "seed", "group", "metric", "value")
    with counted("cutting", progress) as tell:
        for done, name in enumerate(names):
            tell(done * len(tried), len(names) * len(tried))
            asked = {"fractions": tried, "split": split, "size": size, "step": at}
            setting = {"run": run.run.address, "weight": name, **asked}
            if run.experiment.recipe.loss is not None:
                setting["loss"] = OBJECTIVE  # files without it lack this metric
            kept = f"{sha256(json.dumps(setting, sort_keys=True).encode()).hexdigest()[:20]}.json"
            if keep is not None and (keep / kept).exists():
                rows += read_json(keep / kept, run.run.address)["rows"]
                continue
            found = _cuts(run, ensemble, name, tried, split, size, at)
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                write_json(keep, kept, {**setting, "rows": found})
            rows += found
        tell(len(names) * len(tried), len(names) * len(tried))
    return polars.DataFrame([dict(zip(columns, row, strict=True)) for row in rows])


def best_truncations(table: "polars.DataFrame", metric: str = "loss") -> "polars.DataFrame":
    """Return the best truncation of each matrix by the mean of a metric over members, the best matrix first.

    For `loss`, `objective` and `error` the lowest value is the best, else the highest; among equal values, the
    smallest rank wins. Only the group `all` counts. The columns are weight, fraction, rank, value, full (the full
    model's value), change (value minus full).
    """
    import polars as pl

    metrics = table["metric"].unique().sort().to_list()
    check_known("metric", metric, metrics, "metric")
    sign = 1 if metric in ("loss", OBJECTIVE, "error") else -1
    means = (
        table.filter((pl.col("metric") == metric) & (pl.col("group") == "all"))
        .group_by("weight", "fraction", "rank", maintain_order=True)
        .agg(pl.col("value").mean())
    )
    full = means.filter(pl.col("fraction") == 1).select("weight", pl.col("value").alias("full"))
    return (
        means.sort(sign * pl.col("value"), "fraction")
        .group_by("weight", maintain_order=True)
        .first()
        .join(full, on="weight", maintain_order="left")
        .with_columns((pl.col("value") - pl.col("full")).alias("change"))
    )


def matrices(ensemble: Ensemble, weights: Iterable[str] = ("**",)) -> list[str]:
    """Return the names of the matrices and products that `weights` selects by name, pattern or product, each once."""
    known = [name for name, value in ensemble.weights.items() if value.ndim == 3]
    found: dict[str, None] = {}
    for index, each in enumerate(weights):
        if "@" in each:
            Truncate(weight=each, rank=0).check(ensemble.member_weights(0))
            meant = [" @ ".join(part.strip() for part in each.split("@"))]
        else:
            meant = matching(each, known, f"weights.{index}", "matrix")
        found |= dict.fromkeys(meant)
    return list(found)


def _cuts(
    run: TrainedRun, ensemble: Ensemble, name: str, fractions: Sequence[float], split: str, size: int, step: int
) -> list[list[str | int | float]]:
    """Return the rows of one matrix: one per fraction, member, group and metric, the full model last."""
    edits = {str(fraction): (Truncate(weight=name, fraction=fraction),) for fraction in fractions}
    evaluation = Evaluation(size=size, splits=(split,), edits=edits)
    first = next(iter(ensemble.weights.values()))
    of = run.experiment
    evaluator = Evaluator(of.task, evaluation, of.members, first.device, first.dtype, loss=of.recipe.loss)
    one = ensemble.member_weights(0)
    ranks = {cut: Truncate(weight=name, fraction=cut).rank_left(one) for cut in (*fractions, 1.0)}
    rows: list[list[Any]] = [
        [name, fraction, ranks[fraction], row.member, row.seed, row.group, row.metric, row.value]
        for row in evaluator.measure(ensemble, step)
        for fraction in (1.0 if row.edit == UNEDITED else float(row.edit),)
    ]
    return sorted(rows, key=lambda row: float(row[1]))
