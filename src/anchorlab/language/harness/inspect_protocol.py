"""The paper's protocol in Inspect: ask until an answer is acceptable, and classify answers as `ask` does."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import nan
from typing import Any

from inspect_ai.model import ModelOutput
from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    accuracy,
    metric,
    scorer,
    stderr,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver
from pydantic import TypeAdapter

from anchorlab.language.asking import Asked, Reply, Said, read_reply, results
from anchorlab.rng import child_seed
from anchorlab.tasks import Question

_REPLIES = "replies"  # the key of the replies in a sample's store and in its score's metadata
_question = TypeAdapter(Question).validate_python


@solver
def until_acceptable(begun: bool, tries: int = 1, temperature: float = 0.0, seed: int = 0) -> Solver:
    """Generate until an answer is acceptable, at most `tries` times; further tries are sampled, as in `ask`.

    The metadata of a sample must be the fields of its `Question`, and its id the number of the question, from 1.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        messages, question = list(state.messages), _question(state.metadata)
        replies: list[Reply] = []
        while len(replies) < tries and not any(reply.answer for reply in replies):
            state.messages = list(messages)
            warm = temperature if not replies or temperature > 0 else 1.0
            drawn = child_seed(seed, "try", len(replies), int(state.sample_id) - 1) % 2**31
            state = await generate(state, **({"temperature": warm, "seed": drawn} if warm > 0 else {}))
            replies.append(read_reply(_said(state.output), question.candidates, question.begun, continued=begun))
        state.store.set(_REPLIES, [asdict(reply) for reply in replies])
        return state

    return solve


@metric
def replies() -> Metric:
    """Report the other measures of `results`: guessing, first try, favourite answer, refusals, others, tries."""

    def measure(scores: Sequence[SampleScore]) -> dict[str, float]:
        if not scores:  # before the first answer, Inspect only asks for the names of the values
            return dict.fromkeys(("guessing", "first", "favourite", "refused", "other", "tries"), nan)
        found = results([_asked(one.sample_metadata, one.score.metadata[_REPLIES]) for one in scores])
        return {
            "guessing": found.first.guessing,
            "first": found.first.share,
            "favourite": found.favourite,
            "refused": found.refused,
            "other": found.other,
            "tries": found.tries,
        }

    return measure


@scorer(metrics=[accuracy(), stderr(), replies()])
def first_acceptable() -> Scorer:
    """Score whether the first acceptable answer is right; a question without an acceptable answer is wrong."""

    async def score(state: TaskState, target: Target) -> Score:
        kept = state.store.get(_REPLIES)
        asked = _asked(state.metadata, kept)
        return Score(
            value=CORRECT if asked.answer == target.text else INCORRECT,
            answer=asked.answer,
            explanation=asked.replies[-1].text,
            metadata={_REPLIES: kept},
        )

    return score


def _said(output: ModelOutput) -> Said:
    """Return a model's reply; a text that the server's content filter withholds counts as a refusal."""
    return Said(output.completion, "refusal" if output.stop_reason == "content_filter" else "stop")


def _asked(question: Mapping[str, Any], kept: Sequence[Mapping[str, Any]]) -> Asked:
    return Asked(_question(question), tuple(Reply(**one) for one in kept))
