"""`anchorlab tour`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import check_file, print_json, print_table, print_text, waiting

if TYPE_CHECKING:
    from anchorlab.training import TrainedRun

_NAME = "anchor/identity"
_SEQUENCES = 200  # over which heads are scored and removed
_ANCHOR_AT = 3  # position of the anchor in the sequence that is shown
_SHADES = ((0.5, "bold green"), (0.2, "green"), (0.0, "dim"))  # the lowest attention weight of each style
_NEXT = {
    f"anchorlab circuit zoo:{_NAME}": "the attention paths that suffice",
    f"anchorlab inspect zoo:{_NAME}": "every detector on every head",
    "anchorlab runs --store zoo": "all trained models; in Python, al.zoo()",
    f"anchorlab show {_NAME}": "what the task asks",
    f"anchorlab study {_NAME}": "train it, and check the paper's claims",
}


def tour(*, store: shared.StoreFolder = None, page: Path | None = None, json: shared.Json = False) -> None:
    """Look inside a trained model: its attention, what each head does, and what removing it costs.

    The model comes with the package: nothing is trained or fetched.

    Parameters
    ----------
    page
        HTML file of the attention viewer; by default `tour.html` in the store.
    """
    check_file(page, "page")
    with waiting("loading libraries", quiet=json):
        from anchorlab.report import show
        from anchorlab.runs import Store
        from anchorlab.trained import zoo

    if page is None:
        page = Store(store).root / "tour.html"
        page.parent.mkdir(parents=True, exist_ok=True)
    run = zoo(_NAME)
    with waiting("looking inside", quiet=json):
        found = {**_look(run), "page": str(show(run).save(page).absolute())}
    if json:
        print_json(found)
    else:
        _print(found)


def _look(run: "TrainedRun") -> dict[str, Any]:
    """Return what is shown, of the first member, as JSON data; attention is `[layer head query key]`."""
    import polars as pl

    from anchorlab.lens import Intervention, describe, detect, effects, look

    task, ensemble = run.experiment.task, run.ensemble().select([0])
    batch = task.sample(task.splits[-1], _SEQUENCES, seed=0)
    record = look(ensemble, batch.inputs, ["blocks.*.attn.hook_pattern"], positions=batch.positions)
    removing = Intervention(site="blocks.*.attn.hook_z", rule="zero")
    removed = effects(
        ensemble, batch.inputs, batch.answers, removing, "head", positions=batch.positions, progress=False
    )
    accuracy = removed.table.filter(metric="accuracy")
    without = {(row["layer"], row["head"]): row["value"] for row in accuracy.iter_rows(named=True)}
    scores = detect(record, batch)
    fired = {key: one["value"].max() for key, one in scores.filter(pl.col("fires")).group_by("layer", "head")}
    chosen = int((batch.latents["anchor_positions"][:, 0] == _ANCHOR_AT).nonzero()[0])
    (example,) = task.render(batch.inputs[chosen : chosen + 1])
    chances = record["output"][0, chosen, -1].softmax(dim=-1)
    return {
        "model": f"zoo:{_NAME}",
        "spec": repr(run.experiment.model),
        "seed": run.experiment.members.seeds[0],
        "split": batch.split,
        "sequences": _SEQUENCES,
        "accuracy": accuracy["baseline"][0],
        "tokens": [token.text for token in example.tokens],
        "trace": list(example.trace),
        "answer": example.answer,
        "predicted": str(int(chances.argmax())),
        "probability": float(chances.max()),
        "attention": [record[site][0, chosen].tolist() for site in record if site != "output"],
        "heads": [
            {
                "layer": layer,
                "head": head,
                "does": label,
                "score": fired.get((layer, head)),
                "accuracy_without": without[layer, head],
            }
            for layer, head, label in describe(scores)["layer", "head", "label"].rows()
        ],
    }


def _print(found: dict[str, Any]) -> None:
    print_text(Text(f"{found['model']}, {found['spec']}, seed {found['seed']}", "bold"))
    said = f"{found['predicted']} with probability {found['probability']:.2f}"
    print_text(f"{' '.join(found['tokens'])} → {found['answer']}; the model says {said}")
    print_text("; ".join(found["trace"]))
    print_text("")
    print_text(Text("attention of each token (row) to itself and those before it (columns), in %", "bold"))
    print_text(_maps(found["tokens"], [head for layer in found["attention"] for head in layer]))
    print_text("")
    rows = [
        (f"{one['layer']}.{one['head']}", one["does"], one["score"], f"{one['accuracy_without']:.0%}")
        for one in found["heads"]
    ]
    print_table(("layer.head", "what it does", "score, 0 to 1", "accuracy without it"), rows)
    print_text(f"over {found['sequences']} sequences of {found['split']!r}; the whole model: {found['accuracy']:.0%}")
    print_text("")
    print_text(f"attention viewer: {found['page']}", wrapped=False)
    print_text("open it in a browser: the page runs the model on sequences that you type")
    print_text("")
    print_text(Text("next", "bold"))
    for command, what in _NEXT.items():
        print_text(f"{command:<37}  {what}")


def _maps(tokens: list[str], heads: list[list[list[float]]]) -> Text:
    """Return the attention of one head per layer side by side, with a row for each query."""
    lines = ["   " + "".join(f"{token:>4}" for token in tokens)] * len(heads)
    titles = [f"{f'layer {layer}':<{len(line)}}" for layer, line in enumerate(lines)]
    text = Text("  ".join(titles).rstrip() + "\n" + "  ".join(lines), no_wrap=True)
    for query, token in enumerate(tokens):
        for place, head in enumerate(heads):
            text.append(f"{'  ' if place else chr(10)}{token:>3}")
            for key, share in enumerate(head[query]):
                style = next(style for least, style in _SHADES if share >= least)
                text.append(f"{100 * share:4.0f}" if key <= query else "    ", style)
    return text
