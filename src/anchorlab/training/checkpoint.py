"""Keep the states of training in the chunks of a run directory, and merge finished chunks into a run."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorlab.errors import DamagedChunkError
from anchorlab.runs import ChunkDirectory, RunDirectory, metrics_frame
from anchorlab.runs.chunk_directory import read_part
from anchorlab.training.evaluation import Row
from anchorlab.training.experiment import ARITHMETIC, Experiment
from anchorlab.training.trainer import TrainingState


class ChunkKeeper:
    """A `Keeper` that writes states and checkpoints to a chunk directory open for writing."""

    def __init__(self, chunk: ChunkDirectory) -> None:
        self.chunk = chunk

    def load(self) -> TrainingState | None:
        """Return the chunk's newest state, or None at the beginning.

        Errors: `DamagedChunkError` also for a state of another arithmetic, since the bytes of one run are of one.
        """
        kept = self.chunk.latest_state()
        if kept is None:
            return None
        if kept.metadata.get("arithmetic") != ARITHMETIC:
            raise DamagedChunkError(self.chunk.path, "was kept by a version that computes in another way")
        rows = tuple(Row(*row) for row in kept.metadata["rows"])
        resting = frozenset(kept.metadata["resting"])
        return TrainingState(kept.step, kept.tensors, rows, resting, kept.metadata["execution"])

    def keep(self, state: TrainingState) -> None:
        """Write a state in place of the previous one."""
        metadata = {
            "rows": [list(row) for row in state.rows],
            "resting": sorted(state.resting),
            "execution": state.execution,
            "arithmetic": ARITHMETIC,
        }
        self.chunk.write_state(state.step, state.tensors, metadata)

    def checkpoint(self, step: int, weights: Mapping[str, Shaped[Tensor, "member ..."]]) -> None:
        """Write the chunk's part of a checkpoint."""
        self.chunk.write_checkpoint(step, weights)


def merge(directory: RunDirectory, experiment: Experiment, plan: Sequence[Sequence[int]]) -> None:
    """Finish a run from its finished chunks: stack their checkpoints over all members and join their metrics.

    Writes the checkpoints at the recipe's times, and the last one. A chunk ends early if all its members meet their
    stop rule; later checkpoints then contain its last weights. Untrained members have no checkpoints, since they are
    drawn again when they are read.

    Args:
        directory: the run, open for writing, with every chunk finished
        experiment: the experiment of the run
        plan: the members of each chunk, by index in the run
    """
    chunks = [directory.chunk(index) for index in range(len(plan))]
    results = [chunk.result() for chunk in chunks]
    rows = [
        (members[row[0]], *row[1:]) for result, members in zip(results, plan, strict=True) for row in result["rows"]
    ]
    steps = _merge_checkpoints(directory, experiment, chunks) if experiment.trained else []
    made_by = [
        {"members": list(members), **result.get("made_by", {})} for members, result in zip(plan, results, strict=True)
    ]
    directory.finish(metrics_frame(rows), made_by, checkpoints=steps)


def _merge_checkpoints(directory: RunDirectory, experiment: Experiment, chunks: Sequence[ChunkDirectory]) -> list[int]:
    """Merge the checkpoints one by one and remove the parts of earlier ones, so the disk never holds all twice.

    Returns their steps.
    """
    parts = [chunk.checkpoints() for chunk in chunks]
    unit, end = experiment.steps_per_unit, max(max(part) for part in parts)
    due = [
        step
        for step in sorted(set().union(*parts))
        if step == end or (step % unit == 0 and experiment.recipe.checkpoints.due(step // unit))
    ]
    for step in due:
        if directory.has_checkpoint(step):
            continue
        used = [max(one for one in part if one <= step) for part in parts]
        for part, one in zip(parts, used, strict=True):
            for earlier in (each for each in part if each < one):
                part[earlier].unlink(missing_ok=True)
        files = [part[one] for part, one in zip(parts, used, strict=True)]
        if len(files) == 1:
            directory.move_checkpoint(step, files[0])
            continue
        weights = [read_part(file) for file in files]
        directory.write_checkpoint(step, {name: torch.cat([one[name] for one in weights]) for name in weights[0]})
    return due
