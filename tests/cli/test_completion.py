"""Completion: what a shell offers at TAB, in a real bash too."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from anchorlab.cli.main import app
from anchorlab.cli.options.complete import completion_words
from tests.cli.test_start_up import ASK, HEAVY

FIRST, SECOND = "0123456789abcdef0123", "01ffffffffffffffffff"


@pytest.fixture
def store(workplace):
    """Two runs of which the names alone matter, and things that are no runs."""
    for address in (FIRST, SECOND):
        (workplace / "runs" / address).mkdir(parents=True)
    (workplace / "runs" / FIRST / "spec.json").write_text(json.dumps({"label": "identity"}))
    (workplace / "runs" / "studies").mkdir()
    return workplace


@pytest.fixture
def offered(anchorlab):
    """What is offered for words that are being typed, without what does not begin as the last one."""

    def ask(*words: str) -> list[str]:
        said = anchorlab("__complete", *words)
        assert (said.code, said.new_files) == (0, set())
        lines = said.out.split("\x1fbegin\n")[1].splitlines()
        begun = words[-1].rpartition("=")[2]
        return [line for line in lines if line.startswith(begun)]

    return ask


@pytest.mark.parametrize("words", [("train",), ("show",), ("check",), ("export",)])
def test_tasks(offered, words):
    assert offered(*words, "anchor/re") == ["anchor/reading-comprehension", "anchor/recitation"]


def test_tasks_beside_modules_of_users_studies_and_kinds_of_models(offered):
    assert offered("train", "--import", "no_such_module", "anchor/rea") == ["anchor/reading-comprehension"]
    assert offered("--import=no_such_module", "show", "anchor/rea") == ["anchor/reading-comprehension"]
    assert offered("study", "truncation/n") == ["truncation/noise-first"]
    assert offered("study", "anchor/identity", "anchor/o") == ["anchor/order", "anchor/open-questions"]
    assert offered("study", "--profile", "quick", "--model.heads", "3", "anchor/f") == ["anchor/frequency"]
    assert offered("claims", "language/h") == ["language/heads"]
    assert offered("models", "rec") == ["recall", "recall-one-layer"]
    assert offered("train", "anchor/identity", "--model.layers", "2", "--model.kind", "l") == ["lstm"]
    assert offered("study", "anchor/identity", "--model.kind=f") == ["fnn"]


@pytest.mark.parametrize(
    "words", [("inspect",), ("circuit",), ("memory",), ("truncate",), ("runs", "show"), ("runs", "remove")]
)
def test_runs_of_the_default_store_with_their_labels(offered, store, words):
    assert offered(*words, "01") == [f"{FIRST}\tidentity", SECOND]
    assert offered(*words, "012") == [f"{FIRST}\tidentity"]


def test_both_runs_of_a_comparison_and_runs_of_another_store(offered, store, monkeypatch):
    assert offered("runs", "diff", "") == [f"{FIRST}\tidentity", SECOND]
    assert offered("runs", "diff", FIRST, "01f") == [SECOND]
    (store / "other" / SECOND).mkdir(parents=True)
    assert offered("inspect", "--store", "other", "") == [SECOND]
    monkeypatch.setenv("ANCHORLAB_STORE", str(store / "other"))
    assert offered("inspect", "") == [SECOND]
    assert offered("inspect", "--store", "nowhere", "") == []


def test_files_once_their_name_is_begun(offered, workplace):
    for name in ("mine.toml", "mine.py", "mine.txt", ".mine.py", "my/deep.toml"):
        (workplace / name).parent.mkdir(exist_ok=True)
        (workplace / name).write_text("")
    assert not any("mine" in one for one in offered("study", ""))
    assert offered("study", "m") == ["mine.py", "mine.toml", "my/"]
    assert offered("train", "m") == ["mine.toml", "my/"]
    assert offered("study", "my/") == ["my/deep.toml"]
    assert offered("study", "no/") == []


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["study", "x"], ["study", "x"]),
        (["--model.layers", "2", "x"], ["--model.FIELD=layers=2", "x"]),
        (["--model.layers", "2", "--model.kind", "l"], ["--model.FIELD=layers=2", "--model.kind", "l"]),
        (["--model.layers=2", "x"], ["--model.FIELD=layers=2", "x"]),
        (["--model.layers", "--model.heads", "2", "x"], ["--model.layers", "--model.heads", "2", "x"]),
        ([""], [""]),
    ],
)
def test_options_on_the_line_are_those_of_a_whole_line(words, known):
    assert completion_words(words) == known


@pytest.mark.slow
@pytest.mark.parametrize("words", [("study", "an"), ("train", "an"), ("models", ""), ("runs", "show", "0")])
def test_nothing_heavy_is_imported(store, words):
    text = ASK.format(arguments=["__complete", *words], heavy=HEAVY)
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout.splitlines()[-1]) == [0, []]


BASH = r"""
PATH="$1:$PATH"
source "$2"
shift 2
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_anchorlab
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def in_bash(store, monkeypatch):
    """What bash itself puts in place of the last word."""
    if not (bash := shutil.which("bash")):
        pytest.skip("there is no bash")
    (store / "bin").mkdir()
    command = store / "bin" / "anchorlab"
    command.write_text(f"#!{sys.executable}\nimport sys\nfrom anchorlab.cli import main\nsys.exit(main())\n")
    command.chmod(0o755)
    script = store / "completion.bash"
    script.write_text(app.generate_completion(shell="bash"))

    def complete(*words: str) -> list[str]:
        arguments = [bash, "--norc", "-c", BASH, "bash", str(command.parent), str(script), "anchorlab", *words]
        done = subprocess.run(arguments, cwd=store, env=dict(os.environ), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return complete


@pytest.mark.slow
def test_in_a_real_bash(in_bash):
    assert in_bash("swe") == ["sweep"]
    assert in_bash("study", "retrieval/k") == ["retrieval/known-depth"]
    assert in_bash("study", "anchor/identity", "language/n") == ["language/noise"]
    assert in_bash("train", "recall/") == ["recall/noisy"]
    assert in_bash("models", "dec") == ["decoder"]
    assert in_bash("runs", "show", "012") == [FIRST]
    assert in_bash("inspect", "01f") == [SECOND]
    assert in_bash("train", "anchor/identity", "--model.kind", "ls") == ["lstm"]
    assert in_bash("train", "anchor/identity", "--dry") == ["--dry-run"]
    assert in_bash("show", "anchor/identity", "--imp") == ["--import"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_of_all_shells_ask_for_names(shell):
    script = app.generate_completion(shell=shell)
    assert all(word in script for word in ("__complete", "dry-run", "--recipe.FIELD", "inspect"))


def test_installing_it_for_bash(anchorlab, workplace, monkeypatch):
    monkeypatch.setenv("HOME", str(workplace))
    said = anchorlab("--install-completion", "--shell", "bash")
    assert said.code == 0
    installed = workplace / ".local" / "share" / "bash-completion" / "completions" / "anchorlab"
    assert installed.read_text() == app.generate_completion(shell="bash")
    assert str(installed) in (workplace / ".bashrc").read_text()
