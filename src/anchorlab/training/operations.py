"""Count what a forward pass computes: operations called, floating-point operations, and bytes moved."""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from anchorlab.models import ModelSpec
from anchorlab.models.cpu import with_threads
from anchorlab.models.model import predict
from anchorlab.tasks import Task
from anchorlab.training.experiment import template_of


class Operations(NamedTuple):
    """What a pass computes.

    Fields
        calls: the number of operations called, however small
        products: the floating-point operations of matrix products
        bytes: the bytes that all operations except views read and write
    """

    calls: float
    products: float
    bytes: float


def forward_operations(
    model: ModelSpec, task: Task, sequences: int, training: bool = True, first_block: int = 0
) -> Operations:
    """Return what a forward pass over a number of sequences computes, from `first_block` on.

    With `training` it scores the positions of training's loss, which may be others than those of an evaluation.
    """
    _, few, more = _counts(model, task, training and _scores_more(task), first_block)
    return Operations(few.calls, *(_line(*pair, sequences) for pair in zip(few[1:], more[1:], strict=True)))


def forward_products(model: ModelSpec, task: Task) -> int:
    """Return the floating-point operations of one sequence's forward pass, at least 1."""
    return max(1, int(_counts(model, task, _scores_more(task))[0].products))


_FEW = 2  # sequences: with 1, some operations are left out


def _line(at_few: float, at_more: float, sequences: int) -> float:
    """Return the value at `sequences` on the line through the values at `_FEW` and at twice as many."""
    return at_few + (at_more - at_few) * (sequences - _FEW) / _FEW


@lru_cache(maxsize=1024)
def _scores_more(task: Task) -> bool:
    """Return whether the loss of training scores other positions than an evaluation."""
    batch = task.sample("train", 1, seed=0)
    return task.for_training(batch) is not batch


@lru_cache(maxsize=1024)
def _counts(model: ModelSpec, task: Task, training: bool, first_block: int = 0) -> list[Operations]:
    """Return what passes over 1, `_FEW` and twice `_FEW` sequences compute."""
    template, found = template_of(model, task.shape), []
    weights = {name: _any(value) for name, value in (*template.named_parameters(), *template.named_buffers())}
    for count in (1, _FEW, 2 * _FEW):
        batch = task.sample("train", count, seed=0)
        if training:
            batch = task.for_training(batch)
        counter = _Counter(f"blocks.{first_block}.hook_resid_pre")
        # a model that visits its sites may compute more
        others: dict[str, Any] = {"tap": counter.tap} if first_block else {}
        # on one thread: for a few sequences, threads wait for each other longer than they work
        with torch.no_grad(), with_threads(1), counter:
            predict(template, batch.inputs, batch.positions, weights, **others)
        both = zip(counter.so_far, counter.before, strict=True)
        found.append(Operations(*(all_of_it - before for all_of_it, before in both)))
    return found


def _any(value: Tensor) -> Tensor:
    """Return a stand-in for a weight, with values that do not matter; whole numbers can be indices, and are 0."""
    make = torch.empty if value.is_floating_point() else torch.zeros
    return make(value.shape, dtype=value.dtype)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count calls, products by torch's formulas, and bytes; torch's `FlopCounterMode` would import its compiler."""

    def __init__(self, site: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.so_far = self.before = Operations(0, 0, 0)
        self.site = site

    def tap(self, site: str, value: Tensor) -> Tensor:
        """Keep the counts so far when `self.site` is visited."""
        if site == self.site:
            self.before = self.so_far
        return value

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports the compiler

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        out = func(*args, **named)
        calls, products, moved = self.so_far
        if func.overloadpacket in flop_registry:
            products += int(flop_registry[func.overloadpacket](*args, **named, out_val=out))
        read, written = ([one for one in tree_leaves(some) if isinstance(one, Tensor)] for some in ((args, named), out))
        held = {one.untyped_storage()._cdata for one in read}
        if func._schema.is_mutable or any(one.untyped_storage()._cdata not in held for one in written):  # no view
            moved += sum(one.nbytes for one in (*read, *written))
        self.so_far = Operations(calls + 1, products, moved)
        return out
