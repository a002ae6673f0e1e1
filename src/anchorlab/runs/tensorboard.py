"""Write metrics as TensorBoard's event files, which other programs read too."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.errors import SpecError, from_extra

if TYPE_CHECKING:
    import polars


def write_events(metrics: "polars.DataFrame", folder: Path, names: Mapping[str, str]) -> int:
    """Write one folder of events for each member, `NAME/seed-SEED`, and return how many were written.

    A scalar's tag is `SPLIT/METRIC`, followed by the group and the weight edit unless these are `all` and `none`.
    Members of one seed have their index in the name of the folder. Nothing is sent anywhere.

    Args:
        metrics: a table as `Store.metrics` returns it
        folder: where to write; must not exist
        names: the name of each run's folder, by the run's address

    Errors: `SpecError` if the folder exists, or if TensorBoard is not installed.
    """
    if folder.exists():
        raise SpecError("out", f"{folder} exists", "give a new folder")
    with from_extra("tensorboard", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    found = metrics.partition_by("run", "member", maintain_order=True)
    seeds = metrics.select("run", "member", "seed").unique().group_by("run", "seed").len()
    shared = {(run, seed) for run, seed, members in seeds.iter_rows() if members > 1}
    for one in found:
        run, member, seed = one.select("run", "member", "seed").row(0)
        suffix = f"-member-{member}" if (run, seed) in shared else ""
        with SummaryWriter(str(folder / names[run] / f"seed-{seed}{suffix}")) as writer:
            rows = one.sort("step").select("split", "metric", "group", "edit", "step", "value")
            for split, metric, group, edit, step, value in rows.iter_rows():
                further = [part for part, plain in ((group, "all"), (edit, "none")) if part != plain]
                writer.add_scalar("/".join([split, metric, *further]), value, step)
    return len(found)
