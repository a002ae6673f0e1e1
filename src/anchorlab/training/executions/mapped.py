"""Train all members at once: the step is mapped over the stack, and on a GPU replayed as a captured graph."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from anchorlab.tasks.metrics import LossKind
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.gradients import MappedGradients
from anchorlab.training.executions.graphs import Graphs
from anchorlab.training.feed import MemberBatches
from anchorlab.training.flat_optimiser import FlatOptimiser

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class MappedExecution:
    """Take the whole step (forward, backward, clipping, update) of all members on their device.

    With `graphs` the step is captured once per batch shape and then replayed. It reads the batches, the learning-rate
    factor, the step number and the active members from tensors on the device, so that the host never waits. If a
    capture fails, steps run uncaptured, and the reason is logged and kept in `fallback`. If memory runs out, fewer
    members are computed at once.
    """

    def __init__(
        self, ensemble: Ensemble, optimiser: FlatOptimiser, loss: LossKind, mixed: bool, graphs: Graphs | None = None
    ) -> None:
        self.optimiser, self.graphs = optimiser, graphs
        self.gradients = MappedGradients(ensemble, loss, mixed)
        self.fallback: str | None = None if graphs is not None else "there is no CUDA device"
        self._captured: dict[tuple[torch.Size, ...], _Captured] = {}
        values = optimiser.flat.values
        self._factor = torch.ones((), dtype=torch.float64, device=values.device)
        self._time = torch.zeros((), dtype=torch.float64, device=values.device)
        self._active = torch.zeros(len(values), dtype=torch.bool, device=values.device)
        self._known: tuple[bool, ...] = (False,) * len(values)

    @property
    def name(self) -> str:
        """`mapped`, or `mapped by 4` for four members at once; recorded so that resumed training does the same."""
        return "mapped" if self.gradients.at_once is None else f"mapped by {self.gradients.at_once}"

    def go_on_as(self, name: str) -> None:
        """Set the number of members at once from the recorded `name` of an execution."""
        _, _, count = name.partition(" by ")
        self.gradients.at_once = int(count) if count else None

    def step(self, batches: MemberBatches, factor: float, active: Sequence[bool], step: int) -> None:
        """Take one optimiser step with all active members."""
        # `fill_` passes the number as a kernel argument; a copy from the host would synchronise with the device.
        self._factor.fill_(factor)
        self._time.fill_(step)
        captured = None if self.fallback is not None else self._graph(batches)
        self._set_active(tuple(active))
        if captured is not None:
            captured.replay(batches)
        else:
            self._update(self._within_memory(lambda: self.gradients(batches)))

    def _update(self, gradients: dict[str, Tensor]) -> None:
        self.optimiser.update(gradients, self._factor, self._time, self._active)

    def _within_memory(self, work: Callable[[], Result]) -> Result:
        """Return `work()`, retried with fewer members at once if memory runs out; `work` must have no side effects.

        Errors: `OutOfMemoryError` if memory does not suffice even for one member at a time.
        """
        while True:
            try:
                return work()
            except torch.OutOfMemoryError:
                if not self.gradients.halve():
                    raise
            logger.warning("the device has too little memory: members now learn %d at once", self.gradients.at_once)

    def _graph(self, batches: MemberBatches) -> "_Captured | None":
        """Return the graph for batches of these shapes, captured on first use, or None if that failed."""
        graphs = self.graphs
        assert graphs is not None
        key = tuple(value.shape for value in _tensors(batches))
        if key in self._captured:
            return self._captured[key]
        own = _copy(batches)
        self._set_active((False,) * len(self._known))  # so that the warm-up steps change nothing
        try:
            graph = self._within_memory(lambda: graphs.capture(lambda: self._update(self.gradients(own))))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.fallback = str(error).splitlines()[0]
            logger.warning("the step could not be captured as a CUDA graph and runs uncaptured: %s", self.fallback)
            return None
        self._captured[key] = _Captured(graph, own)
        return self._captured[key]

    def _set_active(self, active: tuple[bool, ...]) -> None:
        """Set which members are updated, if that has changed: it changes only after an evaluation."""
        if active != self._known:
            self._active.copy_(torch.tensor(active))
            self._known = active


@dataclass(frozen=True)
class _Captured:
    """A captured step, and the batches that it reads."""

    graph: torch.cuda.CUDAGraph
    batches: MemberBatches

    def replay(self, batches: MemberBatches) -> None:
        """Take the step on other batches of the same shapes."""
        for own, value in zip(_tensors(self.batches), _tensors(batches), strict=True):
            own.copy_(value)
        self.graph.replay()


def _tensors(batches: MemberBatches) -> tuple[Tensor, ...]:
    scored = () if batches.weights is None else (batches.weights,)
    return (batches.inputs, batches.targets, batches.positions, *scored)


def _copy(batches: MemberBatches) -> MemberBatches:
    scored = None if batches.weights is None else batches.weights.clone()
    return MemberBatches(batches.inputs.clone(), batches.targets.clone(), batches.positions.clone(), scored)
