"""Exported data hold the task's own rows, load elsewhere, and are written whole or not at all."""

import json
import os
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import yaml

from anchorlab.errors import SpecError
from anchorlab.tasks import AnchorFunction, Batch, export, load_task, task
from anchorlab.tasks.export.card import CARD
from anchorlab.tasks.export.export import split_frame
from anchorlab.tasks.export.toml_text import toml_text
from tests.made_up_task import MadeUp
from tests.tasks.examples import TASKS

FAKE = MadeUp(name="made-up")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_the_rows_are_those_of_the_task(tmp_path, format):
    folder = export(FAKE, tmp_path / "new" / "out", format, n=3, seed=7)
    assert set(contents(folder)) == {f"train.{format}", f"test_on_data.{format}", "README.md", "specification.toml"}
    read = pl.read_parquet if format == "parquet" else pl.read_ndjson
    rows = read(folder / f"test_on_data.{format}").to_dicts()
    assert rows == [
        {"inputs": [i, i + 1, 7], "positions": [1, 2], "targets": [i + 1, i + 1], "answers": [i, i],
         "split": "test on data", "group": ["even", "odd"][i % 2]}
        for i in range(3)
    ]  # fmt: skip


def test_weights_and_words_where_there_are_any_and_vectors_keep_their_numbers(tmp_path):
    folder = export(MadeUp(weighted=True), tmp_path / "out", "jsonl", n=2, splits=["train"], text=True)
    second = json.loads((folder / "train.jsonl").read_text().splitlines()[1])
    assert second["weights"] == [0.0, 1.0]
    assert (second["text"], second["trace"], second["answer_text"]) == ("<1> <2> <0>", "read it", "1")
    assert not (folder / "test_on_data.jsonl").exists()
    inputs = torch.tensor([[[0.1, 2.0], [3.0, 4.0]]], dtype=torch.float32)
    frame = split_frame(FAKE, Batch(inputs, inputs[:, :1], inputs[:, :1], torch.tensor([0]), "train"))
    assert frame.schema["inputs"] == pl.List(pl.List(pl.Float32))
    assert frame.schema["targets"] == pl.List(pl.List(pl.Float32))
    assert np.float32(frame["inputs"].to_list()[0][0][0]) == np.float32(0.1)
    assert frame["group"].to_list() == ["all"]


def test_other_rules_have_columns_of_their_own(tmp_path, monkeypatch):
    def sample(self, split, n, seed, original=MadeUp.sample):
        batch = original(self, split, n, seed)
        return replace(batch, rivals={"order swapped": batch.answers + 2})

    monkeypatch.setattr(MadeUp, "sample", sample)
    folder = export(FAKE, tmp_path / "out", n=2)
    assert pl.read_parquet(folder / "train.parquet")["rival_order_swapped"].to_list() == [[2, 2], [3, 3]]
    assert (
        "| `rival_order_swapped` | list of int64 | the answer of another rule, `order_swapped`"
        in (folder / CARD).read_text()
    )


@pytest.mark.parametrize("name", ["recall/noisy", "retrieval/kingdoms"])
def test_a_proof_on_samples_takes_no_more_of_them_than_there_are_rows(name, tmp_path):
    card = (export(TASKS[name], tmp_path / "out", n=7) / CARD).read_text()
    assert "Checked on samples; it holds." in card and "- 7 sequences of each split were drawn" in card


@pytest.mark.parametrize("format", ["parquet", "jsonl", "hf"])
def test_the_same_arguments_give_the_same_bytes(tmp_path, format):
    first = contents(export(FAKE, tmp_path / "one", format, n=50))
    assert contents(export(FAKE, tmp_path / "two", format, n=50)) == first
    assert (
        contents(export(load_task(tmp_path / "one" / "specification.toml"), tmp_path / "three", format, n=50)) == first
    )
    assert contents(export(FAKE, tmp_path / "four", format, n=50, seed=1)) != first


@pytest.mark.parametrize("one", TASKS.values(), ids=TASKS.keys())
def test_a_specification_reads_back_from_toml(one, tmp_path):
    (tmp_path / "task.toml").write_text(toml_text(one), encoding="utf-8")
    assert load_task(tmp_path / "task.toml") == one


def test_toml_with_strange_text(tmp_path):
    one = MadeUp(name='"a"\\\n\x7f é', words=("\x00",), table={-3: "="})
    assert tomllib.loads(toml_text(one))["name"] == '"a"\\\n\x7f é'


def test_the_card_tells_what_the_data_are(tmp_path):
    card = (export(FAKE, tmp_path / "out", "parquet", n=3, seed=7) / "README.md").read_text()
    for told in (
        "# made-up\n",
        "The number that the row has.",
        "holds = true",
        '[table]\n3 = "say \\"hi\\""',
        "Checked by enumeration; it holds.\n\n- 3 latents are on one side each.",
        "| train | `train.parquet` | 3 | 3 | ",
        "`test on data` is called `test_on_data`",
        "| train | even | 2 |\n| train | odd | 1 |",
        "| `inputs` | list of int64 | the sequence: 3 token ids below 1000 |",
        "train: <0> <1> <7> -> 0\nread it",
        "anchorlab export specification.toml --format parquet --n 3 --seed 7 --out FOLDER",
        "task family `test-made-up`, seed 7",
        "## Licence\n\nThe task author's",
    ):
        assert told in card
    assert str(tmp_path) not in card


def test_the_card_tells_distributions_from_ids_and_promises_no_independent_rows(tmp_path):
    card = (export(task("associative/noisy", inputs=3), tmp_path / "out", "jsonl", n=3) / "README.md").read_text()
    assert "predict at each of these positions: 4 numbers |" in card and "ids below 4" not in card
    assert "independent draws" not in card  # three rows hold every input once


@pytest.mark.parametrize("own", [True, False])
def test_a_task_of_ones_own_has_its_own_description_and_licence(tmp_path, own):
    chosen = AnchorFunction(name="plus", operations={3: "+5"}) if own else task("anchor/identity")
    card = (export(chosen, tmp_path / "out", "hf", n=2) / CARD).read_text()
    assert "A function of the keys that its anchors point to" in card
    assert ("MIT" in card, "license: mit" in card) == (not own, not own)
    assert ("Source: anchor functions" in card, "AnchorFunction(operations" in card) == (not own, not own)
    assert ("## Licence\n\nThe task author's; write it here" in card) == own


def test_a_card_shows_names_as_text(tmp_path):
    """A reader of the card sees the characters of a name; a page made from it runs none of them."""
    rules = {"<i>one</i> | `\n```\n<b>": "3 x -> x", "two": "4 x -> x"}
    one = AnchorFunction(
        name="<script>alert(1)</script>\n<img src=x>", vocabulary={"anchors": (3, 4)}, operations={3: "x", 4: "x"},
        rules=rules, group_by="rule",
    )  # fmt: skip
    card = (export(one, tmp_path / "out", n=20) / CARD).read_text()
    assert card.startswith("# &lt;script&gt;alert(1)&lt;/script&gt; &lt;img src=x&gt;\n")
    assert "| train | &lt;i&gt;one&lt;/i&gt; \\| ` ``` &lt;b&gt; | " in card
    outside, fence = [], ""
    for line in card.splitlines():
        if line.startswith("```") and (not fence or line == fence):
            fence = "" if fence else line.rstrip("abcdefghijklmnopqrstuvwxyz")
        elif not fence:
            outside.append(line)
    assert not fence and not any("<" in line for line in outside)


def test_a_card_says_when_a_separation_does_not_hold(tmp_path):
    card = (export(MadeUp(holds=False), tmp_path / "out", n=3, splits=["test on data"]) / "README.md").read_text()
    assert "it does not hold" in card
    assert "--split 'test on data' --out FOLDER" in card


LOAD = """
import json, sys
from datasets import load_dataset
told = []
for folder in sys.argv[1:]:
    loaded = load_dataset(folder)
    features = {name: str(kind) for name, kind in loaded["train"].features.items()}
    told.append([{split: rows.num_rows for split, rows in loaded.items()}, features, loaded["train"][1]])
print(json.dumps(told))
"""


@pytest.mark.slow
def test_datasets_loads_the_folders(tmp_path):
    """With the real library, offline."""
    vectors = TASKS["retrieval with frequencies"]
    folders = [
        export(FAKE, tmp_path / "tokens", "hf", n=4, seed=7),
        export(vectors, tmp_path / "vectors", "hf", n=2, splits=["train"]),
        export(FAKE, tmp_path / "lines", "jsonl", n=4, splits=["train"]),
    ]
    environment = {**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", LOAD, *map(str, folders)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    tokens, numbers, lines = json.loads(said.stdout)
    assert tokens[0] == {"train": 4, "test_on_data": 4}
    assert tokens[1]["inputs"] == "List(Value('int64'))" and tokens[1]["group"] == "Value('string')"
    row = {"inputs": [1, 2, 7], "positions": [1, 2], "targets": [2, 2], "answers": [1, 1]}
    assert tokens[2] == {**row, "split": "train", "group": "odd"}
    assert numbers[0] == {"train": 2}
    assert numbers[1]["inputs"] == numbers[1]["answers"] == "List(List(Value('float32')))"
    assert numbers[2]["inputs"] == vectors.sample("train", 2, 0).inputs[1].tolist()
    assert (lines[0], lines[2]["inputs"]) == ({"train": 4}, [1, 2, 0])


@pytest.mark.nightly
def test_a_hundred_thousand_rows_take_seconds(tmp_path):
    began = time.perf_counter()
    export(TASKS["anchor/identity"], tmp_path / "out", n=100_000)
    assert time.perf_counter() - began < 5


def test_an_earlier_export_is_mended_and_an_empty_folder_is_taken(tmp_path):
    written = contents(export(FAKE, tmp_path / "out", n=3))
    (tmp_path / "out" / "train.parquet").write_bytes(b"damaged")
    (tmp_path / "out" / "test_on_data.parquet").unlink()
    assert contents(export(FAKE, tmp_path / "out", n=3)) == written
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "empty").mkdir()
    assert len(contents(export(FAKE, tmp_path / "empty", n=3))) == 4


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"format": "csv"}, "format: unknown format 'csv'; known: hf, jsonl, lm-eval, parquet"),
        ({"n": 0}, "n: cannot write 0 sequences of a split; ask for 1 to 10000000"),
        ({"n": 10**30}, "n: cannot write"),
        ({"splits": ["test on dta"]}, "split: unknown split 'test on dta'; did you mean 'test on data'?"),
        ({"splits": []}, "splits: is empty"),
        ({"folder": "file"}, "file is a file; name a folder"),
        ({"folder": "file/below"}, "cannot be written"),
        ({"folder": "full"}, "full holds other files, such as notes.txt; name a new folder"),
        ({"folder": "cardless"}, "cardless holds files but no README.md"),
        ({"folder": "foreign"}, "foreign holds another export; remove it, or name a new folder"),
        ({"folder": "earlier", "seed": 1}, "earlier holds another export"),
        ({"folder": "earlier", "n": 4}, "earlier holds another export"),
        ({"folder": "earlier", "format": "jsonl"}, "earlier holds other files, such as test_on_data.parquet"),
        ({"task": MadeUp(holds=False), "folder": "earlier"}, "earlier holds another export"),
    ],
)
def test_bad_input_changes_nothing(tmp_path, changes, told):
    (tmp_path / "file").write_text("mine")
    for folder, name in (("full", "notes.txt"), ("foreign", "README.md"), ("cardless", "train.parquet")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("mine")
    export(FAKE, tmp_path / "earlier", n=3)
    before = contents(tmp_path)
    arguments = {"task": FAKE, "folder": "new/out", "n": 3, **changes}
    with pytest.raises(SpecError) as caught:
        export(**{**arguments, "folder": tmp_path / arguments["folder"]})
    assert told in str(caught.value) and "\n" not in str(caught.value)
    assert contents(tmp_path) == before
    assert not (tmp_path / "new").exists()


class Interruption(Exception):
    pass


@pytest.mark.parametrize("error", [Interruption, OSError])
def test_what_is_stopped_leaves_nothing(tmp_path, monkeypatch, error):
    drawn = []

    def sample(self, split, n, seed, original=MadeUp.sample):
        drawn.append(split)
        if len(drawn) == 2:
            raise error("stopped")
        return original(self, split, n, seed)

    monkeypatch.setattr(MadeUp, "sample", sample)
    with pytest.raises(SpecError if error is OSError else error):
        export(FAKE, tmp_path / "new" / "out", n=3)
    assert drawn == ["train", "test on data"]
    assert not list(tmp_path.iterdir())


def test_strangers_families_and_splits_that_would_share_a_file_are_refused(tmp_path, monkeypatch):
    class Stranger(MadeUp):
        family: str = "stranger"

    with pytest.raises(SpecError, match="unknown task family 'stranger'"):
        export(Stranger(), tmp_path / "out", n=3)
    monkeypatch.setattr(MadeUp, "splits", ("a b", "a_b"))
    with pytest.raises(SpecError, match="files of the same name"):
        export(FAKE, tmp_path / "out", n=3)
    rivals = AnchorFunction(rivals={"a b": "x", "a_b": "x + 1"})
    with pytest.raises(SpecError, match=r"rivals: \['a b', 'a_b'\] would have columns of the same name"):
        export(rivals, tmp_path / "out", n=3)
    assert not list(tmp_path.iterdir())


# The folder for lm-evaluation-harness holds the task's own questions, and says how that harness puts them.
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


def test_the_folder_holds_four_tasks_and_can_be_moved(folder):
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
        '`anchorlab.task("specification.toml").questions(5, seed=3, split=split)`',
    ):
        assert told in card
    again = export(load_task(folder / "specification.toml"), tmp_path / "again", "lm-eval", n=5, seed=3)
    assert contents(again) == contents(folder)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("anchor/identity", {}, "format: lm-eval takes questions in words, which anchor/identity does not have;"),
        ("retrieval/tokens", {}, "format: lm-eval takes questions in words, which retrieval/tokens does not have"),
        ("retrieval/equations", {"text": True}, "text: has no meaning in the format lm-eval"),
    ],
)
def test_what_cannot_be_exported(tmp_path, name, options, told):
    with pytest.raises(SpecError, match=told):
        export(task(name), tmp_path / "out", "lm-eval", n=2, **options)
    assert not list(tmp_path.iterdir())
