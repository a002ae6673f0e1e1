"""Studies with other values, from the command line."""

import json

import pytest

from anchorlab.findings import Findings, Provenance
from anchorlab.studies import findings_directory

SOURCE = Provenance("smoke", "0", "2 CPU cores", "0123456789abcdef", "2.6.0", 141.0)
SMOKE = ("--profile", "smoke", "--json")


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """The studies that were asked for, in order; nothing is trained."""
    found = []

    def run(chosen, profile, store, *_, on, parts):
        found.append(chosen)
        claims = tuple(chosen.claim(one).judge(1.0, profile, own=chosen.has_own_claims) for one in chosen.claims)
        findings_directory(store, chosen.name, profile).mkdir(parents=True)
        return Findings(chosen.name, chosen.title, "", profile, SOURCE, claims=claims)

    monkeypatch.setattr("anchorlab.studies.run_study", run)
    return found


def test_fields_and_seeds(anchorlab, asked):
    options = ("--model.heads", "3", "--recipe.learning-rate=5e-3", "--seeds", "4:7")
    said = anchorlab("study", "anchor/identity", *SMOKE, *options)
    assert (said.code, said.err) == (0, "")
    (one,) = asked
    assert one.name == json.loads(said.out)["study"]
    assert one.name == "anchor/identity-heads-3-optimiser-learning-rate-5e-3-seeds-4-to-6"
    for experiment in one.experiments_of("smoke"):
        assert (experiment.model.heads, experiment.recipe.optimiser.learning_rate) == (3, 5e-3)
        assert experiment.members.seeds == (4, 5, 6)
    verdicts = {claim["verdict"] for claim in json.loads(said.out)["claims"]}
    assert verdicts <= {"supported", "not supported", "met", "not met"}


def test_several_values_make_several_studies(anchorlab, asked):
    said = anchorlab("study", "anchor/identity", *SMOKE, "--model.heads", "2,3", "--recipe.batch", "10,20")
    assert said.code == 0
    names = [f"anchor/identity-heads-{heads}-batch-{batch}" for heads in (2, 3) for batch in (10, 20)]
    assert [one.name for one in asked] == [one["study"] for one in json.loads(said.out)] == names


def test_a_list_is_one_value_where_the_field_holds_a_list(anchorlab, asked):
    said = anchorlab("study", "anchor/identity", *SMOKE, "--recipe.optimiser.betas", "0.8,0.9")
    assert said.code == 0
    (one,) = asked
    assert one.experiments_of("smoke")[0].recipe.optimiser.betas == (0.8, 0.9)


def test_without_options_the_study_is_itself(anchorlab, asked):
    anchorlab("study", "anchor/identity", *SMOKE)
    assert [one.name for one in asked] == ["anchor/identity"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("anchor/identity", ("--model.haeds", "3"), "model.haeds"),
        ("anchor/identity", ("--model.heads", "2,0"), "model.heads"),
        ("anchor/identity", ("--recipe.learning-rate", "x"), "recipe.learning-rate"),
        ("anchor/identity", ("--seeds", "3:1"), "seeds"),
        ("anchor/identity", ("--recipe.data.size", "60"), "recipe.data.size: is what anchor/identity compares"),
        (
            "retrieval/information-flow",
            ("--model.heads", "3"),
            "model.heads: retrieval/information-flow trains nothing",
        ),
        ("language/heads", ("--seeds", "0:3"), "language/heads trains nothing"),
    ],
)
def test_an_unknown_or_fixed_field_is_named_before_anything_is_trained(anchorlab, asked, name, options, message):
    said = anchorlab("study", name, *SMOKE, *options)
    assert said.code == 2 and message in said.err and said.err.count("\n") == 1
    assert not asked
