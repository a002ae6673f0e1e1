"""`anchorlab truncate`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anchorlab.cli.complete import RunName
from anchorlab.cli.output import Flag, Json, check_file, print_json, print_table, print_text
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    import polars

    from anchorlab.findings import MapFigure

_MOST = 1001


def truncate(
    run: RunName,
    /,
    *,
    weights: Annotated[list[str] | None, Parameter(negative="")] = None,
    rho: str | None = None,
    metric: str | None = None,
    split: str | None = None,
    store: Path | None = None,
    n: Annotated[int | None, Parameter(name=("--n", "-n"))] = None,
    step: int | None = None,
    figure: Path | None = None,
    prompts: str | None = None,
    revision: str | None = None,
    download: Flag = False,
    json: Json = False,
) -> None:
    """Cut the matrices of a run, or of a pretrained model, to lower rank, one at a time; find the best cut of each.

    Measurements are kept in the store, so that a search that was stopped can continue.

    Parameters
    ----------
    run
        First digits of the run's address, as `anchorlab runs` lists it. With `--prompts`, a pretrained language model:
        a name on Hugging Face's hub, a local folder, a `.gguf` file, `smollm2` or `gemma3`.
    weights
        Matrix, pattern such as `blocks.1.mlp.*`, or product `A @ B`; repeat it for several. By default `blocks.*`.
    rho
        Fractions of the rank to keep: `0:1:0.05` from 0 to 1 in steps, the default for runs, or a list such as
        `0,0.01,0.05,0.2,0.5`, the default for pretrained models.
    metric
        Metric of a run to optimise: by default the lowest loss; the highest value of any other metric.
    split
        Split of a run's task to measure on; by default the last.
    store
        Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`.
    n
        Number of sequences to measure a run on; by default 1000.
    step
        Training step of a run's checkpoint; by default the last.
    figure
        Also draw a heat map of matrices and fractions to this PNG, PDF or SVG file.
    prompts
        The prompts for a pretrained model: `facts`, `indirect-objects`, or a CSV file with the columns `prompt` and
        `answer`. One half chooses the cut, the other shows what it does.
    revision
        Branch, tag or commit of a pretrained model on the hub, such as `step1000`.
    download
        Fetch a pretrained model from the hub if it is not on this machine.
    json
        Print every number as JSON.
    """
    fractions = None if rho is None else _fractions(rho)
    _check_kind(prompts, {"metric": metric, "split": split, "n": n, "step": step}, revision, download)
    check_file(figure, "figure")
    if prompts is not None:
        from anchorlab.cli.truncate_model import truncate_model

        truncate_model(run, prompts, weights, fractions, store, revision, download, figure, json)
        return
    fractions = _fractions("0:1:0.05") if fractions is None else fractions
    metric, n = metric or "loss", 1000 if n is None else n
    if n < 1:
        raise SpecError("n", f"cannot measure on {n} sequences", "give 1 or more")

    from anchorlab.lens import best_truncations, truncations
    from anchorlab.runs import Store
    from anchorlab.training import TrainedRun

    began, place = time.monotonic(), Store(store)
    trained = TrainedRun(place.find(run))
    table = truncations(
        trained,
        weights or ["blocks.*"],
        fractions,
        split=split,
        size=n,
        step=step,
        keep=place.root / "truncations" / trained.run.address,
        progress=not json,
    )
    found = best_truncations(table, metric)
    if figure is not None:
        from anchorlab.findings import provenance
        from anchorlab.report import save

        save(
            _heat_map(table, metric, trained.run.label), provenance("own", [trained], time.monotonic() - began), figure
        )
    if json:
        print_json({"best": found.to_dicts(), "measured": table.to_dicts()})
        return
    rows = [
        (row["weight"], f"{row['fraction']:g}", row["rank"], row["value"], row["full"], row["change"])
        for row in found.iter_rows(named=True)
    ]
    measured_on = trained.experiment.task.splits[-1] if split is None else split
    print_table(
        ("matrix", "best ρ", "rank", metric, "full model", "change"),
        rows,
        title=f"{trained.run.label}: {metric} on {measured_on}",
    )
    print_text(f"over {n} sequences; mean over members; ρ: fraction of the rank that is kept, 0 removes the matrix")
    if figure is not None:
        print_text(f"figure: {figure}", wrapped=False)


def _check_kind(prompts: str | None, of_runs: dict[str, object], revision: str | None, download: bool) -> None:
    """Raise `SpecError` for options of runs given with prompts, and options of pretrained models without."""
    for name, value in of_runs.items():
        if prompts is not None and value is not None:
            raise SpecError(name, "is for runs, and --prompts for pretrained models", "leave one of them out")
    for name, given in (("revision", revision is not None), ("download", download)):
        if prompts is None and given:
            raise SpecError(name, "is for pretrained models", "give --prompts too, such as --prompts facts")


def _fractions(text: str) -> list[float]:
    """Parse `0:1:0.25` or `0,0.25,0.5`. Errors: `SpecError` at `rho`."""
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        start, end, step = (float(part) for part in text.split(":"))
    except ValueError:
        raise SpecError("rho", f"cannot read {text!r}", "write 0:1:0.05, or a list such as 0,0.1,0.5") from None
    if not (step > 0 and start <= end and (end - start) / step < _MOST):
        raise SpecError("rho", f"{text!r} is not a range", "write start:end:step, such as 0:1:0.05")
    return [round(start + index * step, 10) for index in range(int((end - start) / step + 1e-9) + 1)]


def _heat_map(table: "polars.DataFrame", metric: str, label: str) -> "MapFigure":
    import polars as pl

    from anchorlab.findings import Map, MapFigure

    means = (
        table.filter((pl.col("metric") == metric) & (pl.col("group") == "all"))
        .group_by("weight", "fraction", maintain_order=True)
        .agg(pl.col("value").mean())
    )
    names, fractions = (means[column].unique(maintain_order=True).to_list() for column in ("weight", "fraction"))
    values = means["value"].reshape((len(names), len(fractions))).to_list()
    ticks = tuple(f"{fraction:g}" for fraction in fractions)
    return MapFigure(
        title=f"{label}: {metric} by matrix and fraction of its rank",
        caption="Each matrix alone is cut to a fraction of its rank; mean over members.",
        maps=((Map("", tuple(map(tuple, values)), tuple(names), ticks),),),
        x_label="fraction of the rank that is kept, ρ",
        y_label="",
        value_label=metric,
        value_range=(None, None),
    )
