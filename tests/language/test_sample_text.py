"""The page of English that ships with the package."""

from anchorlab.language.sample_text import english_page


def test_the_page_is_prose_of_a_known_source() -> None:
    page = english_page()
    assert page.source.startswith("Lewis Carroll, Alice's Adventures in Wonderland (1865)")
    assert page.text.startswith("Alice was beginning to get very tired of sitting by her sister on the bank, and of")
    assert page.text.endswith("So she set to work, and very soon finished off the cake.")
    assert "public domain" not in page.text
    assert 1500 <= len(page.text.split()) <= 3000


def test_the_lines_of_a_paragraph_are_joined_by_one_space() -> None:
    text = english_page().text
    assert "once or twice she had peeped" in text  # a line ends after "twice"
    assert "  " not in text
    assert len(text.split("\n\n")) == 24
    assert text.count("\n") == 2 * 23
