"""A claim's sentence says by itself what is claimed: `anchorlab claims` may show it alone."""

import re

import pytest

from anchorlab.studies import STUDIES, study

LEANING = re.compile(
    r"(And|Also|But|Here|In it|In the order|It|Its|Of these|So|Such|That|Their|Then|There|These|They|This|Those|With it"
    r"|With them|Without it|Without them)\b",
    re.IGNORECASE,
)
"""The beginnings of a sentence that leans on the one before."""


@pytest.mark.parametrize("name", STUDIES)
def test_no_claim_leans_on_the_one_before(name):
    statements = [measure.statement for measure in study(name).claims]
    assert not [one for one in statements if LEANING.match(one)]
    assert len(set(statements)) == len(statements)


@pytest.mark.parametrize("sentence", ["So does the order", "It fits", "With it, depth helps", "That falls"])
def test_what_leans(sentence):
    assert LEANING.match(sentence)


@pytest.mark.parametrize("sentence", ["Iterated maps agree", "Social models learn", "With items it fits", "Thesis"])
def test_what_does_not(sentence):
    assert not LEANING.match(sentence)
