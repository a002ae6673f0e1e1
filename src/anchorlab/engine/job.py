"""Jobs: chunks of runs that one process trains together, mostly a single chunk, or several tiny runs at once."""

import platform
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
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
from anchorlab.models import denormals_as_zero
from anchorlab.runs import ChunkDirectory, Run
from anchorlab.runs.environment import environment, processor
from anchorlab.training import ChunkKeeper, Ensemble, Experiment, Progress, TrainedRun, fit
from anchorlab.training.experiment import ARITHMETIC
from anchorlab.training.joined import fit_joined
from anchorlab.training.trained_run import experiment_of
from anchorlab.training.trainer import Trained, TrainingState


@dataclass(frozen=True)
class Job:
    """Chunks that are trained together, as plain values: whoever trains them reads the rest from the store.

    Each keeps and resumes its own chunk, so it can also be trained alone.

    Fields
        store: the folder of the store, which all processes share
        chunks: the address and the index of each chunk; several have places in one pass, which do not overlap
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

    @property
    def note(self) -> Note:
        """The note of the first chunk, which stands for all."""
        address, index = self.chunks[0]
        return Note(Path(self.store, address), index)

    def train(self, report: Callable[[Progress], None]) -> None:
        """Train all chunks to the end, each from its newest state; those at the same step go on together.

        Errors: the first error of any chunk; the others may then be unfinished too. `InUseError` if another job has
        begun one of the chunks meanwhile.
        """
        chunks = [(Run(Path(self.store, address)), index) for address, index in self.chunks]
        parts = [_Part.of(run, index) for run, index in chunks if not run.finished and not run.chunk(index).finished]
        with ExitStack() as opened:
            try:
                for part in parts:
                    opened.enter_context(part.chunk)
                    part.state = part.newest(report)
                for together in _equally_new(parts):
                    self._train_together(together, report)
            except StoreError as error:
                if all(part.run.finished or part.chunk.finished for part in parts):  # by another attempt
                    return
                if (taken := next((part for part in parts if part.chunk.taken_over), None)) is None:
                    raise
                problem = "another process has begun it meanwhile; run again once that has ended"
                raise InUseError(f"{taken.chunk.path}: {problem}") from error

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
        """Return what Slurm starts again after the time limit: the same job, which goes on from its last state."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _train_together(self, parts: Sequence["_Part"], report: Callable[[Progress], None]) -> None:
        first, keepers = parts[0], [ChunkKeeper(part.chunk) for part in parts]
        fitting: Callable[..., Trained] = partial(
            fit, device=self.device, execution=first.plan.execution, report=report, keep_every=self.keep_every
        )
        with with_threads(first.plan.threads):
            if first.plan.places is None:
                rows = [fitting(first.experiment, keeper=keepers[0], start=first.started_from()).rows]
            else:
                places = [part.plan.places for part in parts if part.plan.places is not None]
                experiments, states = [part.experiment for part in parts], [part.state for part in parts]
                rows = fit_joined(experiments, places, keepers, states, fitting)
        device = torch.cuda.get_device_name(self.device) if self.device.startswith("cuda") else processor()
        made_with = {"torch": environment()["torch"], "arithmetic": ARITHMETIC}
        made_by = {"host": platform.node(), "device": device, **made_with}
        for part, of_part in zip(parts, rows, strict=True):
            part.chunk.finish({"rows": [list(row) for row in of_part], "made_by": made_by})


@dataclass
class _Part:
    """A chunk that is trained: its run, its members, the experiment with these only, its plan, its newest state.

    `start` is the run whose members, with the same indices, these ones start from.
    """

    run: Run
    chunk: ChunkDirectory
    experiment: Experiment
    members: range
    plan: Plan
    start: Run | None
    state: TrainingState | None = None

    @classmethod
    def of(cls, run: Run, index: int) -> "_Part":
        experiment = experiment_of(run)
        plan = Plan.read(run, len(experiment.members))
        members = range(plan.chunks[index][0], plan.chunks[index][-1] + 1)
        start = None if experiment.start is None else Run(run.path.with_name(experiment.start.cell.address))
        return cls(run, run.chunk(index), experiment.take(members), members, plan, start)

    def newest(self, report: Callable[[Progress], None]) -> TrainingState | None:
        """Return the chunk's newest state, or None at its beginning; with a damaged state it starts over."""
        try:
            return ChunkKeeper(self.chunk).load()
        except DamagedChunkError as error:
            note = f"{error.path}: {error.problem}; {piece_name(self.experiment)} starts over from its first step"
            report(Progress(0, self.experiment.steps, note=note))
            self.chunk.restart()
            return None

    def started_from(self) -> Ensemble | None:
        """Return the members that these ones start from, at their end; None if they start anew."""
        return None if self.start is None else TrainedRun(self.start).ensemble().select(self.members)


def piece_name(experiment: Experiment) -> str:
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


def _equally_new(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yield groups of parts with states of the same step and execution."""

    def key(part: _Part) -> tuple[int, str]:
        return (0, "") if part.state is None else (part.state.step, part.state.execution)

    for _, group in groupby(sorted(parts, key=key), key):
        yield list(group)


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads inside `with`; with one thread, denormals are flushed to zero.

    With several threads they are not: the setting would not reach the other threads, and which numbers each of them
    computes can change when a run is resumed.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with denormals_as_zero() if count == 1 else nullcontext():
            yield
    finally:
        torch.set_num_threads(before)
