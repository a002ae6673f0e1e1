"""Score answers for lm-evaluation-harness; an exported folder names the function of this module."""

from collections.abc import Mapping, Sequence
from typing import Any

from anchorlab.language.asking import Said, read_reply


def read_answer(question: Mapping[str, Any], said: Sequence[str]) -> dict[str, float]:
    """Score the first generated text, which continues the beginning of the answer.

    Args:
        question: a row of the export
        said: the generated texts; only the first counts

    Returns: `acc`, 1 if the answer is right, and `acceptable`, 1 if it is one of the candidates; else 0.
    """
    reply = read_reply(Said(said[0]), question["candidates"], question["begun"], continued=True)
    return {"acc": float(reply.answer == question["answer"]), "acceptable": float(reply.kind == "answer")}
