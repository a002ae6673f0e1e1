"""The README works as it stands: its Python runs, its command lines run, its numbers are the published ones."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from anchorlab.cli import main
from tests.documents import DOCS, README, ROOT, blocks, command_lines
from tests.test_docs import gallery_build, published

SHORTER = {"steps = 200": "steps = 10", "seeds=3": "seeds=2"}


@pytest.mark.slow
def test_python_blocks_run(tmp_path):
    source = "\n".join(blocks(README, "python"))
    for long, short in SHORTER.items():
        assert long in source
        source = source.replace(long, short)
    script = tmp_path / "readme.py"
    script.write_text(source, "utf-8")
    settings = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "ANCHORLAB_STORE": str(tmp_path / "runs")}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "identity.png").stat().st_size > 10_000
    assert "previous_token" in done.stdout
    assert "Training shows all of the answers" in done.stdout


def test_thirty_lines_are_enough():
    first = blocks(README, "python")[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 30


def test_the_readme_is_short():
    assert len(README.read_text("utf-8").splitlines()) <= 120


@pytest.mark.slow
def test_command_lines_run(tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)  # what the commands write by a relative path stays out of the checkout
    monkeypatch.setenv("ANCHORLAB_STORE", str(tmp_path / "runs"))
    lines = command_lines(README, "anchorlab")
    assert {"show", "train", "study", "claims", "report"} <= {line[0] for line in lines}
    # In the README the studies come last and take minutes; one of them is run here, under its smoke profile.
    first = ["study", "anchor/identity", "--profile", "quick"]
    assert lines.count(first) == 1
    smoke = [*first[:-1], "smoke", "--workers", "1"]
    order = sorted((line for line in lines if line[0] != "study"), key=lambda line: line[0] in ("claims", "report"))
    index = next(at for at, line in enumerate(order) if line[0] in ("claims", "report"))
    for line in [*order[:index], smoke, *order[index:]]:
        if line[0] == "train":
            line = [*line, "--recipe.duration", "3", "--recipe.evaluation.size", "20", "--workers", "1"]
        if "RUN" in line:
            assert main(["runs", "--json"]) == 0
            address = json.loads(capsys.readouterr().out)[0]["run"]
            line = [address if word == "RUN" else word for word in line]
        assert main(line) == 0, (line, capsys.readouterr().err)
        capsys.readouterr()
    assert (tmp_path / "runs" / "report.html").exists()


def test_results_are_the_published_ones():
    found = published()
    if not found:
        pytest.fail("docs/gallery is empty; `make gallery` writes it")
    text = gallery_build().readme_text(found)
    assert text in README.read_text("utf-8"), f"the README does not show {DOCS / 'gallery'}; run docs/gallery/build.py"
