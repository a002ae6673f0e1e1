"""The folder for lm-evaluation-harness holds the task's own questions, and says how that harness puts them."""

import json
from pathlib import Path

import pytest
import yaml

from anchorlab.errors import SpecError
from anchorlab.tasks import export, load_task, task
from tests.tasks.export.test_export import contents

TASK = task("retrieval/lives-with", chains=3, steps=3, asked_steps=(1, 3))
NAMES = [f"retrieval_lives_with_{end}" for end in ("chat", "chat_generated", "plain", "plain_generated")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return export(TASK, tmp_path_factory.mktemp("folder") / "out", "lm-eval", n=5, seed=3)


class Function(str):
    """What follows `!function` in YAML."""


def declared(path: Path) -> dict:
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!function", lambda loader, node: Function(loader.construct_scalar(node)))
    return yaml.load(path.read_text("utf-8"), Loader=Loader)


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_rows_are_the_questions(folder, split):
    rows = [json.loads(line) for line in (folder / f"{split}.jsonl").read_text("utf-8").splitlines()]
    questions = TASK.questions(5, seed=3, split=split)
    assert len({one.depth for one in questions}) == 2
    for row, one in zip(rows, questions, strict=True):
        assert row["prompt"] == f"{one.text} {one.instruction}" and row["question"] == one.text
        assert (row["begun"], row["answer"], tuple(row["candidates"])) == (one.begun, one.answer, one.candidates)
        assert (row["depth"], tuple(row["path"]), tuple(row["hops"])) == (one.depth, one.path, one.hops)
        assert (tuple(row["distances"]), tuple(row["order"])) == (one.distances, one.order)
        assert (row["split"], row["group"]) == (split, f"step {one.depth}")


def test_the_folder_holds_four_tasks(folder):
    expected = {f"{name}.yaml" for name in NAMES}
    expected |= {"README.md", "specification.toml", "questions.py", "train.jsonl", "test.jsonl"}
    assert set(contents(folder)) == expected
    for name in NAMES:
        found = declared(folder / f"{name}.yaml")
        assert found["task"] == name
        assert found["custom_dataset"] == "questions.load" and isinstance(found["custom_dataset"], Function)
        assert (found["test_split"], found["fewshot_split"], found["doc_to_target"]) == ("test", "train", "answer")
        assert found["gen_prefix"] == "begun"
        assert found["doc_to_text"] == ("prompt" if "chat" in name else "{{question}}\n")
        assert found["output_type"] == ("generate_until" if "generated" in name else "multiple_choice")


def test_the_folder_can_be_moved(folder):
    text = "".join(path.read_text("utf-8") for path in folder.iterdir())
    assert str(folder.parent) not in text


def test_a_folder_of_one_split_has_no_worked_examples(tmp_path):
    for split in ("train", "test"):
        folder = export(TASK, tmp_path / split, "lm-eval", n=2, splits=[split])
        found = declared(folder / f"{NAMES[0]}.yaml")
        assert found["test_split"] == split and "fewshot_split" not in found


def test_the_card_says_how_to_run_it_and_how_to_make_it(folder, tmp_path):
    card = (folder / "README.md").read_text("utf-8")
    for told in (
        " --include_path FOLDER --tasks retrieval_lives_with_chat --apply_chat_template\n",
        "| `begun` | string | the beginning of the answer",
        "| `path` | list of string | the words read",
        "| test | step 1 | ",
        "anchorlab export specification.toml --format lm-eval --n 5 --seed 3 --out FOLDER",
        '`load_task("specification.toml").questions(5, seed=3, split=split)`',
    ):
        assert told in card
    again = export(load_task(folder / "specification.toml"), tmp_path / "again", "lm-eval", n=5, seed=3)
    assert contents(again) == contents(folder)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        (
            "anchor/identity",
            {},
            "format: lm-eval takes questions in words, which anchor/identity does not have;",
        ),
        ("retrieval/tokens", {}, "format: lm-eval takes questions in words, which retrieval/tokens does not have"),
        ("retrieval/equations", {"text": True}, "text: has no meaning in the format lm-eval"),
    ],
)
def test_what_cannot_be_exported(tmp_path, name, options, told):
    with pytest.raises(SpecError, match=told):
        export(task(name), tmp_path / "out", "lm-eval", n=2, **options)
    assert not list(tmp_path.iterdir())
