"""Bigram tables of any text."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.tasks.tables.rebuild import count_bigrams, main, rebuild


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
    assert main([str(text), "--name", "again", "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "again_bigrams.csv").read_text() == table.read_text()


def test_command_runs(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be")
    command = [
        sys.executable,
        "-m",
        "anchorlab.tasks.tables.rebuild",
        str(text),
        "--name",
        "be",
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0 and done.stderr == ""
    assert (tmp_path / "be_bigrams.csv").is_file()


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecError, match="text: has no two characters"):
        count_bigrams("a")
    with pytest.raises(SpecError, match="cannot name a table"):
        rebuild(tmp_path / "text.txt", "../up", tmp_path)
    with pytest.raises(SpecError, match="cannot name a table"):
        rebuild(tmp_path / "text.txt", "uniform", tmp_path)
    assert main([str(tmp_path / "none.txt"), "--name", "x", "--folder", str(tmp_path)]) == 2
    assert "none.txt cannot be read" in capsys.readouterr().err
    (tmp_path / "bad.txt").write_bytes(b"\xff\xff")
    assert main([str(tmp_path / "bad.txt"), "--name", "x", "--folder", str(tmp_path)]) == 2
    assert not list(tmp_path.glob("x_*"))
