"""Train experiments: divide them into jobs, let processes train the jobs, and merge each run after its last chunk."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from anchorlab.engine.job import ChunkName, Job, chunk_text, reason_of
from anchorlab.engine.modules import imported, modules_of, script_of
from anchorlab.engine.notes import Note
from anchorlab.engine.plan import Plan, Plans
from anchorlab.engine.pool import PAUSE, Backend
from anchorlab.errors import AnchorlabError, DamagedChunkError, is_out_of_memory
from anchorlab.progress import Report, Status
from anchorlab.runs import Run, Store
from anchorlab.runs.atomic_files import damaged
from anchorlab.runs.plugins import note_modules
from anchorlab.training import Experiment, Progress, merge, work_per_step
from anchorlab.training.joined import share_a_pass

Failure = tuple[str, Exception]
"""A chunk or a run that failed, in words, and its error."""


class Tally:
    """Sums the progress of the chunks of all experiments in `todo`, by address, and reports the sum."""

    def __init__(self, todo: Mapping[str, Experiment], report: Report) -> None:
        self.work = {address: work_per_step(one) for address, one in todo.items()}
        self.status = Status(sum(self.work[each] * one.member_steps for each, one in todo.items()), cells=len(todo))
        self._report = report
        self._done: dict[ChunkName, int] = {}
        self.training: dict[ChunkName, Experiment] = {}  # those that have begun and not ended
        self._metrics = {address: dict[int, Mapping[str, float]]() for address in todo}  # newest of each chunk

    def update(self, chunks: Mapping[ChunkName, Experiment], progress: Progress) -> None:
        """Count the progress of chunks that are trained together, keep its metrics, and report the status.

        The label names the first experiment of `todo` that is in training, and the metrics are means over its chunks.
        A note is reported instead of the progress. The steps in a chunk's first report were resumed from a kept state,
        so they also count in `Status.before`. The values of `chunks` are experiments with only the chunk's members.
        """
        ended = chunks if progress.step == progress.steps else {}
        self.training = {each: one for each, one in {**self.training, **chunks}.items() if each not in ended}
        labels = {address: one.cell.label for (address, _), one in (self.training or chunks).items()}
        first, others = next(each for each in self.work if each in labels), len(labels) - 1
        self.status.label = labels[first] + (f" and {others} other{'s' if others > 1 else ''}" if others else "")
        self.status.note = progress.note
        for address, index in chunks if progress.metrics else ():
            self._metrics[address][index] = progress.metrics
        newest = self._metrics[first]
        names = next(iter(newest.values()), {})
        self.status.metrics = {name: fmean(one[name] for one in newest.values() if name in one) for name in names}
        for chunk, one in chunks.items() if not progress.note else ():
            work = progress.step * len(one.members) * self.work[chunk[0]]
            if chunk not in self._done:
                self.status.before += work
            self._done[chunk] = max(work, self._done.get(chunk, 0))
        self.status.done = sum(self._done.values())
        self._report(replace(self.status))  # a bar compares it with the one before


class Driver:
    """Trains the runs that a store lacks.

    A run is opened when its first chunk is taken and merged after its last one, so a killed study keeps its finished
    runs. If a chunk fails, its run is not merged, and everything else goes on.

    Args:
        store: where runs are kept; its lock is held
        todo: the experiments by address; what they start from is trained
        plans: how each experiment is trained; a run already started keeps its recorded plan
        backend: where they are trained; this process, on `device`, if None
        keep_every, report: as for `run`

    Fields
        failures: each chunk or run that failed, and why
        failed: the addresses of the runs that failed
    """

    def __init__(
        self,
        store: Store,
        todo: Mapping[str, Experiment],
        plans: Plans,
        backend: Backend | None,
        device: str,
        keep_every: float,
        report: Report,
    ) -> None:
        self.store, self.todo, self.plans, self.backend = store, todo, plans, backend
        self.failures: list[Failure] = []
        self.failed: set[str] = set()
        self.tally = Tally(todo, self._reported)
        self._report, self._broken = report, False
        self._plans: dict[str, Plan] = {}  # the recorded plans of the runs in training
        self._chunks: dict[ChunkName, Experiment] = {}  # experiments with only the chunk's members
        self._left: Counter[str] = Counter()  # chunks left, by run
        modules = (*(() if backend is None else backend.modules), *imported, *modules_of(todo.values()))
        self._job = partial(
            Job,
            str(store.root),
            device=device if backend is None else backend.device,
            keep_every=keep_every,
            modules=tuple(dict.fromkeys(modules)),
            folder=str(Path.cwd()),
            script=script_of(todo.values()),
        )
        self._again: deque[Job] = deque()
        self._new = self._jobs()

    def train(self) -> None:
        """Train everything. Errors: any error of `report` or of the whole backend; training then stops."""
        note_modules(self.store.root, modules_of(self.todo.values()))
        if self.backend is None:
            self._train_here()
        else:
            self._train_on(self.backend)

    def _train_here(self) -> None:
        while jobs := self._take(1):
            (job,) = jobs
            try:
                job.train(partial(self._hear, job))
            except Exception as error:  # the other jobs go on
                if self._broken:
                    raise
                self._end(job, AnchorlabError(reason_of(error)) if is_out_of_memory(error) else error)
            else:
                self._end(job)

    def _train_on(self, backend: Backend) -> None:
        self._report(Status(0, label=backend.label))
        running: dict[Any, tuple[Job, Note]] = {}
        with backend.pool() as pool:
            try:
                while True:
                    jobs = self._take(pool.slots - len(running))
                    notes = [job.note for job in jobs]
                    for note in notes:
                        note.forget()
                    running |= zip(pool.submit(jobs), zip(jobs, notes, strict=True), strict=True) if jobs else ()
                    if not running:
                        break
                    ended = pool.ended(list(running), PAUSE)
                    for job, note in running.values():
                        for progress in note.news():
                            self._hear(job, progress)
                    for task, error in ended:
                        self._end(running.pop(task)[0], error)
            finally:
                pool.stop(list(running))

    def _take(self, count: int) -> list[Job]:
        """Return the next jobs: first chunks that are tried again, then those of further runs."""
        again = [self._again.popleft() for _ in range(min(count, len(self._again)))]
        return again + list(islice(self._new, count - len(again)))

    def _jobs(self) -> Iterator[Job]:
        """Yield all jobs, the longest first, so that all workers finish at about the same time."""
        work = {address: self.tally.work[address] * one.member_steps for address, one in self.todo.items()}
        for addresses in sorted(self.plans.together, key=lambda each: -sum(work[address] for address in each)):
            jobs: list[list[ChunkName]] = []
            for chunk in [chunk for address in addresses for chunk in self._open(address)]:
                fitting = (each for each in jobs if all(self._can_share(chunk, other) for other in each))
                if (found := next(fitting, None)) is None:
                    jobs.append([chunk])
                else:
                    found.append(chunk)
            yield from (self._job(tuple(chunks)) for chunks in jobs)

    def _can_share(self, one: ChunkName, other: ChunkName) -> bool:
        """Return whether two chunks can be trained together, by the recorded plans of their runs."""
        places = [self._plans[address].places for address, _ in (one, other)]
        sizes = [len(self._chunks[chunk].members) for chunk in (one, other)]
        return share_a_pass(places[0], sizes[0], places[1], sizes[1])

    def _open(self, address: str) -> list[ChunkName]:
        """Record the plan of a run unless it has one, and return its unfinished chunks."""
        experiment = self.todo[address]
        try:
            with self.store.open(experiment.cell) as directory:
                directory.plan(vars(self.plans.of[address]))
            plan = Plan.read(directory, len(experiment.members))
        except Exception as error:  # noqa: BLE001 - the other runs go on
            self._fail(address, experiment.cell.label, error)
            return []
        self._plans[address], self._left[address] = plan, len(plan.chunks)
        for index, members in enumerate(plan.chunks):
            self._chunks[address, index] = experiment.take(range(members[0], members[-1] + 1))
        finished = [index for index in range(len(plan.chunks)) if directory.chunk(index).finished]
        for index in finished:
            self._end(self._job(((address, index),)))
        return [(address, index) for index in range(len(plan.chunks)) if index not in finished]

    def _reported(self, status: Status) -> None:
        self._broken = True
        self._report(status)
        self._broken = False

    def _hear(self, job: Job, progress: Progress) -> None:
        self.tally.update({chunk: self._chunks[chunk] for chunk in job.chunks}, progress)

    def _end(self, job: Job, error: Exception | None = None) -> None:
        """Record the end of a job: count its chunks, or note its failure; merge a run after its last chunk."""
        if error is not None and len(job.chunks) > 1:
            self._again.extend(self._job((chunk,)) for chunk in job.chunks)  # to be tried one by one
            return
        for address, index in job.chunks:
            experiment = self._chunks[address, index]
            if error is None and not Run(self.store.root / address).chunk(index).finished:
                self._again.append(self._job(((address, index),)))  # an earlier command's job ended without it
                continue
            self._left[address] -= 1
            if error is not None:
                self.tally.training.pop((address, index), None)
                self._fail(address, chunk_text(experiment), error)
                continue
            self.tally.update({(address, index): experiment}, Progress(experiment.steps, experiment.steps))
            if self._left[address] == 0 and address not in self.failed:
                self._merge(address)

    def _merge(self, address: str) -> None:
        experiment = self.todo[address]
        try:
            with self.store.open(experiment.cell) as directory:
                merge(directory, experiment, self._plans[address].chunks)
            self.tally.status.cells_done += 1
        except DamagedChunkError as error:
            self._fail(address, experiment.cell.label, damaged(error.path, error.problem, address))
        except Exception as error:  # noqa: BLE001 - the other runs go on
            self._fail(address, experiment.cell.label, error)

    def _fail(self, address: str, name: str, error: Exception) -> None:
        self.failed.add(address)
        self.failures.append((name, error))
