"""The zoo: small ensembles that are trained already, as runs that the package ships."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from anchorlab.runs import Store
from anchorlab.spec import check_known
from anchorlab.training import TrainedRun

if TYPE_CHECKING:
    import polars

ROOT = Path(__file__).parent / "zoo"
"""The store of the zoo's runs. It is read-only, so that reading leaves nothing in the folder of the package."""

FILE = Path(__file__).parent / "zoo.json"
"""The list of the zoo's runs, with their addresses; `docs/gallery/zoo.py` writes it and the store."""


@overload
def zoo(name: None = None) -> "polars.DataFrame": ...
@overload
def zoo(name: str) -> TrainedRun: ...
def zoo(name: str | None = None) -> "TrainedRun | polars.DataFrame":
    """Open a trained ensemble that the package ships, as a run; without a name, list them all.

        run = al.zoo("anchor/identity")
        al.look(run, run.experiment.task.sample("test", 5, seed=0), record=["blocks.*.attn.hook_pattern"])

    The members have the seeds 1000 and up. Nothing is trained, fetched or written. On the command line, `zoo:NAME`
    is the run, as in `anchorlab inspect zoo:anchor/identity`, and `--store zoo` the store.

    Args:
        name: the name of its task, such as `anchor/identity`; None lists all

    Returns: the run; or a frame with one row per run and the columns

    | column | |
    |---|---|
    | `name` | the name to open it by: its task's |
    | `study` | the study whose quick profile trains it; None for a run trained only for the zoo |
    | `model` | the kind of model |
    | `members`, `checkpoints` | the numbers of members and checkpoints |
    | `split`, `accuracy` | the accuracy on that split at the end, mean over members; None where answers are vectors |
    | `loss` | the loss on that split at the end |
    | `weights` | the precision of the stored weights: `bfloat16` only where rounding changed no final answer |
    | `MB` | the size of its files |

    Errors: `SpecError` for an unknown name, with the nearest known one.
    """
    known: list[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
    if name is None:
        import polars as pl

        return pl.DataFrame([{column: value for column, value in one.items() if column != "run"} for one in known])
    addresses = {one["name"]: one["run"] for one in known}
    check_known("name", name, addresses, "model of the zoo")
    return TrainedRun(Store(ROOT).find(addresses[name]))
