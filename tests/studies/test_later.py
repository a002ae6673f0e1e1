"""What an analysis draws at some cost is drawn for its findings alone, and once."""

from dataclasses import replace

from anchorlab.findings import Table
from anchorlab.studies import Analysis, run_study
from anchorlab.studies.later import Later
from tests.studies.test_study import TINY


def test_a_sequence_is_made_when_it_is_first_read_and_once():
    made = []
    found = Later(lambda: made.append("made") or iter("abc"))
    assert made == []
    assert (len(found), found[1], found[-2:], list(found)) == (3, "b", ("b", "c"), ["a", "b", "c"])
    assert made == ["made"]


def test_controls_draw_nothing(tmp_path):
    analysed, drawn = [], []

    def analyse(runs, seeds) -> Analysis:
        def tables():
            drawn.append("table")
            return [Table("Made", "By hand.", ("column",), (("cell",),))]

        analysed.append("runs")
        return Analysis([1.0], tables=Later(tables))

    findings = run_study(replace(TINY, analyse=analyse), "quick", tmp_path, workers=1)
    assert [one.title for one in findings.tables] == ["Made"]
    assert len(analysed) > 1 and drawn == ["table"]
