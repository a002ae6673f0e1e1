"""Figures, tables and views that are made when they are first read."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

Item = TypeVar("Item")


class Later(Sequence[Item]):
    """A sequence that is made when it is first read.

    For what an `Analysis` draws at some cost. Controls read only what the analysis has seen, and draw nothing.

        Analysis(seen, views=Later(lambda: [view_run(run)]))
    """

    def __init__(self, make: Callable[[], Iterable[Item]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> tuple[Item, ...]:
        return tuple(self._make())

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, index: Any) -> Any:
        return self._made[index]
