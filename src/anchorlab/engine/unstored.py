"""Train what no store can keep, in this process, into a folder that goes when the run goes."""

import math
import shutil
import tempfile
import warnings
import weakref
from pathlib import Path

import torch

from anchorlab.engine.driver import Tally
from anchorlab.engine.job import with_threads
from anchorlab.engine.modules import refuse_in_import
from anchorlab.engine.plan import check_fits, checked_device, choose_workers
from anchorlab.engine.run import check_execution, divergence
from anchorlab.errors import DivergedWarning
from anchorlab.progress import Report
from anchorlab.runs import Store
from anchorlab.training import ChunkKeeper, Ensemble, Experiment, TrainedRun, fit, merge
from anchorlab.training.trainer import ExecutionName


def train_unstored(
    experiment: Experiment, device: str, execution: ExecutionName, report: Report, start: Ensemble | None
) -> TrainedRun:
    """Train an experiment and return its run, whose files are removed with it; `start` is what `experiment.start` gave.

    Errors: as `run`.
    """
    refuse_in_import()
    check_execution(execution)
    device = checked_device(device)
    check_fits([experiment], device)
    folder, name = Path(tempfile.mkdtemp(prefix="anchorlab-")), (experiment.cell.address, 0)
    directory = Store(folder).open(experiment.cell)
    weakref.finalize(directory, shutil.rmtree, folder, ignore_errors=True)
    tally = Tally({experiment.cell.address: experiment}, report)
    threads = choose_workers([experiment]) if device == "cpu" else torch.get_num_threads()
    with directory:
        with directory.chunk(0) as chunk, with_threads(threads):
            trained = fit(
                experiment,
                device,
                execution,
                ChunkKeeper(chunk),
                lambda progress: tally.update({name: experiment}, progress),
                math.inf,
                start,
            )
            chunk.finish({"rows": [list(row) for row in trained.rows]})
        merge(directory, experiment, [list(range(len(experiment.members)))])
    run = TrainedRun(directory, experiment)
    if (text := divergence([run])) is not None:
        warnings.warn(text, DivergedWarning, stacklevel=3)
    return run
