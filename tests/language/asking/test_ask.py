"""How questions are put, what counts as an answer, and that they are asked until one is acceptable."""

import doctest
from dataclasses import replace

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.asking import Manner, Request, Said, Turn, accuracy, ask, read_reply, reply, results
from anchorlab.language.harness.lm_eval import read_answer
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
            right.prompt: ["0"], late.prompt: ["hm", "I'm sorry", "0"], wrong.prompt: ["1"],
            never.prompt: ["hm", "hm", "hm"],
        }
    )  # fmt: skip
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


def test_a_question_is_put_as_a_chat_as_text_and_without_premises():
    request = Manner().request(QUESTION)
    assert request == Request((Turn("user", QUESTION.prompt),), chat=True)
    assert QUESTION.instruction in request.turns[0].text
    manner = Manner(chat=False, begun=True, instruction=False, examples=2, tokens=5)
    request = manner.request(QUESTION, WORKED, temperature=0.5, seed=3)
    first, second = WORKED[:2]
    assert request.text == (
        f"{first.text}\n{first.begun} {first.answer}\n\n"
        f"{second.text}\n{second.begun} {second.answer}\n\n"
        f"{QUESTION.text}\n{QUESTION.begun}"
    )
    assert (request.temperature, request.seed, request.tokens, request.stop) == (0.5, 3, 5, "\n")
    manner = Manner(chat=False, begun=True, instruction=False, examples=1)
    asked = manner.without_premises(QUESTION, WORKED)
    last = QUESTION.text.split("\n")[-1]
    assert asked.turns[-1].text == last and last.startswith("What is the value of")
    assert asked.turns[:-1] == manner.request(QUESTION, WORKED).turns[:-1]
    assert asked.begun == QUESTION.begun and asked.stop == "\n"


CITIES = ("Amsterdam", "Berlin", "York", "New York")
TEXTS = [
    ("Berlin", "Berlin"), (" **berlin**.", "Berlin"), ('\n\n"New York"\nbecause', "New York"),
    ("Rose lives in Berlin.", "Berlin"), ("rose lives in **Berlin**", "Berlin"), ("Berlin, where Peter lives", None),
    ("Berlin Amsterdam", None), ("Berliner", None), ("Paris", None), ("", None), ("...", None),
    ("“Berlin”", "Berlin"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "answer"), TEXTS)
def test_what_counts_as_an_answer(text, answer):
    found = read_reply(Said(text), CITIES, begun="Rose lives in")
    assert (found.answer, found.kind) == (answer, "answer" if answer else "other")


def test_a_text_that_goes_on_only_has_to_begin_with_the_answer():
    for text, answer in ((" Berlin, where Peter lives", "Berlin"), (" New York.", "New York"), (" Berliner", None)):
        assert read_reply(Said(text), CITIES, "Rose lives in", continued=True).answer == answer
    assert all(read_reply(Said(text), ("1", "2"), continued=True).answer is None for text in (" 12", "1.5", "1,200"))
    assert read_reply(Said("1, as above"), ("1", "2"), continued=True).answer == "1"
    assert doctest.testmod(reply).failed == 0


@pytest.mark.parametrize(
    "text",
    ["I'm sorry, but I can't say.", "I’m sorry", "I can’t", "As an AI language model", "I cannot determine that"],
)
def test_refusals_count_apart(text):
    assert read_reply(Said(text), CITIES).kind == "refusal"
    assert read_reply(Said("no", "refusal"), CITIES).kind == "refusal"


OF_HARNESS = {"begun": "Rose lives in", "answer": "Berlin", "candidates": ["Amsterdam", "Berlin"]}


@pytest.mark.parametrize(
    ("said", "right", "acceptable"),
    [
        (" Berlin, where Peter lives", 1, 1), ("\n\n**berlin**.", 1, 1), ("Rose lives in Berlin", 1, 1),
        (" Amsterdam\nBerlin", 0, 1), (" Berliner", 0, 0), ("", 0, 0),
    ],
)  # fmt: skip
def test_the_first_words_count(said, right, acceptable):
    assert read_answer(OF_HARNESS, [said, " Berlin"]) == {"acc": right, "acceptable": acceptable}


def test_intervals_are_wilsons():
    # 8 of 10: centre (0.8 + z^2/20) / (1 + z^2/10), half width z sqrt(0.016 + z^2/400) / (1 + z^2/10), z = 1.959964
    found = accuracy([True] * 8 + [False] * 2, 0.25)
    assert (found.low, found.high) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    assert found.share == 0.8 and found.beats_guessing
    assert not accuracy([True] * 3 + [False] * 7, 0.25).beats_guessing
