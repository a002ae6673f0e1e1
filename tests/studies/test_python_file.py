"""Studies of one's own, found in a Python file."""

import sys

import pytest

from anchorlab.errors import SpecError
from anchorlab.studies.python_file import named_in, studies_in
from tests.studies.study_file import write


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Python's path and modules as they were before."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("held_"):
            del sys.modules[name]


def test_studies_by_name_in_lists_and_in_tables(tmp_path):
    more = """
OTHERS = [STUDY.vary(seeds=1)]
TABLE = {'a': STUDY.vary(seeds=3)}
SAME = STUDY
BASE = al.study('anchor/identity')
"""
    found = studies_in(write(tmp_path, "held_all", more))
    assert [one.name for one in found] == ["own/held_all", "own/held_all-seeds-0", "own/held_all-seeds-0-to-2"]


def test_a_file_is_imported_once_and_reads_its_neighbours(tmp_path):
    (tmp_path / "held_beside.py").write_text("DURATION = 7\n")
    path = write(tmp_path, "held_once", "\nfrom held_beside import DURATION\n")
    assert studies_in(path)[0] is studies_in(path)[0]


def test_a_varied_study_of_ours(tmp_path):
    text = "import anchorlab as al\nSTUDY = al.study('anchor/identity').vary({'model.heads': 3})\n"
    (one,) = studies_in(write(tmp_path, "held_varied", text=text))
    assert one.name == "anchor/identity-heads-3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = undefined\n", r"held_bad\.py, line 2: NameError: name 'undefined' is not defined; correct"),
        ("x = 1\ndef f(:\n", r"held_bad\.py, line 2: SyntaxError: invalid syntax; correct"),
        ("import anchorlab as al\n\nal.Recipe(batch=0)\n", r"held_bad\.py, line 3: batch: input should be greater"),
        ("import sys\n\n\nsys.exit(0)\n", r"held_bad\.py, line 4: ends the program; put what it does"),
        ("def f():\n    raise KeyError('a')\n\nf()\n", r"held_bad\.py, line 2: KeyError: 'a'"),
        ("x = 1\n", r"held_bad\.py: holds no study; write STUDY"),
        ("import anchorlab as al\nS = al.study('anchor/identity')\n", r"held_bad\.py: holds anchor/identity as it is"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, text, message):
    with pytest.raises(SpecError, match=message) as raised:
        studies_in(write(tmp_path, "held_bad", text=text))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["json", "held.dotted", "torch", "this"])
def test_a_file_with_the_name_of_another_module(tmp_path, name):
    with pytest.raises(SpecError, match=r"is the name of another module; rename the file"):
        studies_in(write(tmp_path, name))


def test_no_file(tmp_path):
    with pytest.raises(SpecError, match=r"study: there is no file .*nowhere\.py"):
        studies_in(tmp_path / "nowhere.py")


def test_errors_from_elsewhere_stay_as_they_are(tmp_path):
    with pytest.raises(KeyError), named_in(tmp_path / "held_other.py"):
        raise KeyError("a")
