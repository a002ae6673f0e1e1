"""Bigram tables of any text."""

import json
from pathlib import Path

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.tasks.recall.tables.rebuild import count_bigrams, rebuild


def test_counts_of_a_small_text() -> None:
    characters, counts = count_bigrams("abba!\U0001f642")
    assert characters == ("!", "a", "b", "\U0001f642")
    expected = np.zeros((4, 4), dtype=int)
    for first, second in ((1, 2), (2, 2), (2, 1), (1, 0), (0, 3)):
        expected[first, second] += 1
    assert np.array_equal(counts, expected)


def test_files(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("aab\r\n", newline="")
    table, index = rebuild(text, "small", tmp_path)
    assert json.loads(index.read_text()) == ["\n", "\r", "a", "b"]
    assert table.read_text() == "0,0,0,0\n1,0,0,0\n0,0,1,1\n0,1,0,0\n"


def test_texts_and_names_without_a_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="text: has fewer than two characters"):
        count_bigrams("a")
    for name in ("../up", "uniform"):
        with pytest.raises(SpecError, match="cannot name a table"):
            rebuild(tmp_path / "text.txt", name, tmp_path)
    (tmp_path / "bad.txt").write_bytes(b"\xff\xff")
    for name in ("none", "bad"):
        with pytest.raises(SpecError, match=f"{name}.txt cannot be read"):
            rebuild(tmp_path / f"{name}.txt", "x", tmp_path)
    assert not list(tmp_path.glob("x_*"))
