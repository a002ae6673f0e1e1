"""Pieces: what one process trains at a time, some members of one experiment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from anchorlab.runs import ChunkDirectory
from anchorlab.training import ChunkKeeper, Experiment, Progress, fit
from anchorlab.training.trainer import ExecutionName


@dataclass(frozen=True)
class Piece:
    """Some members of one experiment, the chunk that keeps them, and how they are trained; it can be sent elsewhere."""

    experiment: Experiment
    chunk: ChunkDirectory
    device: str
    execution: ExecutionName
    threads: int
    keep_every: float
    work_per_step: int

    def train(self, report: Callable[[Progress], None]) -> None:
        """Trains it to its end, from its last state if it has one."""
        with self.chunk as chunk, _threads(self.threads):
            if chunk.finished:
                return
            keeper = ChunkKeeper(chunk)
            trained = fit(self.experiment, self.device, self.execution, keeper, report, self.keep_every)
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
