"""Train chunks of runs in another process, which reads from the store what to train."""

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorlab.engine.job import Job, Piece
from anchorlab.engine.modules import import_modules, import_script, modules_of, script_of
from anchorlab.engine.plan import Plan
from anchorlab.engine.progress_notes import Noting
from anchorlab.errors import AnchorlabError, is_out_of_memory
from anchorlab.runs import Run, Store
from anchorlab.training.trained_run import experiment_of


@dataclass(frozen=True)
class ChunkTask:
    """The call that loky, Ray and Slurm execute; all plain values.

    Fields
        store: the folder of the store, which the process shares
        chunks: the address and the index of each chunk; several are trained as one ensemble
        device, keep_every: as for `fit`
        modules: Python modules that register the tasks and models of the runs
        folder: the folder from which they can be imported
        script: the file and the package of the script that does so, if one does
    """

    store: str
    chunks: tuple[tuple[str, int], ...]
    device: str
    keep_every: float
    modules: tuple[str, ...] = ()
    folder: str = "."
    script: tuple[str, str] | None = None

    @classmethod
    def of(cls, job: Job, device: str | None = None, modules: tuple[str, ...] = ()) -> "ChunkTask":
        """Return the task that trains a job, on its own device or another, with further modules to import."""
        found = [(piece.chunk.address, int(piece.chunk.path.name.removeprefix("chunk-"))) for piece in job.pieces]
        store = job.first.chunk.path.parents[2].absolute()
        experiments = [piece.experiment for piece in job.pieces]
        modules = tuple(dict.fromkeys([*modules, *sorted(modules_of(experiments))]))
        place = str(Path.cwd())
        how = device or job.first.device, job.first.keep_every
        return cls(str(store), tuple(found), *how, modules, place, script_of(experiments))

    def __call__(self) -> AnchorlabError | None:
        """Train the chunks; return the error that ended it, or None."""
        try:
            import_modules(self.modules, self.folder)
            if self.script is not None:
                import_script(*self.script)
            store = Store(self.store)
            found = [(Run(store.root / address), index) for address, index in self.chunks]
            pieces = [self._piece(store, run, index) for run, index in found if not run.finished]
            if pieces:
                Job(tuple(pieces)).train(Noting(pieces[0].chunk))
        except Exception as error:  # noqa: BLE001 - the driver reports it
            if isinstance(error, AnchorlabError) and type(error).__module__.startswith("anchorlab."):
                return error
            return AnchorlabError(reason_of(error))  # the driver may be unable to read a user's type
        return None

    def checkpoint(self, *_: Any) -> Any:
        """Return what Slurm starts again after the time limit: the same task, which goes on from its last state."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _piece(self, store: Store, run: Run, index: int) -> Piece:
        experiment = experiment_of(run)
        plan = Plan.read(run, run.recorded_plan(), len(experiment.members))
        return Piece.of(store, experiment, plan, index, self.device, self.keep_every)


def reason_of(error: Exception) -> str:
    """Return the reason for a failure, in one line; for foreign errors with the file and line."""
    if is_out_of_memory(error):
        return "out of memory; use fewer workers, or reduce the size of the work"
    if isinstance(error, AnchorlabError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    at = "".join(f" ({frame.filename}, line {frame.lineno})" for frame in last)
    return f"{type(error).__name__}: {error}{at}"
