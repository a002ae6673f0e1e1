"""Jobs: some members of one experiment, trained by one process at a time."""

import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from anchorlab.errors import DamagedChunkError, StoreError
from anchorlab.models import denormals_as_zero
from anchorlab.runs import ChunkDirectory, Run
from anchorlab.runs.environment import environment, processor
from anchorlab.training import ChunkKeeper, Experiment, Progress, TrainedRun, fit
from anchorlab.training.evaluation import Row
from anchorlab.training.joined import Places, fit_joined
from anchorlab.training.trainer import ExecutionName


@dataclass(frozen=True)
class Job:
    """Some members of one experiment, the chunk that keeps them, and how to train them; can be pickled.

    Fields
        experiment: the experiment with these members only
        chunk: where states and results are kept
        device, execution, keep_every: as for `fit`
        threads: the number of threads that torch uses, which can change the last bits of a result
        start: the run whose final weights these members start from, and the members' indices there
        places: the members' places in a pass of fixed size that other runs share; None if they are trained alone
    """

    experiment: Experiment
    chunk: ChunkDirectory
    device: str
    execution: ExecutionName
    threads: int
    keep_every: float
    start: tuple[Path, range] | None = None
    places: Places | None = None

    def __str__(self) -> str:
        """Return the experiment's label and the members' seeds."""
        seeds = self.experiment.members.seeds
        return (
            f"{self.experiment.cell.label}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds[:10]))}"
            + (", ..." if len(seeds) > 10 else "")
        )

    @property
    def parts(self) -> "tuple[Job, ...]":
        """The jobs with one chunk each; here only this job."""
        return (self,)

    @property
    def finished(self) -> bool:
        """Whether the chunk is finished, or its whole run, which no longer has chunks."""
        return self.chunk.finished or Run(self.chunk.path.parent.parent).finished

    def train(self, report: Callable[[Progress], None]) -> None:
        """Train to the end: from the chunk's newest state, or from the first step if there is none or it is damaged.

        Errors: `InUseError` while another process works on the chunk.
        """
        if self.finished:
            return
        try:
            with self.chunk as chunk, with_threads(self.threads):
                try:
                    self._fit(chunk, report)
                except DamagedChunkError as error:
                    report(Progress(0, self.experiment.steps, note=self.restarts(error)))
                    chunk.restart()
                    self._fit(chunk, report)
        except StoreError:
            if not self.finished:  # if finished: another process did it and removed the files being written
                raise

    def restarts(self, error: DamagedChunkError) -> str:
        """Return a message that the job starts over because of a damaged file."""
        return f"{error.path}: {error.problem}; {self} starts over from its first step"

    def _fit(self, chunk: ChunkDirectory, report: Callable[[Progress], None]) -> None:
        if chunk.finished:
            return
        keeper = ChunkKeeper(chunk)
        if self.places is not None:
            parts, places, states = [self.experiment], [self.places], [keeper.load()]
            (rows,) = fit_joined(parts, places, [keeper], states, self.device, self.execution, report, self.keep_every)
            self.finish(rows)
            return
        start = None
        if self.start is not None:
            path, members = self.start
            start = TrainedRun(Run(path)).ensemble().select(members)
        trained = fit(self.experiment, self.device, self.execution, keeper, report, self.keep_every, start)
        self.finish(trained.rows)

    def finish(self, rows: Iterable[Row]) -> None:
        """Finish the chunk: write the measured metrics to it, and where it was trained."""
        self.chunk.finish({"rows": [list(row) for row in rows], "made_by": self._made_by()})

    def _made_by(self) -> dict[str, str | None]:
        """Return the host, the device and the version of torch that trained these members."""
        device = torch.cuda.get_device_name(self.device) if self.device.startswith("cuda") else processor()
        return {"host": platform.node(), "device": device, "torch": environment()["torch"]}


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
