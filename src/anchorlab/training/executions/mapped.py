"""Train all members at once: the step is mapped over the stack, and on CUDA replayed as a captured graph."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.tasks.metrics import LossKind
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.step import forward_loss
from anchorlab.training.feed import MemberBatches
from anchorlab.training.optimisers import StackedOptimiser

logger = logging.getLogger(__name__)


class MappedExecution:
    """Train all members in one vmapped pass.

    On CUDA the whole step (forward, backward, clipping, update) is captured once per batch shape and then replayed; the
    graph reads learning-rate factors and the step number from tensors. If capture fails, steps run uncaptured, and the
    reason is logged and kept in `fallback`.
    """

    name = "mapped"

    def __init__(self, ensemble: Ensemble, optimiser: StackedOptimiser, loss: LossKind, mixed: bool) -> None:
        self.optimiser = optimiser
        self.device = next(iter(ensemble.weights.values())).device
        self.fallback: str | None = None if self.device.type == "cuda" else "graphs need a CUDA device"
        self._graphs: dict[tuple[object, ...], _Graph] = {}
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
            return forward_loss(template, inputs, targets, positions, scored, loss, mixed, {**trainable, **fixed})

        self._gradient = torch.func.grad(member_loss)

    def step(self, batches: MemberBatches, factor: float, active: Sequence[bool], step: int) -> None:
        """Take one optimiser step with all active members."""
        if self.device.type != "cuda":
            gradients = self._gradients(batches)
            names = self.optimiser.weights
            for index in (index for index, learns in enumerate(active) if learns):
                self.optimiser.update_member(index, [gradients[name][index] for name in names], factor, step)
            return
        time = torch.tensor(step, device=self.device, dtype=torch.float64)
        dtype = next(iter(self._trainable.values())).dtype
        factors = torch.tensor([factor * learns for learns in active], device=self.device, dtype=dtype)
        if self.fallback is None:
            try:
                self._replay(batches, factors, time)
                return
            except RuntimeError as error:
                self.fallback = str(error).splitlines()[0]
                logger.warning("the step could not be captured as a CUDA graph and runs uncaptured: %s", self.fallback)
        self._take(batches, factors, time)

    def refusal(self, batches: MemberBatches) -> str | None:
        """Return why torch cannot map this model over members, or None if it can.

        A user's module may contain operations that torch.func.vmap does not support.
        """
        try:
            self._gradients(batches)
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return None

    def _gradients(self, batches: MemberBatches) -> dict[str, Float[Tensor, "member ..."]]:
        """Return the gradient of each trainable weight."""
        axes = (0, 0, 0, 0, None if batches.shared_positions else 0, None if batches.weights is None else 0)
        gradient: Callable[..., dict[str, Tensor]] = torch.func.vmap(self._gradient, in_dims=axes)
        return gradient(
            self._trainable, self._fixed, batches.inputs, batches.targets, batches.positions, batches.weights
        )

    def _take(self, batches: MemberBatches, factors: Float[Tensor, "member"], time: Float[Tensor, ""]) -> None:
        """Take one step without a graph."""
        self.optimiser.update_all(self._gradients(batches), factors, time)

    def _replay(self, batches: MemberBatches, factors: Float[Tensor, "member"], time: Float[Tensor, ""]) -> None:
        """Take one step by replaying the graph for these shapes, which is captured on first use."""
        key = tuple(value.shape for value in _tensors(batches))
        if key not in self._graphs:
            self._graphs[key] = self._capture(batches, factors, time)
        graph = self._graphs[key]
        for static, value in zip(graph.inputs, (*_tensors(batches), factors, time), strict=True):
            static.copy_(value)
        graph.graph.replay()

    def _capture(self, batches: MemberBatches, factors: Float[Tensor, "member"], time: Float[Tensor, ""]) -> "_Graph":
        """Return a graph of one step that reads its inputs from copies of these; weights and state stay unchanged."""
        static = MemberBatches(
            batches.inputs.clone(),
            batches.targets.clone(),
            batches.positions.clone(),
            None if batches.weights is None else batches.weights.clone(),
        )
        static_factors, static_time = factors.clone(), time.clone()
        changing = [*self._trainable.values(), *self.optimiser.state.values()]
        before = [value.clone() for value in changing]
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(stream):
                for _ in range(3):  # torch requires warm-up passes on another stream before a capture
                    self._take(static, static_factors, static_time)
            torch.cuda.current_stream(self.device).wait_stream(stream)
            with torch.cuda.graph(graph, stream=stream):
                self._take(static, static_factors, static_time)
        finally:  # undo the warm-up steps, whether or not the capture succeeded
            torch.cuda.current_stream(self.device).wait_stream(stream)
            for value, kept in zip(changing, before, strict=True):
                value.copy_(kept)
        return _Graph(graph, (*_tensors(static), static_factors, static_time))


@dataclass(frozen=True)
class _Graph:
    """A captured step, and the tensors from which it reads batches, learning-rate factors and the step number."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]


def _tensors(batches: MemberBatches) -> tuple[Tensor, ...]:
    scored = () if batches.weights is None else (batches.weights,)
    return (batches.inputs, batches.targets, batches.positions, *scored)
