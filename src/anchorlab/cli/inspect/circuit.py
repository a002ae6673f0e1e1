"""`anchorlab circuit`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import check_file, check_member, print_json, print_table, print_text
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.lens import Circuit

_MOST = 100_000  # sequences
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
    split: str | None = None,
    sequences: int = 256,
    seed: int = 0,
    figure: Path | None = None,
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
    split
        Split to search and measure on; by default the task's last.
    sequences
        Number of sequences to search on, and of fresh ones to measure on.
    seed
        Seed of the sequences.
    figure
        Also draw the circuit to this PNG, PDF or SVG file.
    page
        Also write the attention viewer with the circuit to this HTML file: at `--step`, or along training without it.
    """
    if not 1 <= sequences <= _MOST:
        raise SpecError("sequences", f"cannot measure on {sequences}", f"give 1 to {_MOST}")
    check_file(page, "page")
    check_file(figure, "figure")

    from anchorlab.lens import find_circuit
    from anchorlab.training import TrainedRun

    began, trained = time.monotonic(), TrainedRun(shared.found_run(run, store))
    check_member(member, len(trained.experiment.members))
    member = trained.best_member if member is None else member
    shown = None if step is None else [step]
    step = trained.checkpoints[-1] if step is None else step
    found = find_circuit(
        trained.ensemble(step),
        trained.experiment.task,
        member=member,
        threshold=threshold,
        split=split,
        sequences=sequences,
        seed=seed,
        progress=not json,
    )
    title = f"{trained.run.label}: circuit of member {member} at step {step}"
    if figure is not None:
        from anchorlab.findings import provenance
        from anchorlab.report import save
        from anchorlab.studies.circuit_panel import circuit_figure

        made = provenance("own", [trained], time.monotonic() - began)
        drawn = circuit_figure(f"{trained.run.label}: circuit", found, f"member {member}, step {step}")
        save(drawn, made, figure)
    if page is not None:
        from anchorlab.report import show as viewer
        from anchorlab.viewer import view_run

        viewer(view_run(trained, members=[member], steps=shown, title=title, circuits=[found])).save(page)
    split = split or trained.experiment.task.splits[-1]
    if json:
        chosen = {"run": trained.run.address, "member": member, "step": step, "split": split}
        print_json({**chosen, "sequences": sequences, "seed": seed, **_circuit_data(found)})
        return
    _print_circuit(found, title, f"over {sequences} sequences of {split!r}; threshold {found.threshold:.4g}")
    if figure is not None:
        print_text(f"figure: {figure}", wrapped=False)
    if page is not None:
        print_text(f"attention viewer: {page}", wrapped=False)


def _print_circuit(found: "Circuit", title: str, measured_on: str) -> None:
    """Print the paths, losses and scores of a circuit."""
    rows = [
        (one.layer, one.head, one.rule.query, one.rule.key_text, one.attention, one.cut_loss, one.mapped_cut_loss)
        for one in found.paths
    ]
    if rows:
        print_table(_COLUMNS, rows, title)
    else:
        print_text(f"{title}: no path is needed")
    print_text(measured_on)
    print_table(("loss of", ""), [(words, getattr(found, name)) for name, words in _LOSSES.items()])
    print_text(", ".join(f"{name} {getattr(found, name):.3g}" for name in _SCORES))
    if found.unexplained:
        heads = ", ".join(f"{layer}.{head}" for layer, head in found.unexplained)
        print_text(f"not explained and left unchanged: {heads}")


def _circuit_data(found: "Circuit") -> dict[str, Any]:
    """Return every number of a circuit as JSON data."""
    paths = [
        {
            "layer": path.layer,
            "head": path.head,
            "from": path.rule.query,
            "to": path.rule.key,
            "attention": path.attention,
            "cut_loss": path.cut_loss,
            "mapped_cut_loss": path.mapped_cut_loss,
        }
        for path in found.paths
    ]
    heads = [
        {"layer": layer, "head": head, "explanation": None if one is None else str(one)}
        for (layer, head), one in found.explanations.items()
    ]
    numbers = {name: getattr(found, name) for name in ("threshold", *_LOSSES, *_SCORES)}
    return {"paths": paths, "heads": heads, "roles": found.roles, **numbers}
