"""`anchorlab truncate RUN`."""

import json

import pytest


def test_names_the_best_cut_of_each_matrix(anchorlab, address, workplace):
    asked = ("truncate", address[:6], "--weights", "blocks.0.mlp.*", "--rho", "0:1:0.5", "-n", "20")
    said = anchorlab(*asked, "--figure", "cuts.svg")
    assert said.code == 0
    assert "blocks.0.mlp.W_in" in said.out and "blocks.0.mlp.W_out" in said.out and "full model" in said.out
    assert (workplace / "cuts.svg").read_text().count("blocks.0.mlp.W_in") >= 1
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
        (("--weights", "blocks.0.mpl.*"), "unknown matrix 'blocks.0.mpl.*'"),
        (("--metric", "accurcy"), "unknown metric 'accurcy'; did you mean 'accuracy'"),
        (("-n", "0"), "n: cannot measure on 0 sequences"),
    ],
)
def test_a_bad_range_matrix_metric_or_number_is_told_in_one_line(anchorlab, address, option, problem):
    asked = {"--rho": "0", "-n": "5"} | dict([option])
    said = anchorlab("truncate", address[:6], *(part for pair in asked.items() for part in pair))
    assert said.code == 2 and problem in said.err


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


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--prompts", "facts", "--metric", "loss"), "metric: is for runs, and --prompts for pretrained models"),
        (("--prompts", "facts", "--n", "5"), "n: is for runs"),
        (("--revision", "step1"), "revision: is for pretrained models; give --prompts too"),
        (("--download",), "download: is for pretrained models"),
        (("--prompts", "fact"), "prompts: 'fact' is neither a set of prompts nor a file; give facts, indirect-objects"),
        (("--prompts", "empty.csv"), "prompts: empty.csv has no rows, or an empty one"),
        (("--prompts", "other.csv"), "prompts: other.csv lacks a prompt or an answer in some row"),
    ],
)
def test_options_and_prompts_that_do_not_fit_are_told_in_one_line(anchorlab, workplace, options, problem):
    (workplace / "empty.csv").write_text("prompt,answer\n")
    (workplace / "other.csv").write_text("text,word\na,b\n")
    said = anchorlab("truncate", "tiny", *options)
    assert said.code == 2 and problem in said.err and said.err.count("\n") == 1
