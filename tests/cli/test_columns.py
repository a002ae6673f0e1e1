"""Where the columns of printed tables go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from anchorlab.cli.terminal.columns import GAP, lay_out
from anchorlab.cli.terminal.output import print_table

words = st.text("abc", min_size=1, max_size=12)
cells = st.lists(words, max_size=4).map(" ".join)


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 4))
    return draw(st.lists(st.lists(cells, min_size=rows, max_size=rows), min_size=1, max_size=8))


@given(tables(), st.integers(45, 120))
def test_every_column_is_there_and_no_word_is_broken(table, room):
    parts = list(lay_out(table, room))
    assert [index for part, _ in parts for index in part[1:]] == list(range(1, len(table)))
    for part, widths in parts:
        assert part[0] == 0
        assert sum(widths) + GAP * (len(widths) - 1) <= room
        if len(table) < 3 or max(map(len, table[0])) + 12 + GAP <= room:
            for index, width in zip(part, widths, strict=True):
                assert all(len(word) <= width for cell in table[index] for word in cell.split())


def test_what_fits_stays_side_by_side_and_the_neediest_column_gets_the_room():
    assert list(lay_out([["a", "bb"], ["one two three", "x"]], 10)) == [([0, 1], [2, 6])]
    assert list(lay_out([["a"], ["bb cc dd"], ["ee ff"]], 16)) == [([0, 1, 2], [1, 7, 4])]
    assert list(lay_out([["key"], ["long"], ["longer"], ["s"]], 11)) == [
        ([0, 1], [3, 4]),
        ([0, 2], [3, 6]),
        ([0, 3], [3, 1]),
    ]


def test_one_column_that_is_too_wide_is_cut_to_the_terminal():
    assert list(lay_out([["a" * 30]], 20)) == [([0], [20])]


@pytest.mark.parametrize("width", [30, 80])
def test_a_cell_that_may_not_be_wrapped_is_one_word(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    columns = ("head", *("detector",) * 5)
    print_table(columns, [("0.0", *(Text("0.33 @0", no_wrap=True) for _ in range(5)))])
    said = capsys.readouterr().out
    assert said.count("0.33 @0") == said.count("detector") == 5
    assert max(map(len, said.splitlines())) <= width
