"""README, quickstart and journeys work as they stand: Python and commands run, numbers are published ones."""

import json
import re
import shutil

import pytest

from tests.documents import DOCS, README, ROOT, blocks
from tests.test_docs import gallery_build, published

QUICKSTART = DOCS / "quickstart.md"
SHORTER = {"steps = 200": "steps = 10", "seeds=3": "seeds=2"}
SHORT_RECIPE = "al.Recipe(data=al.FixedSample(size=100), duration=3)"
STUDY_SMOKE = "study anchor/identity --profile smoke --workers 1"


def shorter(text):
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return text


def test_the_readme_runs(installation):
    assert all(long in "".join(blocks(README, "python")) for long in SHORTER)
    shutil.copytree(ROOT / "examples", installation.folder / "examples")
    ran = installation.run_page(README, shorter)
    assert (installation.folder / "identity.png").stat().st_size > 10_000
    assert "previous_token" in ran.printed
    assert "Training shows all of the answers" in ran.printed
    assert {command.split()[0] for command in ran.said} == {
        "tour", "show", "train", "study", "claims", "verify", "report",
    }  # fmt: skip
    assert "agrees at small scale" in ran.said["claims"] or "differs at small scale" in ran.said["claims"]
    assert "left to train" in ran.said["study anchor/* --profile quick --dry-run"]
    assert "within 10m, in this order" in ran.said["verify --budget 10m --dry-run"]
    assert STUDY_SMOKE in ran.said
    assert (installation.folder / "runs" / "report.html").exists()


@pytest.mark.nightly
def test_the_quickstart_runs(installation):
    (text,) = blocks(QUICKSTART, "python")
    assert text.count("seeds=3)") == 1
    ran = installation.run_page(QUICKSTART, lambda text: text.replace("seeds=3)", f"{SHORT_RECIPE}, seeds=2)"))
    assert "previous_token" in ran.printed
    commands = [command.split()[0] for command in ran.said]
    assert commands.count("show") == 3 and commands.count("train") == 2 and commands.count("inspect") == 3
    assert {"tour", "tasks", "runs", "truncate", "memory", "circuit", "studies", "claims", "report"} < set(commands)
    assert STUDY_SMOKE in ran.said
    assert {"heads.html", "circuit.svg"} < {path.name for path in installation.folder.iterdir()}


def test_every_study_opens_and_lists_its_claims(installation):
    """Each in a plain installation, those of pretrained models too."""
    opened = (
        "import anchorlab as al\nfrom anchorlab.names import STUDIES\nprint(*(al.study(one).name for one in STUDIES))"
    )
    names = set(installation.run("python", "-c", opened).split())
    listed = {
        "/".join(entry["id"].split("/")[:2]) for entry in json.loads(installation.run("anchorlab", "claims", "--json"))
    }
    assert len(names) > 40 and listed <= names and "anchor/mechanism" in listed
    assert "lives with" in installation.run("anchorlab", "show", "retrieval/lives-with")


def test_the_readme_is_short_and_shows_the_published_results():
    first = blocks(README, "python")[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 30
    assert len(README.read_text("utf-8").splitlines()) <= 120
    found = published()
    if not found:
        pytest.fail("docs/gallery is empty; `make gallery` writes it")
    text = gallery_build().readme_text(found)
    assert text in README.read_text("utf-8"), f"the README does not show {DOCS / 'gallery'}; run docs/gallery/build.py"


@pytest.mark.parametrize("page", [README, QUICKSTART], ids=["README", "quickstart"])
def test_the_torch_that_is_named_is_the_tested_one(page):
    """Otherwise pip would install one torch by this line, and replace it by another for the constraints."""
    (tested,) = re.findall(
        r"^torch==(\S+)$", (ROOT / "requirements" / "constraints.txt").read_text("utf-8"), re.MULTILINE
    )
    assert re.findall(r"torch==([\w.]+)", page.read_text("utf-8")) == [tested]


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
    assert made == {"accuracy.png", "pattern.png", "ablated.png", "patched.png", "identity", "plus-five", "runs"}
    assert all((installation.folder / name).stat().st_size > 5000 for name in made if name.endswith(".png"))
    (found,) = (said for command, said in ran.said.items() if command.startswith("runs --where"))
    assert ran.addresses["RUN"][:8] in found
