"""Variants of a program that give the same answers: with a backup, a distractor, or two heads that cancel out."""

from collections.abc import Callable
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from anchorlab.theory.compiled import Head, Program


def backup(program: Program) -> Program:
    """Add a copy of one of the heads, so that either suffices."""
    first = program.units[program.doubled]
    assert isinstance(first, Head)
    return replace(program, units=(*program.units, replace(first, role=f"backup: {first.role}")))


def distractor(program: Program) -> Program:
    """Add a head that attends like the answer head, and writes where nothing reads."""
    answer = _answering(program)
    moves = tuple(replace(move, target=f"unread {move.target}") for move in answer.moves)
    blocks = {move.target: move.table.shape[1] for move in moves}
    role = "distractor: attends like the answer head, and writes where nothing reads"
    return replace(
        program,
        blocks={**program.blocks, **blocks},
        units=(*program.units, replace(answer, role=role, job=None, moves=moves)),
    )


def cancelling(program: Program) -> Program:
    """Add two heads that attend like the answer head and write opposite errors."""
    answer = _answering(program)
    pair = (
        replace(
            answer,
            role=f"cancelling: writes {sign} the neighbours of the answer, which the other head takes back",
            job=None,
            moves=tuple(replace(move, table=factor * _neighbours(move.table)) for move in answer.moves),
            cancels=True,
        )
        for sign, factor in (("plus", 1.0), ("minus", -1.0))
    )
    return replace(program, units=(*program.units, *pair))


VARIANTS: dict[str, Callable[[Program], Program]] = {
    "plain": lambda program: program,  # one head in each layer
    "backup": backup,
    "distractor": distractor,
    "cancelling": cancelling,
}
"""The variants of a compiled model by name."""

SELECTIVE = tuple(variant for variant in VARIANTS if variant != "plain")
"""The variants with units that are not needed; a plain model needs all of its units, so that no ranking is wrong."""


def _answering(program: Program) -> Head:
    answer = program.units[-1]
    assert isinstance(answer, Head)
    return answer


def _neighbours(table: Float[Tensor, "source target"]) -> Float[Tensor, "source target"]:
    """Return a map to the next token minus the previous one, so that a wrong answer wins with either sign."""
    return 2 * (table.roll(1, dims=1) - table.roll(-1, dims=1))
