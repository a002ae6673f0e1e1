"""Answers that lm-evaluation-harness generates, read as here; an exported folder names this function."""

from collections.abc import Mapping, Sequence
from typing import Any

from anchorlab.language.asking import Said, read_reply


def read_answer(question: Mapping[str, Any], said: Sequence[str]) -> dict[str, float]:
    """Return what the first text that goes on with the beginning of an answer is worth.

    Args:
        question: a row of the export
        said: the texts that were generated

    Returns: `acc`, whether it is right, and `acceptable`, whether it is one of the candidates.
    """
    reply = read_reply(Said(said[0]), question["candidates"], question["begun"], continued=True)
    return {"acc": float(reply.answer == question["answer"]), "acceptable": float(reply.kind == "answer")}
