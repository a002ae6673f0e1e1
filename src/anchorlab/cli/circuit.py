"""`anchorlab circuit`."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.cli.output import Json, check_page, print_json, print_table, print_text, progress
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.findings.findings import CircuitFigure
    from anchorlab.lens import Circuit
    from anchorlab.lens.circuits.search import Progress
    from anchorlab.training import TrainedRun

_MOST, _SOON = 100_000, 2.0  # sequences, seconds for which nobody needs a bar
_LOSSES = ("model_loss", "loss", "live_loss", "empty_loss", "rest_loss")
_SCORES = ("faithfulness", "completeness", "minimality")
_COLUMNS = ("layer", "head", "from", "to", "attention", "loss when cut\n(live)", "loss when cut\n(maps)")


def circuit(
    run: str,
    /,
    *,
    member: int = 0,
    step: int | None = None,
    threshold: float | None = None,
    split: str | None = None,
    sequences: int = 256,
    seed: int = 0,
    figure: Path | None = None,
    page: Path | None = None,
    store: Path | None = None,
    json: Json = False,
) -> None:
    """Find a member's circuit: the attention paths that suffice for its task, all other attention replaced.

    Parameters
    ----------
    run
        The first digits of an address from `anchorlab runs`.
    member
        Which member, counted from 0.
    step
        The checkpoint; by default the last.
    threshold
        What the circuit's losses are to stay below; by default the model's and 4 % of what attention does for it.
    split
        Where it is searched for and measured; by default the last split.
    sequences
        How many sequences to search on, and as many fresh ones to measure on.
    seed
        Of these sequences.
    figure
        Draw the circuit there, as PNG, PDF or SVG.
    page
        Write the attention viewer there, as one HTML file: this member at that checkpoint, or along training where none
        is named, with the circuit's paths to click.
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    json
        As JSON, for scripts.
    """
    if not 1 <= sequences <= _MOST:
        raise SpecError("sequences", f"cannot look at {sequences}", f"ask for 1 to {_MOST}")
    check_page(page, "page")

    from anchorlab.lens import find_circuit
    from anchorlab.runs import Store
    from anchorlab.training import TrainedRun

    if figure is not None:
        from anchorlab.report.figures import figure_kind

        figure_kind(figure)  # before the search, not after it
    began, trained = time.monotonic(), TrainedRun(Store(store).find(run))
    shown = None if step is None else [step]
    step = trained.checkpoints[-1] if step is None else step
    with _phases(quiet=json) as show:
        found = find_circuit(
            trained.ensemble(step),
            trained.experiment.task,
            member=member,
            threshold=threshold,
            split=split,
            sequences=sequences,
            seed=seed,
            progress=show,
        )
    title = f"{trained.run.label}: circuit of member {member} at step {step}"
    if figure is not None:
        from anchorlab.findings.provenance import provenance
        from anchorlab.report import save

        made = provenance("own", [trained], time.monotonic() - began)
        save(_drawn(trained, found, f"member {member}, step {step}"), made, figure)
    if page is not None:
        from anchorlab.report import show as viewer
        from anchorlab.report import view_run

        viewer(view_run(trained, members=[member], steps=shown, title=title, circuits=[found])).save(page)
    split = split or trained.experiment.task.splits[-1]
    if json:
        chosen = {"run": trained.run.address, "member": member, "step": step, "split": split}
        print_json({**chosen, "sequences": sequences, "seed": seed, **_told(found)})
        return
    rows = [
        (
            path.layer,
            path.head,
            path.rule.query,
            path.rule.key_text,
            path.attention,
            path.cut_loss,
            path.mapped_cut_loss,
        )
        for path in found.paths
    ]
    if rows:
        print_table(_COLUMNS, rows, title)
    else:
        print_text(f"{title}: no path is needed")
    print_text(f"over {sequences} sequences of {split!r}; threshold {found.threshold:.4g}")
    print_table(("loss of", ""), _loss_lines(found))
    print_text(", ".join(f"{name} {getattr(found, name):.3g}" for name in _SCORES))
    if found.unexplained:
        heads = ", ".join(f"{layer}.{head}" for layer, head in found.unexplained)
        print_text(f"not explained, and left as they are: {heads}")
    if figure is not None:
        print_text(f"figure: {figure}", wrapped=False)
    if page is not None:
        print_text(f"attention viewer: {page}", wrapped=False)


@contextmanager
def _phases(quiet: bool) -> "Iterator[Progress]":
    """Shows each phase of the search from its beginning, once it has taken a while."""
    from anchorlab.engine import Status

    soon, shown = time.monotonic() + _SOON, None
    with ExitStack() as phase:

        def show(what: str, done: int, of: int) -> None:
            nonlocal shown
            if time.monotonic() < soon:
                return
            if shown is None or not done:
                phase.close()
                shown = phase.enter_context(progress(quiet))
            shown(Status(of, done, what))

        yield show


def _told(found: "Circuit") -> dict[str, Any]:
    """Every number of a circuit, for JSON."""
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


def _loss_lines(found: "Circuit") -> list[tuple[str, float]]:
    return [
        ("the model as it is", found.model_loss),
        ("the circuit, by its maps", found.loss),
        ("the circuit, attending live", found.live_loss),
        ("uniform attention everywhere", found.empty_loss),
        ("the model without these paths", found.rest_loss),
    ]


def _drawn(trained: "TrainedRun", found: "Circuit", which: str) -> "CircuitFigure":
    from anchorlab.findings.circuit_panel import circuit_panel
    from anchorlab.findings.findings import CircuitFigure

    layers = 1 + max(layer for layer, _ in found.explanations)
    return CircuitFigure(
        title=f"{trained.run.label}: circuit",
        caption="The attention paths that suffice, and the live loss when each is cut.",
        panels=(circuit_panel(which, found, layers),),
    )
