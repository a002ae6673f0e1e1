"""Prompts: how many, which words, and that a seed gives the same ones."""

import re
from collections import Counter

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.prompts import (
    Prompt,
    facts,
    generic_words,
    indirect_objects,
    prepositions,
    sentences,
    split_by_answer,
)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def test_the_generic_words_are_those_the_paper_names() -> None:
    assert generic_words() == ("the", "a", "them")


def test_an_indirect_object_is_the_name_that_occurs_once() -> None:
    prompts = indirect_objects()
    assert len(prompts) == len({prompt.text for prompt in prompts}) == 100
    for prompt in prompts:
        names = Counter(word for word in _words(prompt.text)[1:] if word[0].isupper())
        (giver,) = prompt.candidates
        assert names == {prompt.answer: 1, giver: 2}
        assert prompt.text.endswith(" to")
        assert prompt.kind == "indirect object"


def test_indirect_objects_have_a_and_not_the() -> None:
    for prompt in indirect_objects(400, seed=3):
        words = _words(prompt.text.lower())
        assert words.count("a") == 2
        assert "the" not in words
        # "a" and not "an": each place and each object begins with a consonant
        assert not re.search(r"\ba [aeiou]", prompt.text)


def test_the_answer_comes_first_in_half_of_the_sentences() -> None:
    prompts = indirect_objects(200)
    first = [prompt.text.index(str(prompt.answer)) < prompt.text.index(prompt.candidates[0]) for prompt in prompts]
    assert sum(first) == 100
    assert first != sorted(first)
    assert first != sorted(first, reverse=True)


def test_indirect_objects_vary_in_names_places_objects_and_form() -> None:
    prompts = indirect_objects()
    assert len({prompt.answer for prompt in prompts}) > 30
    # the papers' own sentence is among those that can be drawn
    assert sum(prompt.text.startswith("When ") and " gave a " in prompt.text for prompt in prompts) > 10
    for part, least in ((r" an? (\w+),", 15), (r"(?:gave|handed|passed|offered) a (\w+) to", 15), (r"^(\w+)", 4)):
        assert len({re.findall(part, prompt.text)[0] for prompt in prompts}) >= least, part


def test_a_seed_gives_the_same_indirect_objects() -> None:
    assert indirect_objects(20, seed=5) == indirect_objects(20, seed=5)
    assert indirect_objects(20, seed=5) != indirect_objects(20, seed=6)


@pytest.mark.parametrize("n", [0, -3, 10_001])
def test_a_number_of_sentences_out_of_range_is_refused(n: int) -> None:
    with pytest.raises(SpecError, match=f"n: {n} sentences; choose 1 to 10000"):
        indirect_objects(n)


def test_facts_are_many_different_and_without_their_answer() -> None:
    prompts = facts()
    assert len(prompts) == len({prompt.text for prompt in prompts}) == 149
    countries = {prompt.answer for prompt in prompts}
    assert len(countries) == 84
    assert max(Counter(prompt.answer for prompt in prompts).values()) <= 4
    for prompt in prompts:
        assert prompt.text.endswith(" is located in")
        assert str(prompt.answer) not in prompt.text
        assert "the" not in _words(prompt.text.lower())
        assert set(prompt.candidates) == countries - {prompt.answer}
        assert len(prompt.candidates) == 83


@pytest.mark.parametrize(
    ("place", "country"),
    [("Madrid", "Spain"), ("Paris", "France"), ("Osaka", "Japan"), ("Addis Ababa", "Ethiopia"), ("Quito", "Ecuador")],
)
def test_facts_are_true(place: str, country: str) -> None:
    assert {prompt.text: prompt.answer for prompt in facts()}[f"{place} is located in"] == country


def test_no_country_takes_an_article() -> None:
    articles = {"Netherlands", "Philippines", "United States", "United Kingdom", "Gambia", "Bahamas", "Maldives"}
    assert articles.isdisjoint(str(prompt.answer) for prompt in facts())


def test_the_prepositions_are_the_30_of_the_paper() -> None:
    prompts = prepositions()
    paper = (
        "about above across after against along around at before behind below beneath beside between by during for "
        "from in inside into near of on over through to under with without"
    )
    assert [prompt.text for prompt in prompts] == paper.split()
    assert all(prompt.answer is None and prompt.candidates == () for prompt in prompts)


def test_40_sentences_end_in_the_prepositions_and_have_no_the() -> None:
    prompts = sentences()
    assert len(prompts) == len({prompt.text for prompt in prompts}) == 40
    assert {_words(prompt.text)[-1] for prompt in prompts} == {prompt.text for prompt in prepositions()}
    for prompt in prompts:
        assert "the" not in _words(prompt.text.lower())
        assert len(_words(prompt.text)) >= 6
        assert prompt.text == prompt.text.strip()


def test_the_halves_share_no_answer_and_lose_no_prompt() -> None:
    prompts = facts()
    first, second = split_by_answer(prompts)
    assert {prompt.answer for prompt in first}.isdisjoint(prompt.answer for prompt in second)
    assert sorted([*first, *second], key=prompts.index) == list(prompts)
    assert list(first) == sorted(first, key=prompts.index)
    assert abs(len(first) - len(second)) <= 4  # the most cities of one country
    assert split_by_answer(prompts) == (first, second)
    assert split_by_answer(prompts, seed=1) != (first, second)


def test_halves_of_few_prompts() -> None:
    one = Prompt("Madrid is located in", "Spain")
    assert split_by_answer([one]) == ((one,), ())
    assert split_by_answer([]) == ((), ())
