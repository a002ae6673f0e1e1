"""A tiny deterministic trainer that keeps everything a real one keeps."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from anchorlab.runs import metrics_frame
from anchorlab.runs.atomic_files import check_named_file
from anchorlab.runs.environment import environment
from anchorlab.runs.tensor_file import read_tensors

STEPS, EVERY = 6, 2

# Asked once, before any process is forked: somebody may commit while the tests run.
environment()


def train_chunk(chunk, members, steps=STEPS):
    """Adds 1/step to each member's weight; resumes where the last state was."""
    if chunk.finished:
        return
    state = chunk.latest_state()
    first, weight, rows = 0, torch.tensor(members, dtype=torch.float64), []
    if state is not None:
        first, weight, rows = state.step, state.tensors["weight"], state.metadata
    for step in range(first + 1, steps + 1):
        weight += 1 / step
        rows += [
            [m, s, step, "test", "", "", "loss", float(w)] for m, (s, w) in enumerate(zip(members, weight, strict=True))
        ]
        if step % EVERY == 0:
            chunk.write_checkpoint(step, {"weight": weight})
            chunk.write_state(step, {"weight": weight, "moment": weight * 2}, rows)
    chunk.finish(rows)


def train(store, cell, wait=0.0, steps=STEPS):
    """Trains all members in two chunks."""
    with store.training(wait), store.open(cell) as run:
        if run.finished:
            return run
        plan = run.plan([cell.spec["members"][:2], cell.spec["members"][2:]])
        chunks = [run.chunk(index) for index in range(len(plan))]
        for chunk, members in zip(chunks, plan, strict=True):
            with chunk:
                train_chunk(chunk, members, steps)
        merge(run, chunks)
        return run


def begin(store, cell):
    """Trains the first chunk, and the second as far as its last state: it has no result."""
    with store.open(cell) as run:
        first, second = run.plan([cell.spec["members"][:2], cell.spec["members"][2:]])
        with run.chunk(0) as chunk:
            train_chunk(chunk, first)
        with run.chunk(1) as chunk:
            chunk.finish = lambda rows: None
            train_chunk(chunk, second)
    return run


def merge(run, chunks):
    parts = [chunk.checkpoints() for chunk in chunks]
    for step in parts[0]:
        run.write_checkpoint(
            step, {"weight": torch.cat([read_tensors(check_named_file(part[step]))["weight"] for part in parts])}
        )
    run.finish(metrics_frame(_shifted(chunks)), checkpoints=parts[0])


def _shifted(chunks):
    offset = 0
    for chunk in chunks:
        rows = chunk.result()
        yield from ([row[0] + offset, *row[1:]] for row in rows)
        offset += 1 + max(row[0] for row in rows)


def settled(text):
    """A path without the number of the attempt, which each opening of a chunk raises."""
    return re.sub(r"(chunk-\d+)\.\d+", r"\1", str(text))


def contents(path):
    """Every file below a directory, by its relative name, without the lock, which names a process."""
    files = {str(file.relative_to(path)): file for file in path.rglob("*") if file.is_file()}
    return {name: file.read_bytes() for name, file in files.items() if name != "lock"}


@contextmanager
def held(lock):
    """Hold a lock in another thread, as another process would; `lock` takes it, as `store.training` does."""
    free, taken = threading.Event(), threading.Event()

    def hold():
        with lock():
            taken.set()
            free.wait()

    with ThreadPoolExecutor(1) as other:
        other.submit(hold)
        taken.wait()
        try:
            yield
        finally:
            free.set()


FINISHED = {
    "spec.json",
    "manifest.json",
    "metrics.parquet",
    *(f"checkpoints/step-{step:08d}.safetensors" for step in range(EVERY, STEPS + 1, EVERY)),
}
