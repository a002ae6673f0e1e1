"""Jobs: some members of one experiment, trained by one process at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from anchorlab.models import denormals_as_zero
from anchorlab.runs import ChunkDirectory, Run
from anchorlab.training import ChunkKeeper, Experiment, Progress, TrainedRun, fit
from anchorlab.training.trainer import ExecutionName


@dataclass(frozen=True)
class Job:
    """Some members of one experiment, the chunk that keeps them, and how to train them; can be pickled.

    Fields
        experiment: the experiment with these members only
        chunk: where states and results are kept
        device, execution, keep_every: as for `fit`
        threads: the number of threads that torch uses, which can change the last bits of a result
        work_per_step: operations of one member's step
        start: the run whose final weights these members start from, and the members' indices there
    """

    experiment: Experiment
    chunk: ChunkDirectory
    device: str
    execution: ExecutionName
    threads: int
    keep_every: float
    work_per_step: int
    start: tuple[Path, range] | None = None

    def train(self, report: Callable[[Progress], None]) -> None:
        """Train to the end, from the chunk's newest state if it has one."""
        with self.chunk as chunk, _threads(self.threads):
            if chunk.finished:
                return
            keeper = ChunkKeeper(chunk)
            start = None
            if self.start is not None:
                path, members = self.start
                start = TrainedRun(Run(path)).ensemble().select(members)
            trained = fit(self.experiment, self.device, self.execution, keeper, report, self.keep_every, start)
            chunk.finish({"rows": [list(row) for row in trained.rows]})


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads inside; one alone takes denormal numbers for zero.

    Further threads would not follow, and which numbers each of them computes can change when a run is resumed.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with denormals_as_zero() if count == 1 else nullcontext():
            yield
    finally:
        torch.set_num_threads(before)
