"""`anchorlab circuit`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.cli.inspect.measured import Measured, check_sequences
from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import Rows, check_file, hand_out

if TYPE_CHECKING:
    from anchorlab.findings import CircuitFigure
    from anchorlab.lens import Circuit
    from anchorlab.lens.circuits.circuit import CircuitPath

_LOSSES = {
    "model_loss": "the model as it is",
    "loss": "the circuit, by its maps",
    "live_loss": "the circuit, attending live",
    "empty_loss": "uniform attention everywhere",
    "rest_loss": "the model without these paths",
}
_SCORES = ("faithfulness", "completeness", "minimality")
_COLUMNS = ("layer", "head", "from", "to", "attention", "loss when cut\n(live)", "loss when cut\n(maps)")


def circuit(
    run: shared.AnyRun,
    /,
    *,
    member: int | None = None,
    step: shared.Step = None,
    threshold: float | None = None,
    split: shared.Split = None,
    sequences: int = 256,
    seed: shared.Seed = 0,
    figure: shared.Figure = None,
    page: Path | None = None,
    store: shared.ReadStore = None,
    json: shared.Json = False,
) -> None:
    """Find a member's circuit: the attention paths that suffice for its task when all other attention is replaced.

    Parameters
    ----------
    member
        Index of the member, from 0; by default the one with the lowest loss.
    threshold
        Largest loss of the circuit; by default the model's loss plus 4 % of attention's effect on the loss.
    sequences
        Number of sequences to search on, and of fresh ones to measure on.
    page
        Also write the attention viewer with the circuit to this HTML file: at `--step`, or along training without it.
    """
    check_sequences(sequences)
    check_file(page, "page")
    check_file(figure, "figure")

    from anchorlab.lens import find_circuit

    of = Measured(run, store, member)
    member = of.trained.best_member if member is None else member
    shown, step, split = (None if step is None else [step]), of.at(step), split or of.task.splits[-1]
    on: dict[str, Any] = {"split": split, "sequences": sequences, "seed": seed}
    found = find_circuit(
        of.trained.ensemble(step), of.task, member=member, threshold=threshold, progress=not json, **on
    )
    title = f"{of.label}: circuit of member {member} at step {step}"

    def drawn() -> "CircuitFigure":
        from anchorlab.studies.circuit_panel import circuit_figure

        return circuit_figure(f"{of.label}: circuit", found, f"member {member}, step {step}")

    of.draw(figure, drawn)
    if page is not None:
        from anchorlab.report import show as viewer
        from anchorlab.viewer import view_run

        viewer(view_run(of.trained, members=[member], steps=shown, title=title, circuits=[found])).save(page)
    chosen = {"run": of.address, "member": member, "step": step, **on}
    over = f"over {sequences} sequences of {split!r}; threshold {found.threshold:.4g}"
    hand_out(json, lambda: chosen | _data(found), _shown(found, title, over), figure=figure, attention_viewer=page)


def _shown(found: "Circuit", title: str, measured_on: str) -> Iterator[str | Rows]:
    rows = [tuple({**_path(one), "to": one.rule.key_text}.values()) for one in found.paths]
    kept = " next to the heads that are left unchanged" if found.unexplained else ""
    yield Rows(_COLUMNS, rows, title) if rows else f"{title}: no path is needed{kept}"
    yield measured_on
    yield Rows(("loss of", ""), [(words, getattr(found, name)) for name, words in _LOSSES.items()])
    yield ", ".join(f"{name} {getattr(found, name):.3g}" for name in _SCORES)
    if found.unexplained:
        yield f"not explained and left unchanged: {', '.join(f'{layer}.{head}' for layer, head in found.unexplained)}"


def _path(one: "CircuitPath") -> dict[str, Any]:
    return {
        "layer": one.layer,
        "head": one.head,
        "from": one.rule.query,
        "to": one.rule.key,
        "attention": one.attention,
        "cut_loss": one.cut_loss,
        "mapped_cut_loss": one.mapped_cut_loss,
    }


def _data(found: "Circuit") -> dict[str, Any]:
    heads = [
        {"layer": layer, "head": head, "explanation": None if one is None else str(one)}
        for (layer, head), one in found.explanations.items()
    ]
    numbers = {name: getattr(found, name) for name in ("threshold", *_LOSSES, *_SCORES)}
    return {"paths": list(map(_path, found.paths)), "heads": heads, "roles": found.roles, **numbers}
