"""The steps that the queries of a retrieval task ask for."""

from anchorlab.errors import SpecError


def check_asked_steps(asked: tuple[int, ...], steps: int, curriculum: bool) -> None:
    """Raise `SpecError` for steps that are not some of 1 .. D in order, or that are named without a curriculum."""
    if list(asked) != sorted({*asked} & {*range(1, steps + 1)}):
        problem = f"{list(asked)} are not some of the steps 1 to {steps}, in order"
        raise SpecError("asked_steps", problem, "give each once, such as 1,3, or none for all")
    if asked and not curriculum:
        raise SpecError("asked_steps", "name a curriculum, and implicit_curriculum is off", "leave one of the two out")


def asked_steps(asked: tuple[int, ...], steps: int, curriculum: bool) -> tuple[int, ...]:
    """Return the steps asked for: those named, else all of them under a curriculum, else the last."""
    every = tuple(range(1, steps + 1))
    return asked or (every if curriculum else every[-1:])
