"""What a newcomer wants to do works as `docs/journeys.md` shows it, in a few lines each."""

import re

import pytest

from tests.documents import DOCS

PAGE = DOCS / "journeys.md"
MOST_LINES = 8


def test_none_is_long():
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        title = section.splitlines()[0]
        code = re.findall(r"^```\w+\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        lines = [line for line in "".join(code).splitlines() if line.strip()]
        assert 1 <= len(lines) <= MOST_LINES, title


@pytest.mark.nightly
def test_all_work_one_after_the_other(installation):
    ran = installation.run_page(PAGE)
    made = {path.name for path in installation.folder.iterdir()}
    assert made == {
        "accuracy.png",
        "pattern.png",
        "ablated.png",
        "patched.png",
        "identity",
        "plus-five",
        "runs",
    }
    assert all((installation.folder / name).stat().st_size > 5000 for name in made if name.endswith(".png"))
    (found,) = (said for command, said in ran.said.items() if command.startswith("runs --where"))
    assert ran.addresses["RUN"][:8] in found
