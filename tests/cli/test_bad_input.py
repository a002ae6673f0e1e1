"""Bad input, endless input too: one line with the path of the field and the remedy, exit code 2, nothing written."""

import errno
import json
import os
import sys
import warnings
from pathlib import Path

import pytest
import torch

from anchorlab.errors import is_out_of_memory
from anchorlab.tasks.build import read_toml

EDITS = json.dumps({"half": [{"kind": "truncate", "weight": "blocks.1.mlp.W_in", "rank": 300}]})
TRAIN = ("train", "anchor/identity")
SMOKE = ("study", "anchor/identity", "--profile", "smoke")
LANDSCAPE = ("landscape", "zoo:anchor/identity")
PART, FLOW = ("verify", "anchor/frequency"), "retrieval/information-flow"
WITH_FIGURES = (("memory", "none", "a", "b"), ("truncate", "none"), ("circuit", "none"), LANDSCAPE)
READERS = (
    *((word,) for word in ("runs", "browse", "report", "claims")),
    *(("runs", *words) for words in (("check",), ("prune",), ("show", "a"), ("remove", "a"), ("diff", "a", "b"))),
    ("runs", "export", "--out", "a.csv", "--to", "csv"),
    ("inspect", "a"),
)
SUFFIX = "anchorlab: figure: cannot write 'form.txt'; end the name with .svg, .png or .pdf\n"
NO_TIME = "is not a time; write 90s, 10m, 8h or 1h30m"
NO_TIMES = ("10 minutes", "", "8", "h", "-1h", "1h 30m")


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
        ((*TRAIN, "--members.learning-rat", "3"), "members.learning-rat: unknown field"),
        ((*TRAIN, "--recipe.optimiser.kind", "adamww"), "recipe.optimiser.kind: unknown kind 'adamww'; did you mean"),
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
        ((*TRAIN, "--model.width", "9" * 30), "model: is too large for this machine"),
        ((*TRAIN, "--seeds", "0,0"), "seeds: 0 is given twice"),
        ((*TRAIN, "--seeds", "0:999999999999"), "seeds: '0:999999999999' has more than 100000 seeds"),
        ((*TRAIN, "--members.seeds", "1"), "members.seeds: is not set here; write --seeds 0:10"),
        ((*TRAIN, "--device", "cuda:99"), "device: 'cuda:99' does not exist"),
        ((*TRAIN, "--workers", "x"), "--workers"),
        ((*TRAIN, "--execution", "x"), "--execution"),
        (
            ("train", "recall/noisy", "--model.kind", "recall", "--recipe.evaluation.edits", EDITS),
            "recipe.evaluation.edits.half.0.rank: 300 is above the full rank of 'blocks.1.mlp.W_in', 256",
        ),
        (("train", "missing.toml"), "there is no file missing.toml; check the path"),
        (("show", "anchor/identity", "-n", "9" * 30), "n: cannot show 9999"),
        (("show", "anchor/identity", "--toml", "--json"), "json: cannot be combined with --toml; leave out one"),
        (("show", "anchor/identity", "--toml", "--split", "test"), "split: cannot be combined with --toml"),
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
        (("runs", "remove", "abc"), "no run begins with 'abc'"),
        (("report",), "has no findings"),
        (("browse",), "runs: has no runs"),
        *(((*words, "--store", "none"), "/none: there is no such folder; name") for words in READERS),
        (("browse", "--out", "none/x.html"), "out: there is no folder"),
        (("browse", "--every", "0"), "anchorlab: every: 0 is not a number of seconds; give 1 or more\n"),
        ((*LANDSCAPE, "--sequences=0"), "sequences: cannot measure on 0; give 1 to 100000"),
        # before the run is looked for, even
        (("landscape", "no-such-run", "--share=1"), "share: 1.0 lets all of the effect be lost; give less than 1"),
        *(((*words, "--figure", "form.txt"), SUFFIX) for words in WITH_FIGURES),
        ((*PART, "--part", "parts"), "seeds: are missing; name those to make parts of, as in --seeds 1002"),
        ((*PART, "--part", "parts", "--seeds", "1000", "--only", "lwo"), "only: unknown experiment 'lwo'"),
        (
            (*PART, "--part", "parts", "--seeds", "1000", "anchor/composite"),
            "names: anchor/composite has claims that read",
        ),
        ((*PART, "--only", "low frequency"), "only: takes experiments of parts; give --part, or use `anchorlab study`"),
        ((*PART, "--part", "parts", "--seeds", "5"), "seeds: 5 is among the seeds on which the setting was chosen"),
        (
            ("study", *PART[1:], "--profile", "smoke", "--seeds", "3"),
            "seeds: 3 is among the seeds on which the setting was chosen",
        ),
        *((("verify", FLOW, f"--budget={one}"), f"anchorlab: budget: {one!r} {NO_TIME}") for one in NO_TIMES),
        (("verify", "anchor/open-questions"), "names: settle no claim"),
        ((*SMOKE, "--model.haeds", "3"), "model.haeds"),
        ((*SMOKE, "--model.heads", "2,0"), "model.heads"),
        ((*SMOKE, "--recipe.learning-rate", "x"), "recipe.learning-rate"),
        ((*SMOKE, "--recipe.data.size", "60"), "recipe.data.size: is what anchor/identity compares"),
        (("study", FLOW, "--model.heads", "3"), "model.heads: retrieval/information-flow trains nothing"),
        (("study", "language/heads", "--seeds", "0:3"), "language/heads trains nothing"),
        (("study", "anchor/identity", "--model.heads", "0", "--dry-run"), "anchorlab: model.heads: "),
        ((*TRAIN, "--device", "abacus", "--dry-run"), "anchorlab: device: "),
        *(
            ((command, file), f"anchorlab: {name}: there is no file {file}; check the path\n")
            for command, name, file in (("study", "study", "mine.py"), ("sweep", "file", "mine.toml"))
        ),
        *((("sweep", "a.toml", f"--{name}", "no/a"), f"{name}: there is no folder ") for name in ("csv", "report")),
        (
            ("inspect", "zoo:anchor/identty"),
            "anchorlab: name: unknown model of the zoo 'anchor/identty'; did you mean 'anchor/identity'?\n",
        ),
        *(
            ((*words, "--store", "mine"), "store: does not hold zoo:anchor/identity, a model of the package; leave it")
            for words in (LANDSCAPE, ("runs", "show", LANDSCAPE[1]), ("runs", "diff", LANDSCAPE[1], "zoo:recall/noisy"))
        ),
        (("score", "mine.json", "--truth", "none"), "none holds no truth; name the folder"),
    ],
)
def test_one_line_names_the_field(refused, arguments, told):
    assert told in refused(*arguments)


def test_a_file_is_named_with_its_field_and_options_cannot_change_its_task(refused, workplace):
    (workplace / "task.toml").write_text('[operations]\n3 = "five"')
    for command in ("train", "show"):
        assert "task.toml: operations.3: cannot read 'five'" in refused(command, "task.toml")
    (workplace / "task.toml").write_text('[operations]\n3 = "+0"')
    assert "task.length: task.toml is a file" in refused("show", "task.toml", "--task.length", "12")


@pytest.mark.parametrize("name", ["spec.json", "metrics.parquet", "manifest.json"])
def test_a_damaged_store_is_named(anchorlab, refused, address, name):
    path = Path("runs", address, name)
    with path.open("r+b") as file:
        file.write(b"?")
    for command in (["runs", "show", address], ["inspect", address], ["runs", "check"]):
        assert name in refused(*command)
    assert anchorlab("runs").code == 0
    assert anchorlab("runs", "remove", address, "--yes").code == 0


def test_damaged_findings_and_a_store_that_is_a_file_are_named(refused, workplace, small):
    folder = workplace / "runs" / "studies" / "a" / "quick"
    folder.mkdir(parents=True)
    (folder / "findings.json").write_text('{"study": 3')
    for command in ("claims", "report"):
        assert "findings.json: damaged" in refused(command)
    (workplace / "file").write_text("")
    assert "file" in refused("train", "anchor/identity", *small, "--store", "file")


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


def test_a_real_allocation_that_fails_is_known():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_an_error_that_speaks_of_memory_keeps_its_traceback(anchorlab, small, monkeypatch):
    def failing(*_, **__):
        raise RuntimeError("the associative memory has no such layer")

    monkeypatch.setattr("anchorlab.engine.run", failing)
    with pytest.raises(RuntimeError, match="associative memory"):
        anchorlab("train", "anchor/identity", *small)


@pytest.mark.parametrize("command", [["train"], ["train", "--dry-run"], ["study"], ["study", "--dry-run"]])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--address", "10.0.0.1:6379"], "address: only a Ray cluster has one; add --on ray"),
        (["--import", "no_such_module"], "import: no_such_module cannot be imported"),
        (["--on", "ray", "--import", "no_such_module"], "import: no_such_module cannot be imported"),
    ],
)
def test_a_place_without_use_is_refused(refused, command, options, message):
    assert refused(command[0], "anchor/identity", *command[1:], *options).startswith(f"anchorlab: {message}")


DEEP = 100_000
NESTED = {
    "lists": "x = " + "[" * DEEP + "]" * DEEP,
    "names": "x" + ".a" * 5000 + " = 1",
    "some lists": "x = " + "[" * 300 + "]" * 300,
}


@pytest.mark.parametrize("command", ["show", "study", "sweep"])
@pytest.mark.parametrize("case", NESTED)
def test_a_file_nested_deep_is_one_line(refused, workplace, case, command):
    (workplace / "mine.toml").write_text(NESTED[case])
    assert "mine.toml: is nested deeper than 64 levels; correct the file" in refused(command, "mine.toml")


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000, str(2**63)], ids=["decimal", "hexadecimal", "2**63"])
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("show", "[operations]\n3 = {}"),
        ("study", 'study = "anchor/identity"\nseeds = {}'),
        ("sweep", 'task = "anchor/identity"\n[grid]\nmodel.layers = [{}]'),
    ],
)
def test_a_number_beyond_64_bits_is_one_line(refused, workplace, command, text, number):
    (workplace / "mine.toml").write_text(text.format(number))
    message = "anchorlab: mine.toml: holds a whole number of more than 64 bits; correct the file\n"
    assert refused(command, "mine.toml") == message


def test_the_largest_number_of_toml_is_read(tmp_path):
    (tmp_path / "mine.toml").write_text(f"low = {-(2**63)}\nhigh = {2**63 - 1}")
    assert read_toml(tmp_path / "mine.toml", "file") == {"low": -(2**63), "high": 2**63 - 1}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, ""),
        (Path.mkdir, ""),
        (lambda path: path.symlink_to("/dev/zero"), ""),
        (lambda path: path.write_text("#" * (2**24 + 1)), "larger than 16777216 bytes"),
    ],
)
def test_a_file_without_an_end_or_too_large_is_not_read(refused, workplace, make, told):
    make(workplace / "mine.toml")
    assert refused("show", "mine.toml").startswith(f"anchorlab: mine.toml: cannot be read as TOML: is {told}")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("show", 'family = "{}"'),
        ("study", 'study = "{}"'),
        ("sweep", 'task = "{}"\n[grid]\nmodel.layers = [1]'),
        ("sweep", 'task = "anchor/identity"\nmetric = "{}"\n[grid]\nmodel.layers = [1]'),
    ],
)
def test_a_long_name_is_cut(refused, workplace, command, text):
    (workplace / "mine.toml").write_text(text.format("a" * 10**6))
    assert len(refused(command, "mine.toml")) < 5000


@pytest.mark.parametrize("option", ["--model.layers", "--recipe.data", "--members.seeds"])
def test_an_option_nested_deep_is_one_line(refused, option):
    told = f"{option.removeprefix('--')}: is nested deeper than 64 levels"
    assert told in refused(*TRAIN, option, "[" * DEEP + "]" * DEEP)


def test_a_field_with_endless_names_is_one_line(refused):
    told = refused(*TRAIN, "--model" + ".a" * 5000, "1")
    assert "is nested deeper than 64 levels" in told and len(told) < 1000


@pytest.mark.parametrize("sign", ["\n", "\r", "\x0b", "\x85", "\u2028", "\x1b", "\0"])
def test_a_control_sign_in_an_option_of_slurm_is_refused(refused, sign):
    """A line of a script ends at some of them, and what follows would be run."""
    told = refused(*TRAIN, "--on", "slurm", "--slurm.comment", f"a{sign}touch hacked")
    assert told.endswith("slurm.comment: holds a control sign; remove it\n")


def test_a_warning_is_printable(anchorlab, monkeypatch, recwarn):
    monkeypatch.setattr(
        sys.modules["anchorlab.cli.main"], "_run", lambda words: warnings.warn("Glyph 27 (\x1b)\nlost", stacklevel=1)
    )
    anchorlab("runs")
    assert [str(one.message) for one in recwarn] == ["Glyph 27 (\\x1b)\nlost"]
