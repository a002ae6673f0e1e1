"""Train all members at once on a GPU: the step is mapped over the stack and replayed as a captured graph."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorlab.tasks.metrics import LossKind
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.gradients import MappedGradients
from anchorlab.training.executions.graphs import Graphs
from anchorlab.training.feed import MemberBatches
from anchorlab.training.flat_optimiser import FlatOptimiser

logger = logging.getLogger(__name__)


class DeviceExecution:
    """Take the whole step (forward, backward, clipping, update) of all members on their device.

    With `graphs` the step is captured once per batch shape and then replayed; it reads the batches, the learning-rate
    factor, the step number and the active members from tensors on the device, and the host waits for none of them. If a
    capture fails, steps run uncaptured, and the reason is logged and kept in `fallback`.
    """

    name = "mapped"

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

    def step(self, batches: MemberBatches, factor: float, active: Sequence[bool], step: int) -> None:
        """Take one optimiser step with all active members."""
        # A number that fills a tensor travels with the kernel; copied from the host, it would stop both.
        self._factor.fill_(factor)
        self._time.fill_(step)
        captured = None if self.fallback is not None else self._graph(batches)
        self._set_active(tuple(active))
        if captured is None:
            self._take(batches)
        else:
            captured.replay(batches)

    def _take(self, batches: MemberBatches) -> None:
        """Take one step without a graph."""
        self.optimiser.update(self.gradients(batches), self._factor, self._time, self._active)

    def _graph(self, batches: MemberBatches) -> "_Captured | None":
        """Return the graph for batches of these shapes, captured on first use, or None if that failed."""
        assert self.graphs is not None
        key = tuple(value.shape for value in _tensors(batches))
        if key in self._captured:
            return self._captured[key]
        own = _copy(batches)
        self._set_active((False,) * len(self._known))  # the steps before the capture then change nothing
        try:
            graph = self.graphs.capture(lambda: self._take(own))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.fallback = str(error).splitlines()[0]
            logger.warning("the step could not be captured as a CUDA graph and runs uncaptured: %s", self.fallback)
            return None
        self._captured[key] = _Captured(graph, own)
        return self._captured[key]

    def _set_active(self, active: tuple[bool, ...]) -> None:
        """Say which members are updated; they change only after an evaluation."""
        if active != self._known:
            self._active.copy_(torch.tensor(active))
            self._known = active


@dataclass(frozen=True)
class _Captured:
    """A captured step, and the batches from which it reads."""

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
