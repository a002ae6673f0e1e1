"""What counts as an answer, and what as a refusal."""

import doctest

import pytest

from anchorlab.language.asking import Said, read_reply, reply

CITIES = ("Amsterdam", "Berlin", "York", "New York")
TEXTS = [
    ("Berlin", "Berlin"),
    (" **berlin**.", "Berlin"),
    ('\n\n"New York"\nbecause', "New York"),
    ("Rose lives in Berlin.", "Berlin"),
    ("rose lives in **Berlin**", "Berlin"),
    ("Berlin, where Peter lives", None),
    ("Berlin Amsterdam", None),
    ("Berliner", None),
    ("Paris", None),
    ("", None),
    ("...", None),
]


@pytest.mark.parametrize(("text", "answer"), TEXTS)
def test_what_counts_as_an_answer(text, answer):
    found = read_reply(Said(text), CITIES, begun="Rose lives in")
    assert (found.answer, found.kind) == (answer, "answer" if answer else "other")


def test_a_text_that_goes_on_only_has_to_begin_with_the_answer():
    for text, answer in ((" Berlin, where Peter lives", "Berlin"), (" New York.", "New York"), (" Berliner", None)):
        assert read_reply(Said(text), CITIES, "Rose lives in", continued=True).answer == answer
    assert read_reply(Said(" 12"), ("1", "2"), continued=True).answer is None


@pytest.mark.parametrize("text", ["I'm sorry, but I can't say.", "As an AI language model", "I cannot determine that"])
def test_refusals_count_apart(text):
    assert read_reply(Said(text), CITIES).kind == "refusal"
    assert read_reply(Said("no", "refusal"), CITIES).kind == "refusal"


def test_the_docstrings_examples_hold():
    assert doctest.testmod(reply).failed == 0
