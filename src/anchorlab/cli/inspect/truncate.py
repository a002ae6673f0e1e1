"""`anchorlab truncate`: the search in a run, and with `--prompts` in a pretrained language model."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from anchorlab.cli.inspect.measured import Measured
from anchorlab.cli.options import shared
from anchorlab.cli.options.fields import as_written
from anchorlab.cli.terminal.output import Rows, check_file, hand_out, waiting
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    import numpy
    import polars

    from anchorlab.findings import MapFigure
    from anchorlab.language import Prompt

_MOST = 1001  # fractions
_SHOWN = 20  # cuts of a pretrained model that are printed


def truncate(
    run: shared.RunName,
    /,
    *,
    weights: Annotated[list[str] | None, Parameter(negative="")] = None,
    rho: str | None = None,
    metric: str | None = None,
    split: str | None = None,
    store: shared.StoreFolder = None,
    n: Annotated[int | None, Parameter(name=("--n", "-n"))] = None,
    step: int | None = None,
    figure: Path | None = None,
    prompts: str | None = None,
    revision: str | None = None,
    download: shared.Flag = False,
    json: shared.Flag = False,
) -> None:
    """Cut the matrices of a run, or of a pretrained model, to lower rank, one at a time; find the best cut of each.

    Measurements are kept in the store, so that a stopped search can continue.

    Parameters
    ----------
    run
        First digits of the run's address, as `anchorlab runs` lists it. With `--prompts`, a pretrained language model:
        a name on Hugging Face's hub, a local folder, a `.gguf` file, `smollm2` or `gemma3`.
    weights
        Matrix, pattern such as `blocks.1.mlp.*`, or product `A @ B`; repeat it for several. By default `blocks.**`.
    rho
        Fractions of the rank to keep: `0:1:0.05` from 0 to 1 in steps, the default for runs, or a list such as
        `0,0.01,0.05,0.2,0.5`, the default for pretrained models.
    metric
        Metric to optimise in a run: `loss`, the default, `objective` and `error` are minimised; any other is maximised.
    split
        Split of a run's task to measure on; by default the last.
    n
        Number of sequences to measure a run on; by default 1000.
    step
        Training step of a run's checkpoint; by default the last.
    figure
        Also draw a heat map of matrices and fractions to this PNG, PDF or SVG file.
    prompts
        The prompts for a pretrained model: `facts` about cities, another kind of fact such as `currency` or `native`,
        `indirect-objects`, or a CSV file with the columns `prompt` and `answer`. One half chooses the cut, the other
        measures its effect.
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
        _truncate_model(run, prompts, weights, fractions, store, revision, download, figure, json)
        return
    metric, n, fractions = metric or "loss", 1000 if n is None else n, fractions or _fractions("0:1:0.05")
    if n < 1:
        raise SpecError("n", f"cannot measure on {n} sequences", "give 1 or more")

    from anchorlab.lens import best_truncations, truncations
    from anchorlab.runs import Store
    from anchorlab.spec import check_known

    of = Measured(run, None if run.startswith("zoo:") else store)  # whose cuts are kept in the store
    check_known("metric", metric, of.trained.experiment.metrics, "metric")
    seen = f"{metric} on {split or of.task.splits[-1]} at step {of.at(step)}"
    keep = Store(store).root / "truncations" / of.address
    with as_written(["rho"], {"rho": "fractions"}):
        table = truncations(
            of.trained,
            weights or ["blocks.**"],
            fractions,
            split=split,
            size=n,
            step=step,
            keep=keep,
            progress=not json,
        )
    found = best_truncations(table, metric)
    title = f"{of.label}: {seen}, by matrix and fraction of its rank"
    of.draw(figure, lambda: _heat_map(title, "over members", *_means(table, metric), metric))
    rows = [
        (row["weight"], f"{row['fraction']:g}", row["rank"], row["value"], row["full"], row["change"])
        for row in found.iter_rows(named=True)
    ]
    shown = (
        Rows(("matrix", "best ρ", "rank", metric, "full model", "change"), rows, f"{of.label}: {seen}"),
        f"over {n} sequences; mean over members; ρ: fraction of the rank that is kept, 0 removes the matrix",
    )
    hand_out(json, lambda: {"best": found.to_dicts(), "measured": table.to_dicts()}, shown, figure=figure)


def _check_kind(prompts: str | None, of_runs: dict[str, object], revision: str | None, download: bool) -> None:
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


def _means(table: "polars.DataFrame", metric: str) -> "tuple[numpy.ndarray, Sequence[str], Sequence[float]]":
    import polars as pl

    means = (
        table.filter((pl.col("metric") == metric) & (pl.col("group") == "all"))
        .group_by("weight", "fraction", maintain_order=True)
        .agg(pl.col("value").mean())
    )
    names, fractions = (means[column].unique(maintain_order=True).to_list() for column in ("weight", "fraction"))
    return means["value"].to_numpy().reshape(len(names), len(fractions)), names, fractions


def _truncate_model(
    name: str,
    prompts: str,
    weights: Sequence[str] | None,
    fractions: Sequence[float] | None,
    store: Path | None,
    revision: str | None,
    download: bool,
    figure: Path | None,
    json: bool,
) -> None:
    """Search on one half of the prompts, and print the best cuts and what the very best does on the other half."""
    asked = _prompts(prompts)
    with waiting("loading libraries", quiet=json):
        from anchorlab.language import FRACTIONS, Questions, edited_weights, pretrained, search_truncations
        from anchorlab.language.prompts import split_by_unit
        from anchorlab.runs import Store

    with waiting(f"opening {name}", quiet=json):
        model = pretrained(name, revision, download=download)
    halves = [half for half in split_by_unit(asked) if half]
    asking, keep = Questions(model, halves[0]), Store(store).root / "truncations" / "language"
    with as_written(["rho"], {"rho": "fractions"}):
        search = search_truncations(
            asking, weights or ["blocks.**"], fractions or FRACTIONS, keep=keep, progress=not json
        )
    best = search.best()
    reported = Questions(model, halves[-1])
    before, after = reported.answers(), reported.answers(edited_weights(model, [best]))
    right, the = ([float(each.exp().mean()) for each in pair] for pair in (
        (before.right, after.right), (before.words[:, 0], after.words[:, 0]),
    ))  # fmt: skip
    if figure is not None:
        from anchorlab.findings import provenance
        from anchorlab.report import save

        title = f"{name}: loss of the right word by matrix and fraction of its rank"
        seen = "over the prompts that chose", search.loss, search.weights, search.fractions, "-log p(right word)"
        opened = name if revision is None else f"{name} at {revision}"
        save(_heat_map(title, *seen), replace(provenance("own", [], 0.0), model=opened), figure)
    table, full = search.table(), -float(search.full.right.nanmean())
    rows = [
        (row["weight"], f"{row['fraction']:g}", row["loss"], full, row["right"], row["others"])
        for row in table.head(_SHOWN).iter_rows(named=True)
    ]
    where = "the other prompts" if len(halves) > 1 else "the same prompts: there is one answer only"
    shown = (
        Rows(
            ("matrix", "ρ", "loss", "full model", "p(right)", "p(others)"),
            rows,
            f"{name}: the best cuts by -log p(right word), {len(halves[0])} of {len(asked)} prompts",
        ),
        f"{best.weight} at ρ = {best.fraction:g}, on {where}: p(right word) {right[0]:.3g} → {right[1]:.3g}, "
        f'p("the") {the[0]:.3g} → {the[1]:.3g}',
    )
    first = {"weight": best.weight, "fraction": best.fraction, "right": right, "the": the}
    hand_out(json, lambda: {"best": first, "measured": table.to_dicts()}, shown, figure=figure)


def _prompts(source: str) -> "tuple[Prompt, ...]":
    """Return the named set, or the rows of a CSV file; the wrong candidates of a row are the answers of the others.

    Errors: `SpecError` for a file that is not there, and rows without a prompt and an answer.
    """
    from anchorlab.language.prompts import Prompt, facts, indirect_objects, relations

    if source == "facts":
        return facts()
    if source == "indirect-objects":
        return indirect_objects()
    if source in relations():
        return facts((source,))
    kinds = ", ".join(relations())
    path, remedy = Path(source), f"give facts, indirect-objects, {kinds}, or a CSV file with columns prompt and answer"
    if not path.is_file():
        raise SpecError("prompts", f"{source!r} is neither a set of prompts nor a file", remedy)
    try:
        rows = [(row["prompt"].strip(), row["answer"].strip()) for row in csv.DictReader(path.open(encoding="utf-8"))]
    except (KeyError, AttributeError, UnicodeDecodeError):
        raise SpecError("prompts", f"{source} lacks a prompt or an answer in some row", remedy) from None
    if not rows or not all(text and answer for text, answer in rows):
        raise SpecError("prompts", f"{source} has no rows, or an empty one", remedy)
    answers = dict.fromkeys(answer for _, answer in rows)
    return tuple(Prompt(text, own, tuple(one for one in answers if one != own)) for text, own in rows)


def _heat_map(
    title: str, averaged: str, values: Any, names: Sequence[str], fractions: Sequence[float], measured: str
) -> "MapFigure":
    from anchorlab.findings import Map, MapFigure, grid

    ticks = tuple(f"{fraction:g}" for fraction in fractions)
    return MapFigure(
        title=title,
        caption=f"Each matrix alone is cut to a fraction of its rank; mean {averaged}.",
        maps=((Map("", grid(values), tuple(names), ticks),),),
        x_label="fraction of the rank that is kept, ρ",
        y_label="",
        value_label=measured,
        value_range=(None, None),
    )
