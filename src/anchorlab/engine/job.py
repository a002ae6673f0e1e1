"""Jobs: pieces of runs that one process trains together, mostly a single piece, or several tiny runs at once."""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import torch

from anchorlab.engine.plan import Plan
from anchorlab.errors import DamagedChunkError, StoreError
from anchorlab.models import denormals_as_zero
from anchorlab.runs import ChunkDirectory, Run, Store
from anchorlab.runs.environment import environment, processor
from anchorlab.training import ChunkKeeper, Experiment, Progress, TrainedRun, fit
from anchorlab.training.evaluation import Row
from anchorlab.training.experiment import ARITHMETIC
from anchorlab.training.joined import Places, fit_joined, share_a_pass
from anchorlab.training.trainer import ExecutionName, Trained, TrainingState

Hear = Callable[[Progress], None]


@dataclass(frozen=True)
class Piece:
    """Some members of one experiment, the chunk that keeps them, and how to train them.

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

    @classmethod
    def of(
        cls, store: Store, experiment: Experiment, plan: Plan, index: int, device: str, keep_every: float
    ) -> "Piece":
        """Return what trains chunk `index` of an experiment's run in a store."""
        members = range(plan.chunks[index][0], plan.chunks[index][-1] + 1)
        before = experiment.start
        start = None if before is None else (store.root / before.cell.address, members)
        chunk = store.open(experiment.cell).chunk(index)
        how = device, plan.execution, plan.threads, keep_every
        return cls(experiment.take(members), chunk, *how, start, plan.places)

    def __str__(self) -> str:
        """Return the experiment's label and the members' seeds."""
        seeds = self.experiment.members.seeds
        return (
            f"{self.experiment.cell.label}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds[:10]))}"
            + (", ..." if len(seeds) > 10 else "")
        )

    @property
    def finished(self) -> bool:
        """Whether the chunk is finished, or its whole run, which no longer has chunks."""
        return self.chunk.finished or Run(self.chunk.path.parent.parent).finished

    def newest(self, report: Hear) -> TrainingState | None:
        """Return the chunk's newest state, or None at its beginning; with a damaged state it starts over."""
        try:
            return ChunkKeeper(self.chunk).load()
        except DamagedChunkError as error:
            report(Progress(0, self.experiment.steps, note=self.restarts(error)))
            self.chunk.restart()
            return None

    def restarts(self, error: DamagedChunkError) -> str:
        """Return a message that the piece starts over because of a damaged file."""
        return f"{error.path}: {error.problem}; {self} starts over from its first step"

    def finish(self, rows: Iterable[Row]) -> None:
        """Finish the chunk: write the measured metrics to it, and the host, device, torch and arithmetic."""
        device = torch.cuda.get_device_name(self.device) if self.device.startswith("cuda") else processor()
        made_with = {"torch": environment()["torch"], "arithmetic": ARITHMETIC}
        made_by = {"host": platform.node(), "device": device, **made_with}
        self.chunk.finish({"rows": [list(row) for row in rows], "made_by": made_by})


@dataclass(frozen=True)
class Job:
    """Pieces that are trained together. Each keeps and resumes its own chunk, so it can also be trained alone.

    Fields
        pieces: one piece, or several whose experiments can be joined and whose places in a pass do not overlap, with
            equal device, execution and threads
    """

    pieces: tuple[Piece, ...]

    @property
    def first(self) -> Piece:
        """The first piece, which stands for all where they are equal."""
        return self.pieces[0]

    @property
    def label(self) -> str:
        """The first experiment's label, and how many others there are."""
        label, others = self.first.experiment.cell.label, len(self.pieces) - 1
        return f"{label} and {others} other{'s' if others > 1 else ''}" if others else label

    def train(self, report: Hear) -> None:
        """Train all pieces to the end, each from its chunk's newest state; those at the same step go on together.

        Errors: the first error of any piece; the others may then be unfinished too.
        """
        try:
            with ExitStack() as opened, with_threads(self.first.threads):
                found = []
                for piece in self.pieces:
                    if not piece.finished:
                        opened.enter_context(piece.chunk)
                        found.append((piece, piece.newest(report)))
                for pieces, states in _equally_new(found):
                    self._train_together(pieces, states, report)
        except StoreError:
            if not all(piece.finished for piece in self.pieces):  # else a later attempt took over the files
                raise

    def _train_together(self, pieces: Sequence[Piece], states: Sequence[TrainingState | None], report: Hear) -> None:
        first, keepers = pieces[0], [ChunkKeeper(piece.chunk) for piece in pieces]
        fitting: Callable[..., Trained] = partial(
            fit, device=first.device, execution=first.execution, report=report, keep_every=first.keep_every
        )
        if first.places is None:
            start = None
            if first.start is not None:
                path, members = first.start
                start = TrainedRun(Run(path)).ensemble().select(members)
            first.finish(fitting(first.experiment, keeper=keepers[0], start=start).rows)
            return
        places = [piece.places for piece in pieces if piece.places is not None]
        trained = fit_joined([piece.experiment for piece in pieces], places, keepers, states, fitting)
        for piece, rows in zip(pieces, trained, strict=True):
            piece.finish(rows)


def compatible(pieces: Iterable[Piece]) -> Iterator[Job]:
    """Yield jobs of pieces that can be trained together: their places in a pass do not overlap."""
    found: list[list[Piece]] = []
    for piece in pieces:
        group = next((group for group in found if all(_fits(piece, other) for other in group)), None)
        if group is None:
            found.append([piece])
        else:
            group.append(piece)
    yield from (Job(tuple(group)) for group in found)


def _fits(piece: Piece, other: Piece) -> bool:
    """Return whether two pieces can share a pass, given that their experiments can be joined."""
    return share_a_pass(piece.places, len(piece.experiment.members), other.places, len(other.experiment.members))


def _equally_new(
    found: Sequence[tuple[Piece, TrainingState | None]],
) -> Iterator[tuple[list[Piece], list[TrainingState | None]]]:
    """Yield groups of pieces with states of the same step and execution, and these states."""

    def key(one: tuple[Piece, TrainingState | None]) -> tuple[int, str]:
        state = one[1]
        return (0, "") if state is None else (state.step, state.execution)

    for _, group in groupby(sorted(found, key=key), key):
        pieces, states = zip(*group, strict=True)
        yield list(pieces), list(states)


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
