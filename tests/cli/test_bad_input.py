"""Bad input: one line with the path of the field and the remedy, exit code 2, nothing written."""

import errno
import json
from pathlib import Path

import pytest
import torch

from anchorlab.errors import is_out_of_memory

EDITS = json.dumps({"half": [{"kind": "truncate", "weight": "blocks.1.mlp.W_in", "rank": 300}]})
TRAIN = ("train", "anchor/identity")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("trian",), 'Unknown command "trian". Did you mean "train"?'),
        (("runs", "sho", "ab"), 'Unknown command "sho". Did you mean "show"?'),
        ((*TRAIN, "--sead", "3"), "Unknown option: --sead. Did you mean --seeds?"),
        ((*TRAIN, "--recipee.batch", "3"), "Unknown option: --recipee.batch. Did you mean --recipe"),
        (("tasks", "extra"), "'extra' is not expected here"),
        (("show",), "TASK: has no value"),
        (("train", "anchor/identty"), "task: unknown task 'anchor/identty'; did you mean 'anchor/identity'?"),
        ((*TRAIN, "--model.layrs", "3"), "model.layrs: unknown field 'layrs'; did you mean 'layers'?"),
        ((*TRAIN, "--task.lenth", "3"), "task.lenth: unknown field 'lenth'; did you mean 'length'?"),
        ((*TRAIN, "--members.learning-rat", "3"), "members.learning-rat: unknown field"),
        ((*TRAIN, "--recipe.optimiser.learning-rat", "3"), "did you mean 'learning_rate'?"),
        ((*TRAIN, "--recipe.optimiser.kind", "adamww"), "recipe.optimiser.kind: unknown kind 'adamww'; did you mean"),
        ((*TRAIN, "--model.kind", "decodr"), "model.kind: unknown model 'decodr'; did you mean 'decoder'?"),
        ((*TRAIN, "--recipe.batch", "x"), "recipe.batch: input should be a valid integer, got 'x'"),
        ((*TRAIN, "--recipe.learning-rate", "x"), "recipe.learning-rate: input should be a valid number, got 'x'"),
        ((*TRAIN, "--recipe.learning-rate", "nan"), "recipe.learning-rate: input should be a finite number"),
        ((*TRAIN, "--recipe.batch"), "recipe.batch: has no value; write --recipe.batch VALUE"),
        ((*TRAIN, "--recipe.batch", "--json"), "recipe.batch: has no value"),
        ((*TRAIN, "--recipe.", "3"), "recipe.: is not a field"),
        ((*TRAIN, "--recipe.batch", "3", "--recipe.batch", "4"), "recipe.batch: is given twice"),
        ((*TRAIN, "--recipe.data", "3", "--recipe.data.size", "4"), "recipe.data.size: 'data' already has a value"),
        ((*TRAIN, "--recipe.data.size", "4", "--recipe.data", "3"), "recipe.data: is given twice"),
        ((*TRAIN, "--recipe.evaluation.edits", EDITS[:-1]), "recipe.evaluation.edits: is not valid JSON"),
        ((*TRAIN, "--recipe.data.size", "20"), "recipe.batch: 50 is more than the 20 training sequences; lower it"),
        ((*TRAIN, "--recipe.data.size", "9" * 30), "recipe.data.size: input should be less than"),
        (
            (*TRAIN, "--recipe.stop.metric", "acc", "--recipe.stop.value", "1"),
            "recipe.stop.metric: unknown metric 'acc'",
        ),
        ((*TRAIN, "--task.anchors", "3,30"), "task.anchors: anchor 30 is among the items 20..100"),
        ((*TRAIN, "--task.rule", "A . . . . . . . . x -> A(x)"), "length: 9 is too short for `A . . . . . . . . x`"),
        ((*TRAIN, "--task.rule", "A x"), "task.rule: 'A x' has no `->`"),
        ((*TRAIN, "--task.modulus", "1000"), "leaves no test keys"),
        ((*TRAIN, "--model.width", "9" * 30), "model: is too large for this machine"),
        ((*TRAIN, "--seeds", "0,0"), "seeds: 0 is given twice"),
        ((*TRAIN, "--seeds", "x"), "seeds: 'x' is not a list of seeds; write 0:10"),
        ((*TRAIN, "--seeds", "5:5"), "seeds: 5:5 is an empty range"),
        ((*TRAIN, "--seeds", "0:999999999999"), "seeds: '0:999999999999' has more than 100000 seeds"),
        (
            (*TRAIN, "--seeds", "0:2", "--members.learning-rate", "1e-3"),
            "members.learning-rate: 1 values for 2 members",
        ),
        ((*TRAIN, "--members.seeds", "1"), "members.seeds: is not set here; write --seeds 0:10"),
        ((*TRAIN, "--device", "cuda:99"), "device: 'cuda:99' does not exist"),
        ((*TRAIN, "--device", "meta"), "device: 'meta' cannot train"),
        ((*TRAIN, "--workers", "0"), "workers: 0 is not a number of processes"),
        ((*TRAIN, "--workers", "x"), "--workers"),
        ((*TRAIN, "--execution", "x"), "--execution"),
        (("train", "retrieval/minimal", "--model.kind", "decoder"), "model.kind: a 'decoder' model reads tokens"),
        (
            ("train", "recall/noisy", "--model.kind", "recall", "--recipe.evaluation.edits", EDITS),
            "recipe.evaluation.edits.half.0.rank: 300 is above the full rank of 'blocks.1.mlp.W_in', 256",
        ),
        (("train", "missing.toml"), "there is no file missing.toml; check the path"),
        (("show", "anchor/identity", "-n", "-1"), "n: cannot draw -1 sequences"),
        (("show", "anchor/identity", "-n", "9" * 30), "n: cannot show 9999"),
        (("show", "anchor/identity", "--split", "tset"), "split: unknown split 'tset'; did you mean 'test'?"),
        (("study", "anchor/identiti"), "study: unknown study 'anchor/identiti'; did you mean 'anchor/identity'?"),
        (("study", "anchor/identity", "--profile", "quik"), "profile: unknown profile 'quik'; did you mean 'quick'?"),
        (("study", "anchor/identity", "--model", "gpt2"), "model: the study opens no pretrained model"),
        (("study", "anchor/identity", "--download"), "download: anchor/identity opens no pretrained model"),
        (("study", "anchor/identity", "--report", "."), "report: . cannot be written"),
        (("study", "anchor/identity", "--report", "none/deep/page.html"), "/none/deep; make it first"),
        (("truncate", "abc", "--figure", "none/cuts.svg"), "/none; make it first, or name another file"),
        (("claims", "own/mine"), "study: own/mine has not run in this store; run it by `anchorlab study FILE`"),
        (("claims", "mine.py"), "study: mine.py has not run in this store; run it by `anchorlab study mine.py`"),
        (("inspect", "abc"), "no run begins with 'abc'; `anchorlab runs` lists them"),
        (("inspect", "abc", "-n", "0"), "n: cannot measure on 0 sequences"),
        (("runs", "show", "abc"), "no run begins with 'abc'"),
        (("runs", "remove", "abc"), "no run begins with 'abc'"),
        (("report",), "has no findings"),
    ],
)
def test_one_line_names_the_field(anchorlab, arguments, told):
    said = anchorlab(*arguments)
    assert told in said.err
    assert (said.code, said.out, said.err.count("\n"), said.new_files) == (2, "", 1, set())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[operations\n3 = "+5"', "task.toml: cannot be read as TOML: "),
        ('[operatins]\n3 = "+5"', "task.toml: operatins: unknown field 'operatins'; did you mean 'operations'?"),
        ('[operations]\n3 = "five"', "task.toml: operations.3: cannot read 'five'"),
        ("[vocabulary]\nanchors = [30]", "task.toml: vocabulary.anchors: anchor 30 is among the items"),
        ('[separation]\nrule = "anchor_based"\nheld_out = {3 = [[20, 100]]}', "separation: leaves no train keys"),
        ("[placement]\nlength = 1", "task.toml: placement.length: "),
    ],
)
def test_a_file_is_named_with_its_field(anchorlab, workplace, text, told):
    (workplace / "task.toml").write_text(text)
    for command in ("train", "show"):
        said = anchorlab(command, "task.toml")
        assert told in said.err
        assert (said.code, said.out, said.err.count("\n"), said.new_files) == (2, "", 1, set())


def test_options_cannot_change_a_task_from_a_file(anchorlab, workplace):
    (workplace / "task.toml").write_text('[operations]\n3 = "+0"')
    said = anchorlab("show", "task.toml", "--task.length", "12")
    assert "task.length: task.toml is a file" in said.err
    assert said.code == 2


@pytest.mark.parametrize("name", ["spec.json", "metrics.parquet", "manifest.json"])
def test_a_damaged_store_is_named(anchorlab, address, name):
    path = Path("runs", address, name)
    with path.open("r+b") as file:
        file.write(b"?")
    for command in (["runs", "show", address], ["inspect", address], ["runs", "check"]):
        said = anchorlab(*command)
        if said.code == 0:  # inspecting needs no metrics
            assert command[0] == "inspect" and name == "metrics.parquet"
            continue
        assert name in said.err
        assert (said.code, said.out, said.err.count("\n"), said.new_files) == (2, "", 1, set())
    assert anchorlab("runs").code == 0
    assert anchorlab("runs", "remove", address, "--yes").code == 0


def test_damaged_findings_are_named(anchorlab, workplace):
    folder = workplace / "runs" / "studies" / "a" / "quick"
    folder.mkdir(parents=True)
    (folder / "findings.json").write_text('{"study": 3')
    for command in ("claims", "report"):
        said = anchorlab(command)
        assert "findings.json: damaged" in said.err
        assert (said.code, said.out, said.err.count("\n"), said.new_files) == (2, "", 1, set())


def test_a_store_that_is_a_file(anchorlab, workplace, small):
    (workplace / "file").write_text("")
    said = anchorlab("train", "anchor/identity", *small, "--store", "file")
    assert "file" in said.err
    assert (said.code, said.err.count("\n"), said.new_files) == (2, 1, set())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "anchorlab: out of memory; reduce the size of the work (no more could be had)\n"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "anchorlab: out of memory; reduce"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "anchorlab: out of memory; reduce"),
    ],
)
def test_too_little_memory_is_one_line(anchorlab, small, monkeypatch, error, said):
    def failing(*_, **__):
        raise error

    monkeypatch.setattr("anchorlab.engine.run", failing)
    told = anchorlab("train", "anchor/identity", *small)
    assert (told.code, told.err[: len(said)], told.err.count("\n")) == (2, said, 1)


def test_a_real_allocation_that_fails_is_known_and_no_other_error_that_speaks_of_memory():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("the associative memory has no such layer"))


def test_an_error_that_speaks_of_memory_keeps_its_traceback(anchorlab, small, monkeypatch):
    def failing(*_, **__):
        raise RuntimeError("the associative memory has no such layer")

    monkeypatch.setattr("anchorlab.engine.run", failing)
    with pytest.raises(RuntimeError, match="associative memory"):
        anchorlab("train", "anchor/identity", *small)


@pytest.mark.parametrize("command", [["train"], ["study"], ["study", "--dry-run"]])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--address", "10.0.0.1:6379"], "address: only a Ray cluster has one; add --on ray"),
        (["--import", "no_such_module"], "import: no_such_module cannot be imported"),
        (["--on", "ray", "--import", "no_such_module"], "import: no_such_module cannot be imported"),
    ],
)
def test_a_place_without_use_is_refused(anchorlab, command, options, message):
    said = anchorlab(command[0], "anchor/identity", *command[1:], *options)
    assert (said.code, said.new_files) == (2, set())
    assert said.err.startswith(f"anchorlab: {message}")
