"""`anchorlab truncate MODEL --prompts facts`: the search in a pretrained language model."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.cli.output import print_json, print_table, print_text, waiting
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.findings import MapFigure
    from anchorlab.language import Prompt, TruncationSearch

_SETS = ("facts", "indirect-objects")
_SHOWN = 20  # rows of the table


def truncate_model(
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
    search = search_truncations(
        Questions(model, halves[0]),
        weights or ["blocks.*"],
        fractions or FRACTIONS,
        keep=Store(store).root / "truncations" / "language",
        progress=not json,
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

        opened = name if revision is None else f"{name} at {revision}"
        save(_heat_map(search, name), replace(provenance("own", [], 0.0), model=opened), figure)
    table = search.table()
    if json:
        shown = {"weight": best.weight, "fraction": best.fraction, "right": right, "the": the}
        print_json({"best": shown, "measured": table.to_dicts()})
        return
    full = -float(search.full.right.nanmean())
    print_table(
        ("matrix", "ρ", "loss", "full model", "p(right)", "p(others)"),
        [(row["weight"], f"{row['fraction']:g}", row["loss"], full, row["right"], row["others"])
         for row in table.head(_SHOWN).iter_rows(named=True)],
        title=f"{name}: the best cuts by -log p(right word), {len(halves[0])} of {len(asked)} prompts",
    )  # fmt: skip
    where = "the other prompts" if len(halves) > 1 else "the same prompts: there is one answer only"
    print_text(
        f"{best.weight} at ρ = {best.fraction:g}, on {where}: p(right word) {right[0]:.3g} → {right[1]:.3g}, "
        f'p("the") {the[0]:.3g} → {the[1]:.3g}'
    )
    if figure is not None:
        print_text(f"figure: {figure}", wrapped=False)


def _prompts(source: str) -> "tuple[Prompt, ...]":
    """The named set, or the rows of a CSV file; the wrong candidates of a row are the answers of all others.

    Errors: `SpecError` for a file that is not there, and rows without a prompt and an answer.
    """
    from anchorlab.language.prompts import Prompt, facts, indirect_objects

    if source in _SETS:
        return facts() if source == "facts" else indirect_objects()
    path, remedy = Path(source), "give facts, indirect-objects, or a CSV file with the columns prompt and answer"
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


def _heat_map(search: "TruncationSearch", label: str) -> "MapFigure":
    from anchorlab.findings import Map, MapFigure, grid

    ticks = tuple(f"{fraction:g}" for fraction in search.fractions)
    return MapFigure(
        title=f"{label}: loss of the right word by matrix and fraction of its rank",
        caption="Each matrix alone is cut to a fraction of its rank; mean over the prompts that chose.",
        maps=((Map("", grid(search.loss), search.weights, ticks),),),
        x_label="fraction of the rank that is kept, ρ",
        y_label="",
        value_label="-log p(right word)",
        value_range=(None, None),
    )
