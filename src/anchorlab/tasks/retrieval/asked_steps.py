"""The steps that the queries of a retrieval task ask for."""

from anchorlab.errors import SpecError


def check_asked_steps(asked: tuple[int, ...], steps: int, curriculum: bool) -> None:
    """Raise `SpecError` for steps that are not ascending within 1 .. D, or that are given without a curriculum."""
    if list(asked) != sorted({*asked} & {*range(1, steps + 1)}):
        problem = f"{list(asked)} are not some of the steps 1 to {steps}, in order"
        raise SpecError("asked_steps", problem, "give each once, such as 1,3, or none for all")
    if asked and not curriculum:
        problem = "restrict a curriculum, but implicit_curriculum is off"
        raise SpecError("asked_steps", problem, "turn it on, or leave them out")


def asked_steps(asked: tuple[int, ...], steps: int, curriculum: bool) -> tuple[int, ...]:
    """Return the steps that queries ask for: `asked` if given, else all steps under a curriculum, else the last."""
    every = tuple(range(1, steps + 1))
    return asked or (every if curriculum else every[-1:])
