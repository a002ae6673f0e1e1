"""`--import` on every command, with a module that registers a task and a model, through the real command line."""

import json
import os
import subprocess
import sys

import pytest

from anchorlab.runs.plugins import named_modules, note_modules

pytestmark = pytest.mark.slow

MODULE = '''
"""Sequences whose answer is their first token: below 6 in training, at least 6 in the test."""

from typing import Literal

import torch
from torch import nn

import anchorlab as al
from anchorlab.axes import TaskShape
from anchorlab.tasks import Answer, Batch, Example, Task, Token
from anchorlab.tasks.registry import register_task, task_family


@register_task("mine/first")
@task_family("mine-first")
class First(Task):
    """The first token."""

    family: Literal["mine-first"] = "mine-first"
    length: int = 4

    @property
    def shape(self):
        return TaskShape("tokens", self.length, 12, 12)

    def sample(self, split, n, seed):
        self.check_draw(split, n, seed)
        draw = torch.Generator().manual_seed(seed)
        inputs = torch.randint(12, (n, self.length), generator=draw)
        inputs[:, 0] = inputs[:, 0] % 6 + 6 * (split == "test")
        answers = inputs[:, :1]
        return Batch(inputs, answers, answers, torch.tensor([self.length - 1]), split)

    def oracle(self, inputs):
        return Answer(inputs[:, :1], torch.ones_like(inputs[:, :1], dtype=torch.bool))

    def split_of(self, inputs):
        return (inputs[:, 0] >= 6).long()

    def metrics(self, outputs, batch):
        return {"accuracy": (outputs.argmax(-1) == batch.answers).double()}

    def render(self, inputs):
        return [
            Example(tuple(Token(str(token), "plain") for token in row), ("read the first",), str(row[0]), "train")
            for row in inputs.tolist()
        ]


@al.register_module("mine-bag")
def bag(shape, width: int = 8):
    """Each position by itself."""
    return nn.Sequential(nn.Embedding(shape.input_size, width), nn.Linear(width, shape.output_size))


@al.training.register_loss("mine-squared")
def squared(outputs, targets, scale: float = 1.0):
    right = nn.functional.one_hot(targets, outputs.shape[-1])
    return scale * (outputs.softmax(-1) - right).square().sum(-1)
'''
RECIPE = (
    "--recipe.loss.kind=mine-squared",
    "--recipe.loss.scale=2",
    "--seeds=0:2",
    "--recipe.duration=4",
    "--recipe.batch=10",
    "--recipe.data.size=20",
    "--workers=1",
)
DECODER = ("--model.layers=1", "--model.heads=1", "--model.width=8", "--model.head-width=4")
HINT = "this store's runs need the module my_module: add --import my_module"


def at_home(place, *words):
    """A command line in a process of its own, in a folder that is not on Python's path."""
    env = {name: value for name, value in os.environ.items() if name != "ANCHORLAB_STORE"}
    run = [sys.executable, "-P", "-m", "anchorlab", *words]
    return subprocess.run(run, cwd=place, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of the module, its store, and runs of the task by one's own model and by a decoder."""
    place = tmp_path_factory.mktemp("mine")
    (place / "my_module.py").write_text(MODULE)
    runs = []
    for model, at in ((("--model.kind=mine-bag", "--model.width=6"), 0), (DECODER, 2)):
        words = ["train", "mine/first", "--task.length=3", *model, *RECIPE, "--json"]
        words[at:at] = ["--import", "my_module"]  # before the command's name, and after
        said = at_home(place, *words)
        assert (said.returncode, said.stderr) == (0, "")
        runs.append(json.loads(said.stdout)["run"])
    return place, *runs


def test_ones_own_task_model_and_runs_are_read_by_every_command(trained):
    place, bag, decoder = trained
    for words, part in [
        (["inspect", decoder, "-n", "20"], "0.0"),
        (["truncate", bag, "--weights", "1.weight", "--rho", "0,0.5", "-n", "20"], "1.weight"),
        (["memory", decoder, "embed.W_E", "unembed.W_U.T"], "mean"),
        (["circuit", decoder, "--sequences", "16"], "loss"),
        (["show", "mine/first", "--task.length=3", "-n", "1"], "read the first"),
        (["check", "mine/first"], "sequences of each split were drawn"),
        (["export", "mine/first", "--out", "data", "-n", "20"], "data"),
        (["models"], "mine-bag"),
    ]:
        said = at_home(place, *words, "--import=my_module")
        # what takes over two seconds on a busy machine shows its progress
        assert (said.returncode, said.stderr.replace("checking mine/first\n", "")) == (0, ""), words
        assert part in said.stdout, words
    ours, both = (json.loads(at_home(place, "tasks", "--json", *more).stdout) for more in ([], ["--import=my_module"]))
    assert [one for one in both if one not in ours] == [{"name": "mine/first", "description": "The first token."}]
    assert [one for one in both if one in ours] == ours


def test_without_it_the_store_names_the_module_and_imports_nothing(trained, anchorlab, monkeypatch):
    """In this process too, whose path has the folder of the module."""
    place, bag, decoder = trained
    assert json.loads((place / "runs" / "plugins.json").read_bytes()) == {"modules": ["my_module"]}
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("ANCHORLAB_STORE", str(place / "runs"))
    for words, problem in [
        (["inspect", decoder], "task.family: unknown task family 'mine-first'"),
        (["truncate", bag], "task.family: unknown task family 'mine-first'"),
        (["memory", decoder, "embed.W_E", "embed.W_E.T"], "task.family: unknown task family 'mine-first'"),
        (["circuit", decoder], "task.family: unknown task family 'mine-first'"),
    ]:
        said = anchorlab(*words)
        assert (said.code, said.out, said.err) == (2, "", f"anchorlab: {problem}; {HINT}\n")
    assert anchorlab("runs", "show", bag).code == 0  # which reads no more than the files
    assert "my_module" not in sys.modules


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "broken cannot be imported (No module named 'broken'); run where it lies"),
        ("x = (", "broken fails: SyntaxError: '(' was never closed (broken.py, line 1); correct the module"),
        ("\nx = 1 / 0", "broken fails: ZeroDivisionError: division by zero (broken.py, line 2); correct the module"),
        ("import sys\nsys.exit(3)", "broken fails: SystemExit: 3 (broken.py, line 2); correct the module"),
    ],
)
def test_a_module_that_fails_is_one_line(anchorlab, workplace, monkeypatch, text, words):
    monkeypatch.setattr(sys, "path", list(sys.path))
    if text is not None:
        (workplace / "broken.py").write_text(text)
    said = anchorlab("tasks", "--import", "broken")
    assert (said.code, said.out, said.err) == (2, "", f"anchorlab: import: {words}\n")


@pytest.mark.parametrize("name", ["my_module.py", "./my_module", "my module", "", "a..b", "../x"])
def test_what_is_no_module_is_refused(anchorlab, name):
    said = anchorlab("tasks", f"--import={name}")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)


class TestNamed:
    """What a store names is read as names and nothing else."""

    def test_names_are_added(self, tmp_path):
        assert named_modules(tmp_path) == ()
        (tmp_path / "new").mkdir()
        note_modules(tmp_path / "new", {"b", "a.c"})
        note_modules(tmp_path / "new", {"b", "d"})
        assert named_modules(tmp_path / "new") == ("a.c", "b", "d")
        before = (tmp_path / "new" / "plugins.json").stat().st_mtime_ns
        note_modules(tmp_path / "new", {"b"})
        assert (tmp_path / "new" / "plugins.json").stat().st_mtime_ns == before

    def test_the_folder_of_the_store_may_be_a_link(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "store").symlink_to(tmp_path / "real")
        note_modules(tmp_path / "store", {"a"})
        assert named_modules(tmp_path / "store") == named_modules(tmp_path / "real") == ("a",)

    @pytest.mark.parametrize(
        "text",
        [
            *(b"", b"[" * 100_000, b'{"modules": "os"}', b'{"modules": {"os": 1}}', b'{"modules": 1}', b'["os"]'),
            b'{"modules": ["os"]}' + b" " * 2**16,
            b'\xff{"modules": ["os"]}',
            b'{"modules": ["os; rm x", "--x", "\\u001b[2J", "x/y", 1, ["os"], "a' + b"b" * 200 + b'"]}',
        ],
    )
    def test_what_we_never_write_names_nothing(self, tmp_path, text):
        (tmp_path / "plugins.json").write_bytes(text)
        assert named_modules(tmp_path) == ()

    def test_a_link_is_not_read(self, tmp_path):
        (tmp_path / "elsewhere").write_text('{"modules": ["os"]}')
        (tmp_path / "plugins.json").symlink_to(tmp_path / "elsewhere")
        assert named_modules(tmp_path) == ()
