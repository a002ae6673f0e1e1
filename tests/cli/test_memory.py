"""`anchorlab memory RUN LEFT RIGHT`."""

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
def address(trained):
    return trained("recall/noisy", *MODEL, *TASK, *RECIPE, CHECKPOINTS, "--workers=1", "--seeds=0:2")


@pytest.fixture
def kept(address, workplace):
    """The weights at a step, by numpy."""
    found = Store(workplace / "runs").find(address)
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


def test_the_last_checkpoint_with_the_names_of_tokens(anchorlab, address, kept):
    told = json.loads(anchorlab("memory", address[:6], *LAYER, "--json").out)
    form = layer_form(kept(6)).mean(axis=0)
    assert np.allclose(told["values"], form, atol=1e-6)
    (found,) = told["checkpoints"]
    places = check_numbers(found, form)
    assert [(entry["row"], entry["column"]) for entry in found["largest"]] == [(NAMES[i], NAMES[j]) for i, j in places]
    assert (told["rows"], told["columns"], found["step"], told["member"]) == (NAMES, NAMES, 6, None)
    said = anchorlab("memory", address[:6], *LAYER)
    assert (said.code, said.err) == (0, "")
    assert "5 x 5; mean over 2 members" in said.out and "largest entries at step 6" in said.out
    largest = found["largest"][0]
    row = said.out.partition("largest entries")[2].splitlines()[2].split()
    assert row == [largest["row"], largest["column"], f"{largest['value']:.4g}"]


def test_positions_are_numbered_and_a_member_and_a_step_are_chosen(anchorlab, address, kept):
    asked = ("memory", address[:6], *POSITIONS, "--step", "2", "--member", "1")
    told = json.loads(anchorlab(*asked, "--json").out)
    one = {name: value[1] for name, value in kept(2).items()}
    form = one["pos_embed.W_pos"] @ one["blocks.0.attn.W_KQ"] @ one["pos_embed.W_pos"].T
    assert np.allclose(told["values"], form, atol=1e-5)
    assert told["rows"] == told["columns"] == ["0", "1", "2", "3", "4", "5"]
    assert (told["member"], told["checkpoints"][0]["step"]) == (1, 2)
    assert "6 x 6; member 1" in anchorlab(*asked).out


def test_along_training(anchorlab, address, kept, workplace):
    told = json.loads(anchorlab("memory", address[:6], *LAYER, "--along", "--json").out)
    assert [found["step"] for found in told["checkpoints"]] == [0, 1, 2, 3, 4, 5, 6]
    for found in told["checkpoints"]:
        check_numbers(found, layer_form(kept(found["step"])).mean(axis=0))
    said = anchorlab("memory", address[:6], *LAYER, "--along", "--figure", "along.svg")
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


def test_a_form_that_is_not_square_has_no_diagonal(anchorlab, address, kept, workplace):
    asked = ("memory", address[:6], "embed.W_E", "blocks.0.mlp.W_in.T")
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
        (
            ("embed.W_F", "embed.W_E"),
            "left: unknown matrix or feed-forward layer 'embed.W_F'; did you mean 'embed.W_E'?",
        ),
        (("embed.W_E", "unembed.W_U"), "right: ends with vectors of width 5, left with 8; write a matrix with .T to"),
        ((*LAYER, "--member", "2"), "member: 2 is outside 2 members; choose from 0..1"),
        ((*LAYER, "--member", "-1"), "member: -1 is outside 2 members; choose from 0..1"),
        ((*LAYER, "--step", "7"), "no checkpoint of step 7; there are 0, 1, 2, 3, 4, 5, 6"),
        ((*LAYER, "--step", "2", "--along"), "step: names one checkpoint, but `--along` takes all of them; give one"),
        ((*LAYER, "--figure", "none/form.svg"), "/none; make it first, or name another file"),
        (LAYER[:1], "RIGHT: has no value"),
    ],
)
def test_a_bad_matrix_member_step_or_file_is_one_line(anchorlab, address, asked, problem):
    said = anchorlab("memory", address[:6], *asked)
    assert said.code == 2 and problem in said.err
    assert said.err.count("\n") == 1 and not said.out and not said.new_files


@pytest.mark.parametrize("words", [("memory", "none", "a", "b"), ("truncate", "none"), ("circuit", "none")])
def test_a_figure_of_another_suffix_is_refused_before_the_run_is_opened(anchorlab, words):
    said = anchorlab(*words, "--figure", "form.txt")
    assert (said.code, said.out) == (2, "")
    assert said.err == "anchorlab: figure: cannot write 'form.txt'; end the name with .svg, .png or .pdf\n"
