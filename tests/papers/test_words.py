"""The names and words that the package ships are those of its tasks, models and studies."""

from anchorlab.names import STUDIES
from anchorlab.papers.words import FILE, statements, words_of_today
from anchorlab.studies import study


def test_the_words_are_those_of_today_and_read_as_they_were_written():
    assert FILE.read_text("utf-8") == words_of_today(), "run `make words`"
    assert statements() == {name: study(name).statements for name in STUDIES}
