"""`anchorlab landscape`."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Parameter

from anchorlab.cli.inspect.measured import Measured, check_sequences
from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import Rows, check_file, hand_out

if TYPE_CHECKING:
    from anchorlab.findings import MapFigure

_COLUMNS = ("member", "loss", "without\nunits", "threshold", "minimal\nsets", "smallest", "disjoint", "indispensable")


def landscape(
    run: shared.AnyRun,
    /,
    *,
    units: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    replace: Literal["mean", "resample", "zero"] = "mean",
    share: float = 0.1,
    step: shared.Step = None,
    split: shared.Split = None,
    sequences: shared.Sequences = 256,
    seed: shared.Seed = 0,
    figure: shared.Figure = None,
    store: shared.ReadStore = None,
    json: shared.Json = False,
) -> None:
    """Measure the loss with every subset of a run's heads, and print the circuits of each member.

    Parameters
    ----------
    units
        `heads`, the default; `all` for heads and feed-forward layers; `roles` for every head at the positions of every
        role; or the names of some units, such as `0.0 0.1@anchor-1 1.mlp`.
    replace
        What replaces all other units: their mean over sequences, another sequence's value, or zero.
    share
        Largest rise of the loss at which a subset still suffices, as a share of the effect of all units.
    """
    check_sequences(sequences)
    check_file(figure, "figure")

    from anchorlab.lens import landscape as measure
    from anchorlab.lens.landscape.landscape import check_share
    from anchorlab.lens.landscape.units import Kind

    check_share(share)
    of = Measured(run, store)
    step, split = of.at(step), split or of.task.splits[-1]
    on: dict[str, Any] = {"split": split, "sequences": sequences, "seed": seed}
    which = "heads" if units is None else units[0] if len(units) == 1 and units[0] in get_args(Kind) else units
    found = measure(of.trained.ensemble(step), which, replace, task=of.task, progress=not json, **on)
    title, summary = f"{of.label}: minimal sets at step {step}", found.summary(share)

    def drawn() -> "MapFigure":
        from anchorlab.studies.landscape_figures import minimal_figure

        return minimal_figure(title, found, share, range(len(found.loss)))

    def data() -> dict[str, Any]:
        sets = zip(summary.iter_rows(named=True), found.minimal(share), found.necessary(share), strict=True)
        members = [
            {
                **row,
                "minimal_sets": minimal,
                "necessary_sets": necessary,
                "shapley": dict(zip(found.units, found.shapley[member].tolist(), strict=True)),
                "best_loss": found.best_loss[member].tolist(),
                "losses": found.loss[member].tolist(),
            }
            for member, (row, minimal, necessary) in enumerate(sets)
        ]
        measured = {"run": of.address, "step": step, **on}
        return {**measured, "units": found.units, "replace": replace, "share": share, "members": members}

    of.draw(figure, drawn)
    shown = (
        Rows(_COLUMNS, summary.rows(), title),
        f"{found.loss.shape[1]:,} subsets of {' '.join(found.units)}, {sequences} sequences of {split!r}",
        f"a set suffices if its loss rises by at most {share:.0%} of the effect of all units",
    )
    hand_out(json, data, shown, figure=figure)
