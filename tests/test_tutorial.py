"""The notebook of the docs: what it shows came from its own code, and the code still runs."""

import re

import nbformat
import pytest

from tests.documents import DOCS
from tests.test_notebook import execute

PAGE = DOCS / "tutorial" / "compose_or_memorise.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(PAGE, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_it_was_run_once_from_top_to_bottom(notebook):
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [each for cell in cells for each in cell.outputs if each.output_type == "error"]


def test_it_is_small_enough_for_a_page_and_has_no_path_of_a_machine():
    assert not re.search(r"/(home|root|tmp|work|Users)/", PAGE.read_text("utf-8"))
    assert PAGE.stat().st_size < 1_000_000


def test_its_verdicts_are_those_of_its_claims(notebook):
    shown = next(
        each.data["text/html"]
        for cell in code_cells(notebook)
        for each in cell.outputs
        if "run_study" in cell.source and "<caption>Claims" in each.get("data", {}).get("text/html", "")
    )
    said = next(cell.source for cell in notebook.cells if cell.source.startswith("## What came out"))
    verdicts = re.findall(r"<tr><td>[✓✗] (.*?)</td>", shown)
    assert re.findall(r"^- \*\*(.*?)\*\*", said, re.MULTILINE) == [verdict.capitalize() for verdict in verdicts]
    assert len(verdicts) == 3


@pytest.mark.slow
@pytest.mark.nightly
def test_its_code_runs(notebook, tmp_path):
    (parameters,) = (cell for cell in code_cells(notebook) if "parameters" in cell.metadata.get("tags", ()))
    assert "steps = 2200" in parameters.source
    parameters.source = "steps = 10\nfirst_look, fresh = range(3), range(3, 5)"
    execute(notebook, tmp_path, tmp_path)
    ends = code_cells(notebook)[-1].outputs
    assert "image/png" in ends[0].data
