"""Plan runs, divide them into pieces, let a backend train the pieces, and merge each run once its pieces are done."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from anchorlab.engine.backend import Backend
from anchorlab.engine.job import Job, Piece, compatible
from anchorlab.engine.modules import modules_of
from anchorlab.engine.plan import Plan, Plans
from anchorlab.errors import DamagedChunkError, IncompleteError
from anchorlab.progress import Report, Status
from anchorlab.runs import Store
from anchorlab.runs.atomic_files import damaged
from anchorlab.runs.plugins import note_modules
from anchorlab.training import Experiment, Progress, merge, work_per_step

Failure = tuple[str, Exception]
"""The name of a piece or run that failed, and its error."""


@dataclass
class _Open:
    """A run in training: its plan, the number of pieces left, and whether a piece has failed."""

    plan: Plan
    left: int
    failed: bool = False


class Tally:
    """Sums the progress of all jobs, and reports it.

    Args:
        todo: the experiments by address
        report: called with the status
    """

    def __init__(self, todo: Mapping[str, Experiment], report: Report | None) -> None:
        self.work = {address: work_per_step(one) for address, one in todo.items()}
        total = sum(self.work[address] * one.member_steps for address, one in todo.items())
        self.status = Status(total, cells=len(todo))
        self._report = report
        self._done: dict[tuple[str, str], int] = {}

    def show(self, label: str, note: str = "") -> None:
        """Report the status with a new label and a note for the user."""
        self.status.label, self.status.note = label, note
        if self._report is not None:
            self._report(self.status)

    def update(self, job: Job, progress: Progress) -> None:
        """Count a job's progress and keep its metrics; show its note instead if it has one."""
        if progress.metrics:
            self.status.metrics = dict(progress.metrics)
        if progress.note:
            self.show(job.label, progress.note)
        else:
            self.count(job, progress.step)

    def count(self, job: Job, step: int) -> None:
        """Count the first `step` steps of a job as done, and report the status.

        The steps in a chunk's first report were resumed from a kept state, so they also count in `Status.before`.
        """
        for piece in job.pieces:
            key = piece.chunk.address, piece.chunk.path.name
            work = step * len(piece.experiment.members) * self.work[piece.chunk.address]
            if key not in self._done:
                self.status.before += work
            self._done[key] = max(work, self._done.get(key, 0))
        self.status.done = sum(self._done.values())
        self.show(job.label)


class Pieces:
    """The pieces of all runs that the store lacks.

    A run is planned when its first piece is taken and merged after its last piece, so a killed study keeps its
    finished runs. If a piece fails, its run is not merged, and all other pieces go on.

    Args:
        store: where runs are kept
        todo: the experiments by address
        plans: how each experiment is trained; a run already started keeps its recorded plan
        device: where the jobs are trained
        keep_every: seconds between two kept states
        report: called with the status
        failures: earlier failures, to be reported together with new ones
    """

    def __init__(
        self,
        store: Store,
        todo: Mapping[str, Experiment],
        plans: Plans,
        device: str,
        keep_every: float,
        report: Report | None,
        failures: Iterable[Failure] = (),
    ) -> None:
        self.store, self.todo, self.plans, self.device, self.keep_every = store, todo, plans, device, keep_every
        self.tally = Tally(todo, report)
        self.failures = list(failures)
        self._runs: dict[str, _Open] = {}
        self._again: deque[Job] = deque()
        self._new = self._planned()

    def train(self, backend: Backend) -> None:
        """Train all pieces.

        Errors: `IncompleteError` if some pieces failed; their own error if all failed alike and no run was finished.
        """
        while True:
            backend.train(self._jobs(), self.tally.update, self._done)
            if not self._again:
                break
        if self.failures:
            if self.tally.status.cells_done == 0 and len({str(error) for _, error in self.failures}) == 1:
                raise self.failures[0][1]
            raise IncompleteError(self.failures) from self.failures[0][1]

    def _jobs(self) -> Iterator[Job]:
        """Yield first the pieces that are tried again, then the pieces of further runs."""
        while self._again:
            yield self._again.popleft()
        yield from self._new

    def _planned(self) -> Iterator[Job]:
        """Yield all jobs, longest runs first, so that all workers finish at about the same time."""
        note_modules(self.store.root, modules_of(self.todo.values()))
        work = {address: self.tally.work[address] * one.member_steps for address, one in self.todo.items()}
        for group in sorted(self.plans.together, key=lambda group: -sum(work[address] for address in group)):
            yield from compatible(piece for address in group for piece in self._of_run(address))

    def _of_run(self, address: str) -> list[Piece]:
        """Plan a run, and return its unfinished pieces."""
        experiment = self.todo[address]
        try:
            with self.store.open(experiment.cell) as directory:
                recorded = directory.plan(vars(self.plans.of[address]))
            plan = Plan.read(directory, recorded, len(experiment.members))
        except Exception as error:  # noqa: BLE001 - the other runs go on
            self.failures.append((experiment.cell.label, error))
            return []
        how = self.device, self.keep_every
        pieces = [Piece.of(self.store, experiment, plan, index, *how) for index in range(len(plan.chunks))]
        self._runs[address] = _Open(plan, len(pieces))
        left = []
        for piece in pieces:
            if piece.finished:
                self._done(Job((piece,)))
            else:
                left.append(piece)
        return left

    def _done(self, job: Job, error: Exception | None = None) -> None:
        """Record the end of a job: count its pieces, or note its failure; merge a run after its last piece."""
        if error is not None and len(job.pieces) > 1:
            self._again.extend(Job((piece,)) for piece in job.pieces)  # to be tried one by one
            return
        for piece in job.pieces:
            run = self._runs[piece.chunk.address]
            run.left -= 1
            if error is not None:
                run.failed = True
                self.failures.append((str(piece), error))
                continue
            self.tally.count(Job((piece,)), piece.experiment.steps)
            if run.left == 0 and not run.failed:
                self._merge(piece.chunk.address, run)

    def _merge(self, address: str, run: _Open) -> None:
        experiment = self.todo[address]
        try:
            with self.store.open(experiment.cell) as directory:
                merge(directory, experiment, run.plan.chunks)
        except DamagedChunkError as error:
            self.failures.append((experiment.cell.label, damaged(error.path, error.problem, address)))
        except Exception as error:  # noqa: BLE001 - the other runs go on
            self.failures.append((experiment.cell.label, error))
        else:
            self.tally.status.cells_done += 1
