"""`anchorlab truncate RUN`."""

import json

import pytest


@pytest.fixture
def address(anchorlab, small):
    return json.loads(anchorlab("train", "anchor/identity", *small, "--json").out)["run"]


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
def test_a_mistake_is_told_in_one_line(anchorlab, address, option, problem):
    asked = {"--rho": "0", "-n": "5"} | dict([option])
    said = anchorlab("truncate", address[:6], *(part for pair in asked.items() for part in pair))
    assert said.code == 2 and problem in said.err
