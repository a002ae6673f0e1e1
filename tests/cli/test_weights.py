"""`anchorlab memory RUN LEFT RIGHT` and `anchorlab truncate RUN`."""

import json

import numpy as np
import pytest

from anchorlab.runs import Store

MODEL = ("--model.kind=recall", "--model.width=8", "--model.hidden=16")
TASK = ("--task.length=6", "--task.source=uniform", "--task.tokens=4", "--task.noise=appended")
RECIPE = ("--recipe.batch=10", "--recipe.evaluation.size=10", "--recipe.duration=6")
CHECKPOINTS = "--recipe.checkpoints.every=1"
LAYER = ("embed.W_E @ blocks.1.mlp", "unembed.W_U.T")
POSITIONS = ("pos_embed.W_pos @ blocks.0.attn.W_KQ", "pos_embed.W_pos")
NAMES = ["0", "1", "2", "3", "noise"]


@pytest.fixture
def recall(trained):
    return trained("recall/noisy", *MODEL, *TASK, *RECIPE, CHECKPOINTS, "--workers=1", "--seeds=0:2")


@pytest.fixture
def kept(recall, workplace):
    """The weights at a step, by numpy."""
    found = Store(workplace / "runs").find(recall)
    return lambda step: {name: value.double().numpy() for name, value in found.read_checkpoint(step).items()}


def layer_form(weights):
    hidden = np.maximum(weights["embed.W_E"] @ weights["blocks.1.mlp.W_in"], 0)
    return hidden @ weights["blocks.1.mlp.W_out"] @ weights["unembed.W_U"]


def check_numbers(found, form):
    """The numbers printed for a square product, against the product itself; its entries all differ."""
    size = len(form)
    assert found["diagonal"] == pytest.approx(np.trace(form) / size, abs=1e-6)
    assert found["rest"] == pytest.approx((form.sum() - np.trace(form)) / (size * size - size), abs=1e-6)
    assert found["rows_led"] == sum(int(row.argmax()) == at for at, row in enumerate(form))
    order = sorted(((form[i, j], i, j) for i in range(size) for j in range(size)), reverse=True)
    assert [entry["value"] for entry in found["largest"]] == pytest.approx([one[0] for one in order[:10]], abs=1e-6)
    return [(one[1], one[2]) for one in order[:10]]


def test_the_last_checkpoint_with_the_names_of_tokens(anchorlab, recall, kept):
    told = json.loads(anchorlab("memory", recall[:6], *LAYER, "--json").out)
    form = layer_form(kept(6)).mean(axis=0)
    assert np.allclose(told["values"], form, atol=1e-6)
    (found,) = told["checkpoints"]
    places = check_numbers(found, form)
    assert [(entry["row"], entry["column"]) for entry in found["largest"]] == [(NAMES[i], NAMES[j]) for i, j in places]
    assert (told["rows"], told["columns"], found["step"], told["member"]) == (NAMES, NAMES, 6, None)
    said = anchorlab("memory", recall[:6], *LAYER)
    assert (said.code, said.err) == (0, "")
    assert "5 x 5; mean over 2 members" in said.out and "largest entries at step 6" in said.out
    largest = found["largest"][0]
    row = said.out.partition("largest entries")[2].splitlines()[2].split()
    assert row == [largest["row"], largest["column"], f"{largest['value']:.4g}"]


def test_positions_are_numbered_and_a_member_and_a_step_are_chosen(anchorlab, recall, kept, workplace):
    asked = ("memory", recall[:6], *POSITIONS, "--step", "2", "--member", "1")
    told = json.loads(anchorlab(*asked, "--json").out)
    one = {name: value[1] for name, value in kept(2).items()}
    form = one["pos_embed.W_pos"] @ one["blocks.0.attn.W_KQ"] @ one["pos_embed.W_pos"].T
    assert np.allclose(told["values"], form, atol=1e-5)
    assert told["rows"] == told["columns"] == ["0", "1", "2", "3", "4", "5"]
    assert (told["member"], told["checkpoints"][0]["step"]) == (1, 2)
    assert "6 x 6; member 1" in anchorlab(*asked, "--figure", "one.svg").out
    assert "recall/noisy, member 1: what" in (workplace / "one.svg").read_text()


def test_along_training(anchorlab, recall, kept, workplace):
    told = json.loads(anchorlab("memory", recall[:6], *LAYER, "--along", "--json").out)
    assert [found["step"] for found in told["checkpoints"]] == [0, 1, 2, 3, 4, 5, 6]
    for found in told["checkpoints"]:
        check_numbers(found, layer_form(kept(found["step"])).mean(axis=0))
    said = anchorlab("memory", recall[:6], *LAYER, "--along", "--figure", "along.svg")
    assert said.code == 0
    lines = [line.split() for line in said.out.splitlines()]
    shown = [line for line in lines if len(line) == 7 and line[0].isdigit()]
    assert [line[0] for line in shown] == ["0", "1", "2", "3", "4", "5", "6"]
    for line, found in zip(shown, told["checkpoints"], strict=True):
        first = found["largest"][0]
        assert line[1:4] == [f"{found['diagonal']:.4g}", f"{found['rest']:.4g}", str(found["rows_led"])]
        assert line[4:] == [first["row"], first["column"], f"{first['value']:.4g}"]
    drawn = (workplace / "along.svg").read_text()
    assert [f"step {step}" in drawn for step in range(7)] == [True, False, True, False, True, False, True]


def test_a_form_that_is_not_square_has_no_diagonal(anchorlab, recall, kept, workplace):
    asked = ("memory", recall[:6], "embed.W_E", "blocks.0.mlp.W_in.T")
    (found,) = json.loads(anchorlab(*asked, "--json").out)["checkpoints"]
    weights = kept(6)
    form = (weights["embed.W_E"] @ weights["blocks.0.mlp.W_in"]).mean(axis=0)
    assert set(found) == {"step", "mean", "largest"}
    assert found["mean"] == pytest.approx(form.mean(), abs=1e-6)
    said = anchorlab(*asked, "--figure", "neurons.svg")
    assert said.code == 0 and "5 x 16; mean" in said.out and "diagonal" not in said.out
    drawn = (workplace / "neurons.svg").read_text()
    assert ">noise<" in drawn and "embed.W_E" in drawn and "figure: neurons.svg" in said.out


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ((*LAYER, "--member", "-1"), "member: -1 is outside 2 members; choose from 0..1"),
        ((*LAYER, "--step", "2", "--along"), "step: names one checkpoint, but `--along` takes all of them; give one"),
        (LAYER[:1], "RIGHT: has no value"),
    ],
)
def test_a_bad_member_or_step_is_one_line(refused, recall, asked, problem):
    assert problem in refused("memory", recall[:6], *asked)


def test_names_the_best_cut_of_each_matrix(anchorlab, address, workplace):
    asked = ("truncate", address[:6], "--weights", "blocks.0.mlp.*", "--rho", "0:1:0.5", "-n", "20")
    said = anchorlab(*asked, "--figure", "cuts.svg")
    assert said.code == 0
    assert "blocks.0.mlp.W_in" in said.out and "blocks.0.mlp.W_out" in said.out and "full model" in said.out
    drawn = (workplace / "cuts.svg").read_text()
    assert drawn.count("blocks.0.mlp.W_in") >= 1 and "anchor/identity: loss on test at step" in drawn
    assert "anchor/identity: loss on test at step 4\n" in said.out
    found = json.loads(anchorlab(*asked, "--json").out)
    assert {row["fraction"] for row in found["measured"]} == {0, 0.5, 1}
    losses = [row["value"] for row in found["measured"] if row["metric"] == "loss" and row["group"] == "all"]
    assert min(losses) == pytest.approx(min(row["value"] for row in found["best"]), rel=0.2)
    kept = workplace / "runs" / "truncations" / address
    assert len(list(kept.iterdir())) == 2


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (("--rho", "1:0:0.1"), "rho: '1:0:0.1' is not a range; write start:end:step, such as 0:1:0.05"),
        (("--rho", "half"), "rho: cannot read 'half'; write 0:1:0.05, or a list such as 0,0.1,0.5"),
        (("--rho", "0,1.5"), "anchorlab: rho: [0.0, 1.5] are not fractions of the rank; give some from 0 to below 1"),
        (("-n", "0"), "n: cannot measure on 0 sequences"),
        (("--metric", "lss"), "metric: unknown metric 'lss'; did you mean 'loss'?"),
    ],
)
def test_a_bad_range_number_or_metric_is_told_in_one_line_before_any_cut(
    anchorlab, address, workplace, option, problem
):
    asked, kept = {"--rho": "0", "-n": "5"} | dict([option]), workplace / "runs" / "truncations" / address
    before = {*kept.glob("*")}
    said = anchorlab("truncate", address[:6], *(part for pair in asked.items() for part in pair))
    assert said.code == 2 and problem in said.err and {*kept.glob("*")} == before


def test_the_cuts_of_a_model_of_the_package_are_kept_in_the_named_store(anchorlab, workplace):
    asked = ("truncate", "zoo:anchor/identity", "--weights", "blocks.0.attn.W_O", "--rho", "0", "-n", "2")
    said = anchorlab(*asked, "--store", "mine", "--json")
    assert said.code == 0 and len(list((workplace / "mine" / "truncations").rglob("*.json"))) == 1


def test_a_language_model_is_cut_by_what_it_answers(anchorlab, folder, workplace):
    (workplace / "cities.csv").write_text("prompt,answer\nMadrid is in,Spain\nParis is in,France\nLyon is in,France\n")
    asked = ("truncate", folder, "--prompts", "cities.csv", "--weights", "blocks.[12].mlp.*", "--rho", "0,0.5")
    said = anchorlab(*asked, "--figure", "cuts.svg")
    assert said.code == 0
    assert "tiny: the best cuts by -log p(right word)" in said.out and "on the other prompts: p(right word)" in said.out
    assert (workplace / "cuts.svg").read_text().count("blocks.1.mlp.W_gate") >= 1
    kept = {path: path.stat().st_mtime_ns for path in (workplace / "runs" / "truncations" / "language").iterdir()}
    found = json.loads(anchorlab(*asked, "--json").out)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept and len(kept) == 6
    assert len(found["measured"]) == 12
    assert found["best"]["weight"] == found["measured"][0]["weight"]
    assert found["measured"][0]["loss"] == min(row["loss"] for row in found["measured"])
    native = anchorlab("truncate", folder, "--prompts", "native", "--weights", "blocks.1.mlp.W_in", "--rho", "0")
    assert native.code == 0 and "of 112 prompts" in native.out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--prompts", "facts", "--metric", "loss"), "metric: is for runs, and --prompts for pretrained models"),
        (("--prompts", "facts", "--n", "5"), "n: is for runs"),
        (("--revision", "step1"), "revision: is for pretrained models; give --prompts too"),
        (("--download",), "download: is for pretrained models"),
        (("--prompts", "fact"), "prompts: 'fact' is neither a set of prompts nor a file; give facts, indirect-"),
        (("--prompts", "empty.csv"), "prompts: empty.csv has no rows, or an empty one"),
        (("--prompts", "other.csv"), "prompts: other.csv lacks a prompt or an answer in some row"),
    ],
)
def test_options_and_prompts_that_do_not_fit_are_told_in_one_line(refused, workplace, options, problem):
    (workplace / "empty.csv").write_text("prompt,answer\n")
    (workplace / "other.csv").write_text("text,word\na,b\n")
    assert problem in refused("truncate", "tiny", *options)
