"""Questions are asked until an answer is acceptable."""

from dataclasses import replace

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.asking import Manner, Said, ask, results
from anchorlab.tasks import task

TASK = task("retrieval/equations", chains=2, steps=2, order="sorted")
QUESTION = TASK.questions(1, seed=0)[0]
WORKED = TASK.questions(3, seed=0, split="train")


class Scripted:
    """Says given texts, one after the other for each question."""

    name = "scripted"

    def __init__(self, said):
        self.said, self.requests = {text: list(own) for text, own in said.items()}, []

    def say(self, requests, progress=None):
        self.requests.append(list(requests))
        if progress is not None:
            progress(len(requests), len(requests))
        return [Said(self.said[request.turns[-1].text].pop(0)) for request in requests]


def questions(n):
    return tuple(replace(QUESTION, text=f"{number}: {QUESTION.text}", answer="0") for number in range(n))


def test_questions_are_asked_until_an_answer_is_acceptable():
    right, late, wrong, never = questions(4)
    speaker = Scripted(
        {
            right.prompt: ["0"],
            late.prompt: ["hm", "I'm sorry", "0"],
            wrong.prompt: ["1"],
            never.prompt: ["hm", "hm", "hm"],
        }
    )
    heard = []
    asked = ask(speaker, (right, late, wrong, never), Manner(), tries=3, seed=1, progress=lambda *n: heard.append(n))
    assert [one.answer for one in asked] == ["0", "0", "1", None]
    assert [one.first for one in asked] == ["0", None, "1", None]
    assert [len(one.replies) for one in asked] == [1, 3, 1, 3]
    assert [len(requests) for requests in speaker.requests] == [4, 2, 2]
    assert heard == [(4, 4)]  # what is asked again was counted
    first, *later = speaker.requests
    assert {one.temperature for one in first} == {0.0}
    assert {one.temperature for requests in later for one in requests} == {1.0}
    seeds = [one.seed for requests in speaker.requests for one in requests]
    assert len(set(seeds)) == len(seeds)

    found = results(asked)
    assert (found.accepted.right, found.first.right, found.accepted.questions) == (2, 1, 4)
    assert found.accepted.guessing == 0.5
    assert found.favourite == 2 / 3 and found.tries == 2.0
    assert (found.refused, found.other) == (1 / 8, 4 / 8)


def test_one_try_asks_once():
    (one,) = questions(1)
    asked = ask(Scripted({one.prompt: ["hm"]}), (one,), Manner(), temperature=0.7)
    assert asked[0].answer is None and not asked[0].right


def test_bad_numbers_are_refused():
    with pytest.raises(SpecError, match="tries"):
        ask(Scripted({}), (), Manner(), tries=0)
    with pytest.raises(SpecError, match="examples: 2, but 1 are given"):
        ask(Scripted({}), (), Manner(examples=2), WORKED[:1])
    with pytest.raises(SpecError, match="questions"):
        results(())
