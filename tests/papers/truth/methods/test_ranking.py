"""Methods and controls on models whose circuit is known by construction."""

import pytest
import torch

from anchorlab.lens import Landscape, Passes, Scores
from anchorlab.papers.truth.methods.ranking import (
    ABLATION,
    CONTROLS,
    INTEGRATED,
    METHODS,
    OTHER,
    PLAIN,
    RANDOM,
    WRONG,
    Ranked,
    paired,
    ranked,
    shares,
)
from anchorlab.tasks import task
from anchorlab.theory.compiled import COMPILED, compiled

LOSS = torch.tensor([[4.0, 1.0, 1.0, 0.0], [4.0, 4.0, 4.0, 0.0]]).double()  # either unit nearly suffices; both needed
TRUTH = Landscape(("0.0", "1.0"), LOSS, torch.full_like(LOSS, torch.nan))


def of(*values):
    return Scores("given", TRUTH.units, torch.tensor(values).double(), Passes(1, 0))


def written(name, variant, pairs=24):
    made = compiled(name, variant, rotated=True, sharpness=8)
    return made, ranked(made.ensemble, made.task, pairs=pairs, sequences=100)


@pytest.mark.parametrize("variant", ["backup", "distractor", "cancelling"])
@pytest.mark.parametrize("name", [COMPILED[0], COMPILED[5], COMPILED[-1]])
def test_the_landscape_of_a_compiled_model_is_its_truth(name, variant):
    made, found = written(name, variant)
    assert {frozenset(one) for one in found.truth.minimal()[0]} == {frozenset(one) for one in made.truth.minimal}
    assert (*found.scores,) == (*METHODS, *CONTROLS)
    assert found.skill[0, found_at(WRONG)] < 0


def found_at(name):
    return (*METHODS, *CONTROLS).index(name)


def test_what_is_known_of_the_methods_on_compiled_models():
    """Neither of two heads with the same job is missed alone; a head that writes where nothing reads is no circuit."""
    _, backup = written("identity", "backup")
    rise = dict(zip(backup.truth.units, backup.scores[ABLATION].values[0].tolist(), strict=True))
    assert rise["0.0"] < 0.01 * rise["1.0"] and rise["0.1"] < 0.01 * rise["1.0"]
    assert backup.skill[0, found_at(INTEGRATED)] == pytest.approx(1.0)
    _, distractor = written("identity", "distractor")
    assert distractor.skill[0, found_at(ABLATION)] == pytest.approx(1.0)
    for method in (ABLATION, "activation patching", "direct attribution"):
        values = dict(zip(distractor.truth.units, distractor.scores[method].values[0].abs().tolist(), strict=True))
        assert values["1.1"] < 0.01 * values["1.0"], method
    assert distractor.scores["direct attribution"].values[0, 0].abs() < 1e-3  # layer 0 writes nothing to the logits


def test_members_are_ranked_apart():
    of_task = task("anchor/identity")
    one, other = (compiled("identity", "backup", rotated=True, seed=seed, sharpness=8).ensemble for seed in (0, 1))
    ensemble = one.with_weights({name: torch.cat([value, other.weights[name]]) for name, value in one.weights.items()})
    found = ranked(ensemble, of_task, pairs=16, sequences=40, seed=3)
    other = ranked(ensemble, of_task, pairs=16, sequences=40, seed=4)
    assert found.skill.shape == (2, len(METHODS) + len(CONTROLS))
    assert torch.equal(found.scores[OTHER].values, found.scores[INTEGRATED].values.roll(1, dims=0))
    assert not torch.equal(found.scores[RANDOM].values, other.scores[RANDOM].values)
    assert torch.equal(found.scores[PLAIN].values, other.scores[PLAIN].values)


def test_pairs_have_each_others_answers():
    clean, corrupted = paired(task("anchor/identity"), 10)
    assert torch.equal(corrupted.inputs[1:], clean.inputs[:-1]) and torch.equal(corrupted.answers[0], clean.answers[-1])
    assert torch.equal(task("anchor/identity").oracle(corrupted.inputs).answers, corrupted.answers)


def test_skill_is_zero_by_chance_and_one_if_all_is_right():
    """Three units of which one suffices: a random ranking has an area of a half."""
    loss = torch.tensor([[1.0, 0.0] * 4]).double()
    one = Landscape(("0.0", "0.1", "1.0"), loss, torch.full_like(loss, torch.nan))
    given = [[3.0, 1.0, 2.0], [2.0, 3.0, 1.0], [-1.0, 2.0, 3.0]]
    scores = {str(row): Scores(str(row), one.units, torch.tensor([row]).double(), Passes(0, 0)) for row in given}
    assert Ranked(one, scores).skill[0].tolist() == pytest.approx([1.0, 0.0, -1.0], abs=0.1)
    assert Ranked(TRUTH, {"given": of([1.0, 2.0], [1.0, 2.0])}).skill.isnan().all()  # every unit is needed
    assert Ranked(one, scores).column("recovered")[0].tolist() == [1.0, 0.0, 0.0]


def test_shares():
    found = shares(torch.tensor([[1.0, -3.0], [0.0, 0.0]]))
    assert found.tolist() == [[0.25, 0.75], [0.5, 0.5]]
