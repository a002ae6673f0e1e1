"""`anchorlab submit` and `anchorlab worker`: plans, scripts, and the runs that workers leave."""

import pytest

pytestmark = pytest.mark.nightly

STUDY = ("truncation/feedforward-choices", "--profile", "smoke")


@pytest.mark.slow
def test_what_is_submitted_is_trained_by_a_worker(anchorlab, workplace, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    said = anchorlab("submit", *STUDY, "--slurm", "--partition gpu --time 4:00:00 --exclusive", "--workers", "3")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "#!/bin/bash" and "#SBATCH --array=1-3" in lines
    assert {"#SBATCH --partition gpu", "#SBATCH --time 4:00:00", "#SBATCH --exclusive"} <= set(lines)
    assert lines[-1].startswith("exec ") and lines[-1].endswith(
        f" -m anchorlab worker {workplace / 'runs'} --device cpu --until-empty"
    )
    assert "8 chunks planned; there is no sbatch here" in said.err
    told = anchorlab("worker", "--until-empty")
    assert (told.code, told.out) == (0, "8 chunks trained; nothing is left to do\n")
    assert told.err.count(" merged ") == 4
    again = anchorlab("submit", *STUDY)
    assert again.out.startswith("nothing is left to train")


def test_a_module_that_cannot_be_imported_is_named(anchorlab):
    said = anchorlab("worker", "--import", "no_such_module", "--until-empty")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "import: no_such_module cannot be imported" in said.err


@pytest.mark.parametrize("option", ["--workers", "--chunks"])
def test_no_workers_or_chunks_are_refused(anchorlab, option):
    said = anchorlab("submit", *STUDY, option, "0")
    assert (said.code, said.new_files) == (2, set())
    assert f"{option.removeprefix('--')}: 0 is not a number" in said.err
