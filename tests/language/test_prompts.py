"""Prompts, random tokens said twice and the page of English: how many, which words, and that a seed gives the same."""

import re
from collections import Counter

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.language import prompts as of
from anchorlab.language.repeated import repeated_tokens
from anchorlab.language.sample_text import english_page


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def test_generic_words_prepositions_and_sentences_are_those_of_the_paper():
    assert of.generic_words() == ("the", "a", "them")
    prompts = of.prepositions()
    paper = (
        "about above across after against along around at before behind below beneath beside between by during for "
        "from in inside into near of on over through to under with without"
    )
    assert [prompt.text for prompt in prompts] == paper.split()
    assert all(prompt.answer is None and prompt.candidates == () for prompt in prompts)
    prompts = of.paper_sentences()
    assert len({prompt.text for prompt in prompts}) == 40
    assert prompts[0].text == "Inspired painter gazed at pristine canvas, envisioning next creation about"
    assert prompts[7].text == "Majestic oak stood tall, branches reaching skyward above"
    assert prompts[39].text == "Seasoned actor inhaled deeply, embodying character as bright lights engulfed stage with"
    assert {_words(prompt.text)[-1] for prompt in prompts} <= {prompt.text for prompt in of.prepositions()}


def test_an_indirect_object_is_the_name_that_occurs_once_and_sentences_vary():
    prompts = of.indirect_objects()
    assert len(prompts) == len({prompt.text for prompt in prompts}) == 100
    for prompt in prompts:
        names = Counter(word for word in _words(prompt.text)[1:] if word[0].isupper())
        (giver,) = prompt.candidates
        assert names == {prompt.answer: 1, giver: 2}
        assert prompt.text.endswith(" to")
        assert prompt.kind == "indirect object"
    assert len({prompt.answer for prompt in prompts}) > 30
    # the papers' own sentence is among those that can be drawn
    assert sum(prompt.text.startswith("When ") and " gave a " in prompt.text for prompt in prompts) > 10
    for part, least in ((r" an? (\w+),", 15), (r"(?:gave|handed|passed|offered) a (\w+) to", 15), (r"^(\w+)", 4)):
        assert len({re.findall(part, prompt.text)[0] for prompt in prompts}) >= least, part


def test_indirect_objects_follow_a_seed_with_a_and_not_the_and_the_answer_first_in_half():
    for prompt in of.indirect_objects(400, seed=3):
        words = _words(prompt.text.lower())
        assert words.count("a") == 2
        assert "the" not in words
        # "a" and not "an": each place and each object begins with a consonant
        assert not re.search(r"\ba [aeiou]", prompt.text)
    prompts = of.indirect_objects(200)
    first = [prompt.text.index(str(prompt.answer)) < prompt.text.index(prompt.candidates[0]) for prompt in prompts]
    assert sum(first) == 100
    assert first != sorted(first)
    assert first != sorted(first, reverse=True)
    assert of.indirect_objects(20, seed=5) == of.indirect_objects(20, seed=5)
    assert of.indirect_objects(20, seed=5) != of.indirect_objects(20, seed=6)


def test_facts_are_many_different_and_without_their_answer():
    prompts = of.facts()
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
    articles = {"Netherlands", "Philippines", "United States", "United Kingdom", "Gambia", "Bahamas", "Maldives"}
    assert articles.isdisjoint(str(prompt.answer) for prompt in of.facts())


def test_40_sentences_end_in_the_prepositions_and_have_no_the():
    prompts = of.sentences()
    assert len(prompts) == len({prompt.text for prompt in prompts}) == 40
    assert {_words(prompt.text)[-1] for prompt in prompts} == {prompt.text for prompt in of.prepositions()}
    for prompt in prompts:
        assert "the" not in _words(prompt.text.lower())
        assert len(_words(prompt.text)) >= 6
        assert prompt.text == prompt.text.strip()


CITIES = {"Madrid": "Spain", "Paris": "France", "Osaka": "Japan", "Addis Ababa": "Ethiopia", "Quito": "Ecuador"}
ALL = ("country", "capital", "language", "currency", "symbol", "author", "native")


def test_facts_of_seven_relations_in_two_phrasings():
    assert of.relations() == ALL
    one, both = of.facts(ALL), of.facts(ALL, (0, 1))
    assert len(one) == 739
    assert both[0::2] == one
    assert len({prompt.text for prompt in both}) == len(both) == 1478
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
        ("Paul Citroen is a native speaker of", "Dutch", "Dutch"),  # the truncation paper's, section 2.1
        ("The mother tongue of Frida Kahlo is", "Spanish", "Spanish"),
    ],
)
def test_facts_of_each_relation_are_true(text, answer, about):
    found = {prompt.text: prompt for prompt in of.facts(ALL, (0, 1))}[text]
    assert (found.answer, found.unit) == (answer, about)


def test_cities_are_asked_for_the_country_of_and_prompts_taken_evenly():
    found = of.with_country(of.facts(ALL, (0, 1)))
    assert len(found) == 149
    assert found[0].text == "Madrid is located in the country of"
    assert found[0].answer == "Spain"
    prompts = of.facts()
    assert of.evenly(prompts, 3) == (prompts[0], prompts[49], prompts[99])
    assert of.evenly(prompts, 1000) == prompts


def test_the_halves_share_nothing_that_is_asked_about_and_lose_no_prompt():
    first, second = of.split_by_unit(of.facts(ALL, (0, 1)))
    assert {prompt.unit for prompt in first}.isdisjoint(prompt.unit for prompt in second)
    assert abs(len(first) - len(second)) < 20
    prompts = of.facts()
    first, second = of.split_by_unit(prompts)
    assert {prompt.answer for prompt in first}.isdisjoint(prompt.answer for prompt in second)
    assert sorted([*first, *second], key=prompts.index) == list(prompts)
    assert list(first) == sorted(first, key=prompts.index)
    assert abs(len(first) - len(second)) <= 4  # the most cities of one country
    assert of.split_by_unit(prompts) == (first, second)
    assert of.split_by_unit(prompts, seed=1) != (first, second)
    one = of.Prompt("Madrid is located in", "Spain")
    assert of.split_by_unit([one]) == ((one,), ())
    assert of.split_by_unit([]) == ((), ())


def test_random_tokens_are_said_twice_behind_a_beginning_by_their_seed():
    tokens = repeated_tokens(100, sequences=50, half=30, seed=2)
    assert tokens.shape == (50, 60)
    assert tokens.dtype == torch.int64
    assert torch.equal(tokens[:, :30], tokens[:, 30:])
    assert all(len(set(row.tolist())) == 30 for row in tokens)
    plain = repeated_tokens(50, sequences=4, half=8, seed=1)
    begun = repeated_tokens(50, sequences=4, half=8, seed=1, start=0)
    assert begun.shape == (4, 17)
    assert begun[:, 0].tolist() == [0, 0, 0, 0]
    assert torch.equal(begun[:, 1:], plain)
    assert torch.equal(repeated_tokens(49152, 2, 3, seed=4), repeated_tokens(49152, 2, 3, seed=4))
    assert not torch.equal(repeated_tokens(49152, 2, 3, seed=4), repeated_tokens(49152, 2, 3, seed=5))


def test_tokens_are_drawn_evenly_but_excluded_ones_never():
    tokens = repeated_tokens(20, sequences=60, half=5, excluded={0, 7, 19})
    assert set(tokens.flatten().tolist()) == set(range(20)) - {0, 7, 19}
    every = repeated_tokens(6, sequences=3, half=4, excluded=[1, 2])
    assert all(set(row[:4].tolist()) == {0, 3, 4, 5} for row in every)
    counts = torch.bincount(repeated_tokens(10, sequences=4000, half=5)[:, :5].flatten(), minlength=10)
    # each of the 10 tokens is in half of the 4000 sequences; the deviation is sqrt(4000 / 4) = 32
    assert (counts - 2000).abs().max() < 5 * 32


def test_the_page_is_prose_of_a_known_source_in_joined_lines():
    page = english_page()
    assert page.source.startswith("Lewis Carroll, Alice's Adventures in Wonderland (1865)")
    assert page.text.startswith("Alice was beginning to get very tired of sitting by her sister on the bank, and of")
    assert page.text.endswith("So she set to work, and very soon finished off the cake.")
    assert "public domain" not in page.text
    assert 1500 <= len(page.text.split()) <= 3000
    assert "once or twice she had peeped" in page.text  # a line ends after "twice"
    assert "  " not in page.text
    assert len(page.text.split("\n\n")) == 24
    assert page.text.count("\n") == 2 * 23


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: of.facts(phrasings=(0, 2)), "phrasings: there is no 2; choose 0, 1 or both"),
        (lambda: of.facts(phrasings=(-1,)), "phrasings: there is no -1"),
        *((lambda n=n: of.indirect_objects(n), f"n: {n} sentences; choose 1 to 10000") for n in (0, -3, 10_001)),
        (lambda: of.facts(("river",)), "relations"),
        pytest.param(
            lambda: of.Prompt("A sparrow is a", "bird", ("fish")),
            r"candidates: 'fish' is not a list; write .*\('this',\)",
            marks=pytest.mark.untyped,
        ),
        (lambda: repeated_tokens(10, 0, 4, excluded=(0, 1)), "half: .*choose at least 1 of each"),
        (lambda: repeated_tokens(10, 4, 0, excluded=(0, 1)), "half: .*choose at least 1 of each"),
        (lambda: repeated_tokens(10, 1, 9, excluded=(0, 1)), "half: .*9 different tokens, but only 8 .*; choose fewer"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, words):
    with pytest.raises(SpecError, match=words):
        call()
