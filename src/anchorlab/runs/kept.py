"""Write a finished run for publication: its metrics, and some of its weights, or readings in place of weights."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.runs.atomic_files import Fingerprint, write_file, write_json
from anchorlab.runs.cell import Cell
from anchorlab.runs.metrics import metrics_bytes
from anchorlab.runs.names import READINGS, checkpoint_name, write_manifest
from anchorlab.runs.run import Run
from anchorlab.runs.tensor_file import tensor_pieces

if TYPE_CHECKING:
    import polars
    import torch
    from jaxtyping import Shaped

_PRIVATE = ("host",)  # fields of `Run.made_by` that are not published


def keep(
    root: Path,
    cell: Cell,
    of: Run,
    metrics: "polars.DataFrame",
    checkpoints: "Iterable[tuple[int, Mapping[str, Shaped[torch.Tensor, 'member ...']]]]" = (),
    readings: "Mapping[str, Shaped[torch.Tensor, 'member ...']] | None" = None,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write a finished run, with only the given content, into the store at `root`; return the run's folder.

    Args:
        root: the folder of the store
        cell: the run to write: `of`, or its first members
        of: the finished run; where it was computed is copied, without names of hosts
        metrics: the table of metrics
        checkpoints: the weights to keep, by step
        readings: what the claims of a study read from the weights
        about: entries to add to every line of `Run.made_by`

    Errors: `StoreError` if a file cannot be written.
    """
    folder = root / cell.address
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Fingerprint] = {}
    for step, weights in checkpoints:
        (path := folder / checkpoint_name(step)).parent.mkdir(exist_ok=True)
        files[checkpoint_name(step)] = write_file(path.parent, path.name, tensor_pieces(weights))[1]
    if readings:
        files[READINGS] = write_file(folder, READINGS, tensor_pieces(readings))[1]
    files["metrics.parquet"] = write_file(folder, "metrics.parquet", [metrics_bytes(metrics)])[1]
    made_by = [{**{key: one[key] for key in one if key not in _PRIVATE}, **(about or {})} for one in of.made_by]
    record = {"address": cell.address, "label": cell.label, "spec": cell.spec, "environments": of.environments}
    files["spec.json"] = write_json(folder, "spec.json", {**record, "made_by": made_by})
    write_manifest(folder, files)
    return folder
