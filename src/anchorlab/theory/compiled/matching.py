"""Programs that repeat what followed the same token before: reading comprehension, induction, associative recall."""

from collections.abc import Sequence

from anchorlab.tasks import Task
from anchorlab.theory.compiled.program import ANSWER, Head, Match, Move, Program, before, identity, not_first, one_hot


def induction(task: Task, asked: Sequence[int], answers: Sequence[int]) -> Program:
    """Return the program of an induction head: note the token before, find the note that is one's own token.

        token    7 2 9 7      layer 0   each position notes the token before it
        before   . 7 2 9      layer 1   a position finds the note 7 and copies the token there, 2

    Args:
        task: the task
        asked: the tokens that a scored position may hold
        answers: the tokens that may follow them
    """
    size, length = task.shape.input_size, task.shape.length
    tokens = sorted({*asked, *answers})
    of_asked, of_answers = (identity(len(tokens))[:, [tokens.index(one) for one in some]] for some in (asked, answers))
    return Program(
        task,
        blocks={"token": len(tokens), "before": len(asked), ANSWER: len(answers)},
        tokens={"token": one_hot(tokens, size).T},
        outputs=one_hot(answers, size),
        units=(
            Head(
                0,
                "each position looks one back and notes the token there",
                "note",
                (before(length, 1),),
                (Move("token", "before", of_asked),),
            ),
            Head(
                1,
                "a position finds the note of its own token and copies the token there",
                "answer",
                (Match("token", "before", of_asked), not_first(length)),
                (Move("token", ANSWER, of_answers),),
            ),
        ),
    )
