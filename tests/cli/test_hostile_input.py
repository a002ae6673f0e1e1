"""What is nested, long or large without end, in files and options, and what is no option of Slurm: one line each."""

import os
import sys
import warnings
from pathlib import Path

import pytest

from anchorlab.tasks.build import read_toml

DEEP = 100_000
NESTED = {
    "lists": "x = " + "[" * DEEP + "]" * DEEP,
    "names": "x" + ".a" * 5000 + " = 1",
    "some lists": "x = " + "[" * 300 + "]" * 300,
}


@pytest.mark.parametrize("command", ["show", "study", "sweep"])
@pytest.mark.parametrize("case", NESTED)
def test_a_file_nested_deep_is_one_line(anchorlab, case, command):
    Path("mine.toml").write_text(NESTED[case])
    said = anchorlab(command, "mine.toml")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "mine.toml: is nested deeper than 64 levels; correct the file" in said.err


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000, str(2**63)], ids=["decimal", "hexadecimal", "2**63"])
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("show", "[operations]\n3 = {}"),
        ("study", 'study = "anchor/identity"\nseeds = {}'),
        ("sweep", 'task = "anchor/identity"\n[grid]\nmodel.layers = [{}]'),
    ],
)
def test_a_number_beyond_64_bits_is_one_line(anchorlab, command, text, number):
    Path("mine.toml").write_text(text.format(number))
    said = anchorlab(command, "mine.toml")
    message = "anchorlab: mine.toml: holds a whole number of more than 64 bits; correct the file\n"
    assert (said.code, said.err) == (2, message)


def test_the_largest_number_of_toml_is_read(tmp_path):
    (tmp_path / "mine.toml").write_text(f"low = {-(2**63)}\nhigh = {2**63 - 1}")
    assert read_toml(tmp_path / "mine.toml", "file") == {"low": -(2**63), "high": 2**63 - 1}


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_file_without_an_end_is_not_waited_for(anchorlab, make):
    make(Path("mine.toml"))
    said = anchorlab("show", "mine.toml")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.startswith("anchorlab: mine.toml: cannot be read as TOML: is ")


def test_a_large_file_is_not_read(anchorlab):
    Path("mine.toml").write_text("#" * (2**24 + 1))
    said = anchorlab("show", "mine.toml")
    assert (said.code, said.err.count("\n")) == (2, 1) and "is larger than 16777216 bytes" in said.err


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("show", 'family = "{}"'),
        ("study", 'study = "{}"'),
        ("sweep", 'task = "{}"\n[grid]\nmodel.layers = [1]'),
        ("sweep", 'task = "anchor/identity"\nmetric = "{}"\n[grid]\nmodel.layers = [1]'),
    ],
)
def test_a_long_name_is_cut(anchorlab, command, text):
    Path("mine.toml").write_text(text.format("a" * 10**6))
    said = anchorlab(command, "mine.toml")
    assert (said.code, said.err.count("\n")) == (2, 1) and len(said.err) < 5000


@pytest.mark.parametrize("option", ["--model.layers", "--recipe.data", "--members.seeds"])
def test_an_option_nested_deep_is_one_line(anchorlab, option):
    said = anchorlab("train", "anchor/identity", option, "[" * DEEP + "]" * DEEP)
    assert (said.code, said.err.count("\n"), said.new_files) == (2, 1, set())
    assert f"{option.removeprefix('--')}: is nested deeper than 64 levels" in said.err


def test_a_field_with_endless_names_is_one_line(anchorlab):
    said = anchorlab("train", "anchor/identity", "--model" + ".a" * 5000, "1")
    assert (said.code, said.err.count("\n")) == (2, 1) and "is nested deeper than 64 levels" in said.err
    assert len(said.err) < 1000


STUDY = ("truncation/feedforward-choices", "--profile", "smoke")


@pytest.mark.parametrize("sign", ["\n", "\r", "\x0b", "\x85", "\u2028", "\x1b", "\0"])
def test_a_control_sign_in_an_option_of_slurm_is_refused(anchorlab, sign):
    """A line of a script ends at some of them, and what follows would be run."""
    said = anchorlab("train", "anchor/identity", "--on", "slurm", "--slurm.comment", f"a{sign}touch hacked")
    assert (said.code, said.err.count("\n"), said.new_files) == (2, 1, set())
    assert said.err.endswith("slurm.comment: holds a control sign; remove it\n")


def test_a_warning_is_printable(anchorlab, monkeypatch, recwarn):
    monkeypatch.setattr(
        sys.modules["anchorlab.cli.main"], "_run", lambda words: warnings.warn("Glyph 27 (\x1b)\nlost", stacklevel=1)
    )
    anchorlab("runs")
    assert [str(one.message) for one in recwarn] == ["Glyph 27 (\\x1b)\nlost"]
