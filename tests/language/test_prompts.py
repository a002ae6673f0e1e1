"""Prompts: how many, which words, and that a seed gives the same ones."""

import re
from collections import Counter

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.prompts import (
    Prompt,
    evenly,
    facts,
    generic_words,
    indirect_objects,
    paper_sentences,
    prepositions,
    relations,
    sentences,
    split_by_unit,
    with_country,
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


def test_the_papers_sentences_are_those_of_its_appendix() -> None:
    prompts = paper_sentences()
    assert len({prompt.text for prompt in prompts}) == 40
    assert prompts[0].text == "Inspired painter gazed at pristine canvas, envisioning next creation about"
    assert prompts[7].text == "Majestic oak stood tall, branches reaching skyward above"
    assert prompts[39].text == "Seasoned actor inhaled deeply, embodying character as bright lights engulfed stage with"
    assert {_words(prompt.text)[-1] for prompt in prompts} <= {prompt.text for prompt in prepositions()}


CITIES = {"Madrid": "Spain", "Paris": "France", "Osaka": "Japan", "Addis Ababa": "Ethiopia", "Quito": "Ecuador"}
ALL = ("country", "capital", "language", "currency", "symbol", "author")


def test_facts_of_six_relations_in_two_phrasings() -> None:
    assert relations() == ALL
    one, both = facts(ALL), facts(ALL, (0, 1))
    assert len(one) == 627
    assert both[0::2] == one
    assert len({prompt.text for prompt in both}) == len(both) == 1254
    assert min(Counter(prompt.kind for prompt in one).values()) >= 60
    for first, second in zip(both[0::2], both[1::2], strict=True):
        assert (first.answer, first.candidates, first.unit) == (second.answer, second.candidates, second.unit)
        assert first.text != second.text
    for prompt in both:
        assert prompt.answer not in _words(prompt.text)
        assert set(prompt.candidates) == {other.answer for other in one if other.kind == prompt.kind} - {prompt.answer}


@pytest.mark.parametrize(
    ("text", "answer", "about"),
    [
        *((f"{city} is located in", country, country) for city, country in CITIES.items()),
        ("Seville is a city in", "Spain", "Spain"),
        ("The capital of Spain is", "Madrid", "Spain"),
        ("Most people in Spain speak", "Spanish", "Spain"),
        ("The currency of South Korea is called", "won", "South Korea"),
        ("The chemical symbol of gold is", "Au", "gold"),
        ("Chemists write iron as", "Fe", "iron"),
        ("The book Anna Karenina was written by", "Leo Tolstoy", "Leo Tolstoy"),
    ],
)
def test_facts_of_each_relation_are_true(text: str, answer: str, about: str) -> None:
    found = {prompt.text: prompt for prompt in facts(ALL, (0, 1))}[text]
    assert (found.answer, found.unit) == (answer, about)


def test_an_unknown_relation_is_refused() -> None:
    with pytest.raises(SpecError, match="relations"):
        facts(("river",))


def test_cities_are_asked_for_the_country_of() -> None:
    found = with_country(facts(ALL, (0, 1)))
    assert len(found) == 149
    assert found[0].text == "Madrid is located in the country of"
    assert found[0].answer == "Spain"


def test_prompts_evenly_out_of_more() -> None:
    prompts = facts()
    assert evenly(prompts, 3) == (prompts[0], prompts[49], prompts[99])
    assert evenly(prompts, 1000) == prompts


def test_the_halves_share_nothing_that_is_asked_about() -> None:
    first, second = split_by_unit(facts(ALL, (0, 1)))
    assert {prompt.unit for prompt in first}.isdisjoint(prompt.unit for prompt in second)
    assert abs(len(first) - len(second)) < 20


def test_the_halves_share_no_answer_and_lose_no_prompt() -> None:
    prompts = facts()
    first, second = split_by_unit(prompts)
    assert {prompt.answer for prompt in first}.isdisjoint(prompt.answer for prompt in second)
    assert sorted([*first, *second], key=prompts.index) == list(prompts)
    assert list(first) == sorted(first, key=prompts.index)
    assert abs(len(first) - len(second)) <= 4  # the most cities of one country
    assert split_by_unit(prompts) == (first, second)
    assert split_by_unit(prompts, seed=1) != (first, second)


def test_halves_of_few_prompts() -> None:
    one = Prompt("Madrid is located in", "Spain")
    assert split_by_unit([one]) == ((one,), ())
    assert split_by_unit([]) == ((), ())
