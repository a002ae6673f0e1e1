"""`anchorlab landscape`."""

import time
from pathlib import Path
from typing import Annotated, Literal, get_args

from cyclopts import Parameter

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import check_file, print_json, print_table, print_text
from anchorlab.errors import SpecError

_MOST = 100_000  # sequences
_COLUMNS = ("member", "loss", "without\nunits", "threshold", "minimal\nsets", "smallest", "disjoint", "indispensable")


def landscape(
    run: shared.AnyRun,
    /,
    *,
    units: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    replace: Literal["mean", "resample", "zero"] = "mean",
    share: float = 0.1,
    step: shared.Step = None,
    split: str | None = None,
    sequences: int = 256,
    seed: int = 0,
    figure: Path | None = None,
    store: shared.ReadStore = None,
    json: shared.Json = False,
) -> None:
    """Measure the loss with every subset of a run's heads, and print the circuits of each member.

    Parameters
    ----------
    units
        `heads`, the default; `all` for heads and feed-forward layers; `roles` for every head at the positions of every
        role; or names of some, such as `0.0 0.1@anchor-1 1.mlp`.
    replace
        What replaces all other units: their mean over sequences, another sequence's value, or zero.
    share
        Rise of the loss within which a subset suffices, as a share of the effect of all units.
    split
        Split to measure on; by default the task's last.
    sequences
        Number of sequences.
    seed
        Seed of the sequences.
    figure
        Also draw the minimal sets to this PNG, PDF or SVG file.
    """
    if not 1 <= sequences <= _MOST:
        raise SpecError("sequences", f"cannot measure on {sequences}", f"give 1 to {_MOST}")
    check_file(figure, "figure")

    from anchorlab.lens import landscape as measure
    from anchorlab.lens.landscape.landscape import checked_share
    from anchorlab.lens.landscape.units import Kind
    from anchorlab.training import TrainedRun

    checked_share(share)
    began, trained = time.monotonic(), TrainedRun(shared.found_run(run, store))
    step = trained.checkpoints[-1] if step is None else step
    kind = "heads" if units is None else units[0] if len(units) == 1 and units[0] in get_args(Kind) else units
    found = measure(
        trained.ensemble(step),
        kind,
        replace,
        task=trained.experiment.task,
        split=split,
        sequences=sequences,
        seed=seed,
        progress=not json,
    )
    title = f"{trained.run.label}: minimal sets at step {step}"
    summary, minimal = found.summary(share), found.minimal(share)
    if figure is not None:
        from anchorlab.findings import provenance
        from anchorlab.report import save
        from anchorlab.studies.landscape_figures import minimal_figure

        drawn = minimal_figure(title, found, share, range(len(found.loss)))
        save(drawn, provenance("own", [trained], time.monotonic() - began), figure)
    split = split or trained.experiment.task.splits[-1]
    if json:
        chosen = {"run": trained.run.address, "step": step, "split": split, "sequences": sequences, "seed": seed}
        members = [
            {
                **row,
                "minimal_sets": minimal[member],
                "necessary_sets": necessary,
                "shapley": dict(zip(found.units, found.shapley[member].tolist(), strict=True)),
                "best_loss": found.best_loss[member].tolist(),
                "losses": found.loss[member].tolist(),
            }
            for member, (row, necessary) in enumerate(
                zip(summary.iter_rows(named=True), found.necessary(share), strict=True)
            )
        ]
        print_json({**chosen, "units": found.units, "replace": replace, "share": share, "members": members})
        return
    print_table(_COLUMNS, summary.rows(), title)
    print_text(f"{found.loss.shape[1]:,} subsets of {' '.join(found.units)}, {sequences} sequences of {split!r}")
    print_text(f"a set suffices if its loss rises by at most {share:.0%} of the effect of all units")
    if figure is not None:
        print_text(f"figure: {figure}", wrapped=False)
