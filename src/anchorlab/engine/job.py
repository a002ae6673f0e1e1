"""Jobs: chunks of runs that one process trains together, mostly a single chunk, or several tiny runs at once."""

import platform
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from anchorlab.engine.modules import import_modules, import_script
from anchorlab.engine.notes import Note
from anchorlab.engine.plan import Plan
from anchorlab.errors import AnchorlabError, DamagedChunkError, InUseError, StoreError, is_out_of_memory
from anchorlab.models.cpu import with_threads
from anchorlab.runs import ChunkDirectory, Run
from anchorlab.runs.environment import environment, processor
from anchorlab.training import ChunkKeeper, Ensemble, Experiment, Progress, TrainedRun, fit
from anchorlab.training.experiment import ARITHMETIC
from anchorlab.training.joined import fit_joined
from anchorlab.training.trained_run import experiment_of
from anchorlab.training.trainer import Trained, TrainingState

ChunkName = tuple[str, int]
"""The name of a chunk: the address of its run, and its index."""


@dataclass(frozen=True)
class Job:
    """Chunks that are trained together, given by name: the process that trains them reads the rest from the store.

    Each chunk keeps and resumes its own state, so it can also be trained alone.

    Fields
        store: the folder of the store, which all processes share
        chunks: the names of the chunks; if there are several, they have separate places in one pass
        device, keep_every: as for `fit`
        modules: Python modules that register the tasks and models of the runs
        folder: the folder from which they can be imported
        script: the file and the package of the script that registers some of them, if there is one
    """

    store: str
    chunks: tuple[ChunkName, ...]
    device: str
    keep_every: float
    modules: tuple[str, ...] = ()
    folder: str = "."
    script: tuple[str, str] | None = None

    @property
    def note(self) -> Note:
        """The note of the first chunk, which carries the progress of all chunks."""
        address, index = self.chunks[0]
        return Note(Path(self.store, address), index)

    def train(self, report: Callable[[Progress], None]) -> None:
        """Train all chunks to the end, each from its newest state; chunks at the same step go on together.

        Errors: the first error of any chunk; the others may then be unfinished too. `InUseError` if another job has
        begun one of the chunks meanwhile.
        """
        named = [(Run(Path(self.store, address)), index) for address, index in self.chunks]
        chunks = [_Chunk.of(run, index) for run, index in named if not run.finished and not run.chunk(index).finished]
        with ExitStack() as opened:
            try:
                for chunk in chunks:
                    opened.enter_context(chunk.files)
                    chunk.load(report)
                for _, alike in groupby(sorted(chunks, key=_Chunk.begins_at), _Chunk.begins_at):
                    self._train_together(list(alike), report)
            except StoreError as error:
                if all(chunk.run.finished or chunk.files.finished for chunk in chunks):  # by another attempt
                    return
                if (taken := next((chunk for chunk in chunks if chunk.files.taken_over), None)) is None:
                    raise
                problem = "another process has begun it meanwhile; run again once that has ended"
                raise InUseError(f"{taken.files.path}: {problem}") from error

    def __call__(self) -> AnchorlabError | None:
        """Train the chunks in another process, with notes for the driver; return the error that ended it, or None."""
        try:
            import_modules(self.modules, self.folder)
            if self.script is not None:
                import_script(*self.script)
            self.train(self.note.write)
        except Exception as error:  # noqa: BLE001 - the driver reports it
            if isinstance(error, AnchorlabError) and type(error).__module__.startswith("anchorlab."):
                return error
            return AnchorlabError(reason_of(error))  # the driver may be unable to read a user's type
        return None

    def checkpoint(self, *_: Any) -> Any:
        """Return the job that Slurm starts after the time limit: this one, which goes on from its last state."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _train_together(self, chunks: "Sequence[_Chunk]", report: Callable[[Progress], None]) -> None:
        first, keepers = chunks[0], [ChunkKeeper(chunk.files) for chunk in chunks]
        fitting: Callable[..., Trained] = partial(
            fit, device=self.device, execution=first.plan.execution, report=report, keep_every=self.keep_every
        )
        with with_threads(first.plan.threads):
            if first.plan.places is None:
                rows = [fitting(first.experiment, keeper=keepers[0], start=first.start()).rows]
            else:
                places = [chunk.plan.places for chunk in chunks if chunk.plan.places is not None]
                experiments, states = [chunk.experiment for chunk in chunks], [chunk.state for chunk in chunks]
                rows = fit_joined(experiments, places, keepers, states, fitting)
        device = torch.cuda.get_device_name(self.device) if self.device.startswith("cuda") else processor()
        made_with = {"torch": environment()["torch"], "arithmetic": ARITHMETIC}
        made_by = {"host": platform.node(), "device": device, **made_with}
        for chunk, own in zip(chunks, rows, strict=True):
            chunk.files.finish({"rows": [list(row) for row in own], "made_by": made_by})


@dataclass
class _Chunk:
    """A chunk in training: `experiment` is the experiment of its run with only the members of the chunk."""

    run: Run
    files: ChunkDirectory
    plan: Plan
    whole: Experiment
    members: range
    state: TrainingState | None = None

    @classmethod
    def of(cls, run: Run, index: int) -> "_Chunk":
        whole = experiment_of(run)
        plan = Plan.read(run, len(whole.members))
        first, last = plan.chunks[index][0], plan.chunks[index][-1]
        return cls(run, run.chunk(index), plan, whole, range(first, last + 1))

    @property
    def experiment(self) -> Experiment:
        return self.whole.take(self.members)

    def load(self, report: Callable[[Progress], None]) -> None:
        """Read the newest state; with a damaged one the chunk starts over."""
        try:
            self.state = ChunkKeeper(self.files).load()
        except DamagedChunkError as error:
            note = f"{error.path}: {error.problem}; {chunk_text(self.experiment)} starts over from its first step"
            report(Progress(0, self.experiment.steps, note=note))
            self.files.restart()

    def begins_at(self) -> tuple[int, str]:
        """Return the step and the execution from which training goes on."""
        return (0, "") if self.state is None else (self.state.step, self.state.execution)

    def start(self) -> Ensemble | None:
        """Return the final members of the run from which the chunk's members start; None if they start from no run."""
        if (start := self.whole.start) is None:
            return None
        return TrainedRun(Run(self.run.path.with_name(start.cell.address)), start).ensemble().select(self.members)


def chunk_text(experiment: Experiment) -> str:
    """Return the label of an experiment and the seeds of its members."""
    seeds = experiment.members.seeds
    named = ", ".join(map(str, seeds[:10])) + (", ..." if len(seeds) > 10 else "")
    return f"{experiment.cell.label}, seed{'s' if len(seeds) > 1 else ''} {named}"


def reason_of(error: Exception) -> str:
    """Return the reason for a failure, in one line; for foreign errors with the file and line."""
    if is_out_of_memory(error):
        return "out of memory; use fewer workers, or reduce the size of the work"
    if isinstance(error, AnchorlabError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    at = "".join(f" ({frame.filename}, line {frame.lineno})" for frame in last)
    return f"{type(error).__name__}: {error}{at}"
