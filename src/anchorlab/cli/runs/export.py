"""`anchorlab runs export`."""

from io import BytesIO
from pathlib import Path
from typing import Literal

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import counted, print_json, print_text, waiting
from anchorlab.errors import SpecError


def export_(
    *,
    out: Path,
    to: Literal["csv", "parquet", "tensorboard"],
    where: shared.Where = None,
    store: shared.StoreFolder = None,
    json: shared.Json = False,
) -> None:
    """Write the metrics of finished runs for other programs: one table, or TensorBoard's event files.

    Trackio imports event files with `trackio.import_tf_events`. For Weights & Biases, see the how-to about runs.

    Parameters
    ----------
    out
        File to write or to replace; for `tensorboard` a new folder, with a folder of event files for each member.
    to
        `csv` or `parquet`, with one row for each member, step and metric; or `tensorboard`.
    """
    from polars import col

    from anchorlab.runs.atomic_files import file_name, write_file
    from anchorlab.runs.tensorboard import write_events

    kept = shared.existing_store(store)
    with waiting("reading the metrics of the runs", quiet=json):
        metrics = kept.metrics(*where or ())
        labels = {entry.address: entry.name for entry in kept.select(*where or ())}
    if metrics.is_empty():
        raise SpecError("where", "the store has no runs that fulfil these conditions", "see `anchorlab runs`")
    runs = metrics["run"].n_unique()
    if to == "tensorboard":
        names = {run: f"{file_name(labels[run].replace('/', '-'))}-{run[:8]}" for run in metrics["run"].unique()}
        with waiting("writing the events", quiet=json):
            members = write_events(metrics, out, names)
        said = f"{counted(members, 'member')} of {counted(runs, 'run')} in {out}; tensorboard --logdir {out} shows them"
    else:
        if not out.parent.is_dir() or out.is_dir():
            raise SpecError("out", f"{out} is no file in a folder that exists", "give the path of a file")
        table, content = metrics.insert_column(1, col("run").replace_strict(labels).alias("label")), BytesIO()
        getattr(table, f"write_{to}")(content)
        write_file(out.parent, out.name, [content.getvalue()])
        said = f"{counted(len(metrics), 'row')} of {counted(runs, 'run')} in {out}"
    if json:
        print_json({"out": str(out), "to": to, "runs": runs, "rows": len(metrics)})
    else:
        print_text(said, wrapped=False)
