"""Commands import no more than they need: each of these modules takes a second or more on a small machine."""

import json
import subprocess
import sys

import pytest

from anchorlab.papers.published import published
from anchorlab.runs import Store
from anchorlab.studies import findings_directory

HEAVY = ("torch", "numpy", "polars", "pyarrow", "matplotlib", "jinja2", "sklearn", "scipy", "pydantic", "rich.markdown")
HEAVY += ("transformers", "openai")

ASK = """
import json, sys
from anchorlab.cli import main
code = main({arguments})
print(json.dumps([code, [name for name in {heavy} if name in sys.modules]]))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in ("train", "study", "export", "check", "claims", "runs")),
    ],
)
def test_help_imports_nothing_heavy(arguments):
    text = ASK.format(arguments=arguments, heavy=HEAVY)
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout.splitlines()[-1]) == [0, []]
    assert said.stderr == ""


@pytest.mark.parametrize("words", [["tasks"], ["studies"], ["claims"], ["claims", "--json"]])
def test_lists_import_no_task_model_or_study(words, workplace):
    """The claims of a store with findings, too, which are judged again."""
    findings = next(one for one in published() if one.study == "anchor/identity")
    folder = findings_directory(Store(), findings.study, findings.profile)
    folder.mkdir(parents=True)
    (folder / "findings.json").write_text(findings.to_json())
    heavy = (*HEAVY, "anchorlab.tasks", "anchorlab.models", "anchorlab.studies", "anchorlab.training")
    text = ASK.format(arguments=words, heavy=heavy)
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    found = json.loads(said.stdout.splitlines()[-1])
    assert found == [0, ["pydantic"] if words[0] == "claims" else []] and said.stderr == ""


TRAIN_AND_INSPECT = """
import sys
from pathlib import Path
from anchorlab.cli import main
assert main(["train", "anchor/identity", *{small}]) == 0
assert main(["inspect", next(Path("runs").glob("*/spec.json")).parent.name, "-n", "8"]) == 0
print([name for name in {heavy} if name in sys.modules])
"""


@pytest.mark.slow
def test_training_and_inspecting_import_neither_torch_s_compiler_nor_what_draws(small, workplace):
    heavy = ("torch._dynamo", "sympy", "scipy.stats", "matplotlib", "jinja2")
    text = TRAIN_AND_INSPECT.format(small=small, heavy=heavy)
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


def test_every_command_says_what_it_does_and_imports_modules_of_users(anchorlab):
    from anchorlab.cli.main import commands

    shown = anchorlab("--help").out
    for name in [*commands, "runs", "runs check"]:
        assert f"│ {name} " in shown or " " in name
        said = anchorlab(*name.split(), "--help")
        assert said.code == 0 and "--import" in said.out
        assert max(map(len, said.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "said"), [("runs prune", "`superseded` belong only to"), ("study", "exit code is then 1.")]
)
def test_help_of_a_command_has_its_whole_text(anchorlab, words, said):
    assert said in " ".join(anchorlab(*words.split(), "--help").out.split())


def test_help_of_options_is_broken_at_the_width_of_the_terminal_and_nowhere_else(anchorlab):
    lines = [" ".join(line.strip("│ ").split()) for line in anchorlab("study", "--help").out.splitlines()]
    assert "`enough-data`, and train only the runs that they read." in lines  # the docstring breaks after "Their"
    assert "Their values are printed and not kept." in lines
