"""Keep the states of training in the chunks of a run directory, and merge finished chunks into a run."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorlab.errors import DamagedChunkError
from anchorlab.runs import ChunkDirectory, RunDirectory, metrics_frame
from anchorlab.runs.atomic_files import check_named_file
from anchorlab.runs.tensor_file import read_tensors
from anchorlab.training.evaluation import Row
from anchorlab.training.experiment import ARITHMETIC, Experiment
from anchorlab.training.trainer import TrainingState


class ChunkKeeper:
    """A `Keeper` that writes states and checkpoints to a chunk directory open for writing."""

    def __init__(self, chunk: ChunkDirectory) -> None:
        self.chunk = chunk

    def load(self) -> TrainingState | None:
        """Return the chunk's newest state, or None at the beginning.

        Errors: `DamagedChunkError`, also for a state that another `ARITHMETIC` kept: a run is computed in one way only.
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
        """Write the weights of the chunk's members at a step."""
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
    results = [(members, chunk.result()) for members, chunk in zip(plan, chunks, strict=True)]
    rows = [(members[row[0]], *row[1:]) for members, result in results for row in result["rows"]]
    steps = _merge_checkpoints(directory, experiment, chunks) if experiment.trained else []
    made_by = [{"members": list(members), **result.get("made_by", {})} for members, result in results]
    directory.finish(metrics_frame(rows), made_by, checkpoints=steps)


def _merge_checkpoints(directory: RunDirectory, experiment: Experiment, chunks: Sequence[ChunkDirectory]) -> list[int]:
    """Merge the chunks' checkpoints and return the steps; earlier ones are removed, so that none is held twice."""
    kept = [chunk.checkpoints() for chunk in chunks]
    unit, end = experiment.steps_per_unit, max(max(files) for files in kept)
    due = [
        step
        for step in sorted(set().union(*kept))
        if step == end or (step % unit == 0 and experiment.recipe.checkpoints.due(step // unit))
    ]
    for step in due:
        if directory.has_checkpoint(step):
            continue
        used = [max(one for one in files if one <= step) for files in kept]
        for files, one in zip(kept, used, strict=True):
            for earlier in (each for each in files if each < one):
                files[earlier].unlink(missing_ok=True)
        newest = [files[one] for files, one in zip(kept, used, strict=True)]
        if len(newest) == 1:
            directory.move_checkpoint(step, newest[0])
            continue
        weights = [read_tensors(check_named_file(file)) for file in newest]
        directory.write_checkpoint(step, {name: torch.cat([one[name] for one in weights]) for name in weights[0]})
    return due
