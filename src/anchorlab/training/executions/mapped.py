"""Train all members at once: the step is mapped over the stack, and on a GPU replayed as a captured graph."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.tasks.metrics import Losses
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.loss import forward_loss
from anchorlab.training.feed import MemberBatches
from anchorlab.training.flat_optimiser import RowOptimiser

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_WARM_UP = 3  # torch's recommendation: libraries allocate their workspaces in the first passes


class MappedGradients:
    """Compute the gradient of each trainable weight, `[member ...]`, for one batch per member.

    `at_once` is the number of members in one pass, None for all; only their activations take memory at a time.
    """

    def __init__(self, ensemble: Ensemble, losses: Losses, mixed: bool) -> None:
        self.members = ensemble.size
        self.at_once: int | None = None
        self._trainable = {name: ensemble.weights[name] for name in ensemble.trainable}
        self._fixed = {name: value for name, value in ensemble.weights.items() if name not in self._trainable}
        template = ensemble.template

        def member_loss(
            trainable: dict[str, Tensor],
            fixed: dict[str, Tensor],
            inputs: Tensor,
            targets: Tensor,
            positions: Tensor,
            scored: Tensor | None,
        ) -> Tensor:
            return forward_loss(template, inputs, targets, positions, scored, losses, mixed, {**trainable, **fixed})

        self._gradient = torch.func.grad(member_loss)

    def __call__(self, batches: MemberBatches) -> dict[str, Float[Tensor, "member ..."]]:
        """Return the gradient of each trainable weight, by name."""
        # all arguments have a member axis, except positions that all members share and weights that are absent
        axes = (0, 0, 0, 0, None if batches.shared_positions else 0, None if batches.weights is None else 0)
        gradient: Callable[..., dict[str, Tensor]] = torch.func.vmap(
            self._gradient, in_dims=axes, chunk_size=self.at_once
        )
        return gradient(
            self._trainable, self._fixed, batches.inputs, batches.targets, batches.positions, batches.weights
        )

    def halve(self) -> bool:
        """Halve the number of members in one pass; return False if it was 1 already."""
        before = self.at_once or self.members
        self.at_once = -(-before // 2)
        return before > 1

    def refusal(self, batches: MemberBatches) -> str | None:
        """Return why torch cannot map this model over members, or None if it can.

        A user's module may contain operations that `torch.func.vmap` does not support.
        """
        try:
            self(batches)
        except torch.OutOfMemoryError:
            return None  # does not mean that the model cannot be mapped
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return None


class Graphs:
    """Capture graphs on one device; all of them share one stream and one memory pool.

    Graphs that are replayed one after another can share memory, since a graph needs it only during its replay. All
    tensors that outlive a replay must be allocated before the capture.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def capture(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """Return a graph of `work`. It runs three times before the capture, and must change nothing in these runs.

        The current device and stream are restored afterwards, even if the capture fails.

        Errors: the `RuntimeError` of the operation that cannot be captured, or `OutOfMemoryError`.
        """
        current = torch.cuda.current_stream(self.device)
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):  # torch.cuda.graph leaves its stream current if the capture fails
                for _ in range(_WARM_UP):
                    work()
                # Only this thread must keep to the rules of capture: others may use the device meanwhile.
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    work()
        except RuntimeError as error:
            raise _first(error) from None
        finally:
            current.wait_stream(self._stream)
        return graph


def _first(error: BaseException) -> BaseException:
    """Return the root cause of an error: ending a failed capture raises another error, which hides the first."""
    while error.__context__ is not None:
        error = error.__context__
    return error


class MappedExecution:
    """Take the whole step (forward, backward, clipping, update) of all members on their device.

    With `graphs` the step is captured once per batch shape and then replayed. It reads the batches, the learning-rate
    factor, the step number and the active members from tensors on the device, so that the host never waits. If a
    capture fails, steps run uncaptured, and the reason is logged and kept in `fallback`. If memory runs out, fewer
    members are computed at once.
    """

    def __init__(
        self, ensemble: Ensemble, optimiser: RowOptimiser, losses: Losses, mixed: bool, graphs: Graphs | None = None
    ) -> None:
        self.optimiser, self.graphs = optimiser, graphs
        self.gradients = MappedGradients(ensemble, losses, mixed)
        self.fallback: str | None = None if graphs is not None else "there is no CUDA device"
        self._captured: dict[tuple[torch.Size, ...], Callable[[MemberBatches], None]] = {}
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
            captured(batches)
        else:
            self._update(self._within_memory(lambda: self.gradients(batches)))

    def _update(self, gradients: dict[str, Tensor]) -> None:
        self.optimiser.update(gradients, self._factor, self._time, self._active)

    def _within_memory(self, work: Callable[[], Result]) -> Result:
        """Return `work()`, which has no side effects, retried with fewer members at once while memory runs out."""
        while True:
            try:
                return work()
            except torch.OutOfMemoryError:
                if not self.gradients.halve():
                    raise
            logger.warning("the device has too little memory: members now learn %d at once", self.gradients.at_once)

    def _graph(self, batches: MemberBatches) -> Callable[[MemberBatches], None] | None:
        """Return what replays the graph for batches of these shapes, captured on first use, or None if that failed."""
        graphs = self.graphs
        assert graphs is not None
        # a graph repeats kernels on fixed addresses, so each batch shape needs its own graph and its own tensors, into
        # which batches are copied; the last batch of an epoch may be shorter
        key = tuple(value.shape for value in _tensors(batches))
        if key in self._captured:
            return self._captured[key]
        own = replace(batches, **{name: value.clone() for name, value in vars(batches).items() if value is not None})
        self._set_active((False,) * len(self._known))  # so that the warm-up steps change nothing
        try:
            graph = self._within_memory(lambda: graphs.capture(lambda: self._update(self.gradients(own))))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.fallback = str(error).splitlines()[0]
            logger.warning("the step could not be captured as a CUDA graph and runs uncaptured: %s", self.fallback)
            return None

        def replay(batches: MemberBatches) -> None:
            for kept, value in zip(_tensors(own), _tensors(batches), strict=True):
                kept.copy_(value)
            graph.replay()

        self._captured[key] = replay
        return replay

    def _set_active(self, active: tuple[bool, ...]) -> None:
        """Set which members are updated, if that has changed: it changes only after an evaluation."""
        if active != self._known:
            self._active.copy_(torch.tensor(active))
            self._known = active


def _tensors(batches: MemberBatches) -> tuple[Tensor, ...]:
    return tuple(value for value in vars(batches).values() if value is not None)
