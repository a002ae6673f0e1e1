"""Jobs: what one process trains at a time, some members of one experiment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from anchorlab.runs import ChunkDirectory, Run
from anchorlab.training import ChunkKeeper, Experiment, Progress, TrainedRun, fit
from anchorlab.training.trainer import ExecutionName


@dataclass(frozen=True)
class Job:
    """Some members of one experiment, the chunk that keeps them, and how they are trained; it can be sent elsewhere.

    `start` is the run, and its members, with whose weights they start.
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
        """Trains it to its end, from its last state if it has one."""
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
    """Inside, torch computes with `count` threads: their number decides the last bits of a product."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
