"""`anchorlab landscape`, on hand-made landscapes and on a model of the zoo."""

import json

import pytest

import anchorlab.lens
from anchorlab.lens import landscape
from anchorlab.trained import zoo
from tests.lens.landscape.hand_made import made, parallel, two_of_three

ZOO = "zoo:anchor/identity"


@pytest.fixture
def asked(monkeypatch):
    """Has the landscape of two games in place of the measured one; the arguments that it is asked for."""
    given = {}

    def measure(model, units, replace, **options):
        given.update(options, units=units, replace=replace)
        return made(two_of_three, parallel)

    monkeypatch.setattr(anchorlab.lens, "landscape", measure)
    return given


def test_prints_the_circuits_of_each_member(anchorlab, asked):
    said = anchorlab("landscape", ZOO)
    assert (said.code, said.err, said.new_files) == (0, "", set())
    lines = [line.split() for line in said.out.splitlines()]
    assert ["0", "0", "1", "0.1", "3", "0.1", "1.0", "1.1", "1", "0.1"] in lines
    assert ["1", "0", "1", "0.1", "3", "1.2", "3"] in lines
    assert "32 subsets of 0.0 0.1 1.0 1.1 1.2, 256 sequences of 'test'" in said.out
    assert "by at most 10% of the effect" in said.out
    assert (asked["units"], asked["replace"], asked["seed"]) == ("heads", "mean", 0)


@pytest.mark.parametrize(
    ("words", "units"),
    [(("all",), "all"), (("roles",), "roles"), (("0.0", "1.mlp"), ["0.0", "1.mlp"]), (("0.0",), ["0.0"])],
)
def test_json_has_every_number(anchorlab, asked, words, units):
    options = ("--replace=zero", "--share=0.2", "--split=train", "--sequences=7", "--seed=3", "--json")
    told = json.loads(anchorlab("landscape", ZOO, "--units", *words, *options).out)
    assert {"units": units, "replace": "zero", "split": "train", "sequences": 7, "seed": 3}.items() <= asked.items()
    assert (told["share"], told["split"], told["step"]) == (0.2, "train", 600)
    first, second = told["members"]
    assert first["minimal_sets"] == [["0.1", "1.0", "1.1"], ["0.1", "1.0", "1.2"], ["0.1", "1.1", "1.2"]]
    assert first["necessary_sets"] == [["0.1"], ["1.0", "1.1"], ["1.0", "1.2"], ["1.1", "1.2"]]
    assert first["shapley"]["0.1"] == pytest.approx(0.5) and second["disjoint"] == 3
    assert first["best_loss"] == [1, 1, 1, 0, 0, 0] and sum(second["losses"]) == 32 - (16 + 4 + 3)


def test_draws_the_minimal_sets(anchorlab, asked, workplace):
    said = anchorlab("landscape", ZOO, "--figure", "sets.svg")
    assert said.code == 0 and "figure: sets.svg" in said.out
    drawn = (workplace / "sets.svg").read_text()
    for text in ("minimal sets at step 600", ">member 0: 3 sets<", ">1.2<"):
        assert text in drawn, text


def test_a_model_of_the_zoo(anchorlab):
    """As the library says."""
    told = json.loads(anchorlab("landscape", ZOO, "--sequences=20", "--json").out)
    found = landscape(zoo("anchor/identity"), sequences=20, progress=False)
    assert [one["losses"] for one in told["members"]] == found.loss.tolist()
    assert [one["smallest"] for one in told["members"]] == ["0.0 1.0"] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sequences=0",), "sequences: cannot measure on 0; give 1 to 100000"),
        (("--units", "0.1"), "units.0: unknown unit '0.1'; did you mean"),
        (("--share=-1", "--sequences=20", "--json"), "share: no set of member 0 reaches a loss of "),
        (("--figure=x.txt",), "x.txt"),
    ],
)
def test_bad_input_is_one_line(anchorlab, options, message):
    said = anchorlab("landscape", ZOO, *options)
    assert said.code == 2 and message in said.err and said.err.count("\n") == 1


def test_a_share_of_everything_is_refused_before_anything_is_measured(anchorlab):
    """Before the run is looked for, even."""
    said = anchorlab("landscape", "no-such-run", "--share=1")
    assert said.code == 2 and "share: 1.0 lets all of the effect be lost; give less than 1" in said.err
