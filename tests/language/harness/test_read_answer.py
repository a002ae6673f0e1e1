"""Texts that lm-evaluation-harness generates, read as here."""

import pytest

from anchorlab.language.harness.lm_eval import read_answer

QUESTION = {"begun": "Rose lives in", "answer": "Berlin", "candidates": ["Amsterdam", "Berlin"]}


@pytest.mark.parametrize(
    ("said", "right", "acceptable"),
    [
        (" Berlin, where Peter lives", 1, 1),
        ("\n\n**berlin**.", 1, 1),
        ("Rose lives in Berlin", 1, 1),
        (" Amsterdam\nBerlin", 0, 1),
        (" Berliner", 0, 0),
        ("", 0, 0),
    ],
)
def test_the_first_words_count(said, right, acceptable):
    assert read_answer(QUESTION, [said, " Berlin"]) == {"acc": right, "acceptable": acceptable}
