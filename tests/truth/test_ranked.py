"""Methods, controls and rankings of heads on models whose circuit is known by construction."""

import polars
import pytest
import torch

from anchorlab.lens import Circuit, Landscape, Passes, Scores, landscape, patch
from anchorlab.lens.circuits import AttentionRule, CircuitPath, Explanation
from anchorlab.models import DecoderSpec
from anchorlab.rng import child_seed
from anchorlab.tasks import task
from anchorlab.training.ensemble import initialise
from anchorlab.truth import agreement, compiled, reordered
from anchorlab.truth.heads import circuit_paths, cut_losses, detected, of_heads, strongest
from anchorlab.truth.methods import QUICK, TASKS
from anchorlab.truth.ranked import (
    ABLATION,
    BY_BASELINE,
    CIRCUIT,
    CONTROLS,
    DENOISING,
    DETECTORS,
    FAMILIES,
    INTEGRATED,
    METHODS,
    OF_HEADS,
    OTHER,
    PATCHING,
    PATHS,
    PLAIN,
    RANDOM,
    RESAMPLED,
    WRONG,
    Ranked,
    against,
    paired,
    ranked,
    shares,
    split_of,
)

LOSS = torch.tensor([[4.0, 1.0, 1.0, 0.0], [4.0, 4.0, 4.0, 0.0]]).double()  # either unit nearly suffices; both needed
TRUTH = Landscape(("0.0", "1.0"), LOSS, torch.full_like(LOSS, torch.nan))


def of(*values):
    return Scores("given", TRUTH.units, torch.tensor(values).double(), Passes(1, 0))


def written(name, variant, pairs=24):
    made = reordered(compiled(name, variant, rotated=True, sharpness=8), torch.Generator().manual_seed(2))
    return made, ranked(made.ensemble, made.task, pairs=pairs, sequences=100)


IN_GATES = (("identity", "backup"), ("identity", "cancelling"), ("composite", "distractor"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param(name, variant, marks=() if (name, variant) in IN_GATES else pytest.mark.nightly)
        for name in ("identity", "composite", "retrieval")
        for variant in ("backup", "distractor", "cancelling")
    ],
)
def test_the_landscape_of_a_compiled_model_is_its_truth(name, variant):
    made, found = written(name, variant)
    known = {frozenset(one) for one in made.truth.minimal}
    assert {frozenset(one) for one in found.whole.truth.minimal()[0]} == known
    assert (*found.whole.scores,) == (*METHODS, *CONTROLS) == (*found.resampled.scores,)
    assert (*found.heads.scores,) == (*METHODS, *CONTROLS, *OF_HEADS)
    assert found.resampled.truth.replace == "resample" and found.whole.truth.replace == "mean"
    assert found.whole.skill[0, found_at(WRONG)] < 0
    for method, truth in ((ABLATION, found.whole.truth), (RESAMPLED, found.resampled.truth)):
        without = [truth.subset(*(other for other in truth.units if other != unit)) for unit in truth.units]
        rises = truth.loss[0, without] - truth.loss[0, -1]
        torch.testing.assert_close(found.whole.scores[method].values[0], rises)
    assert not torch.allclose(found.whole.truth.loss, found.resampled.truth.loss, atol=0.1)
    heads = {frozenset(unit for unit in one if not unit.endswith(".mlp")) for one in known}
    assert {frozenset(one) for one in found.heads.truth.minimal()[0]} == heads


def found_at(name):
    return (*METHODS, *CONTROLS, *OF_HEADS).index(name)


def values(ranked, method):
    return dict(zip(ranked.truth.units, ranked.scores[method].of(ranked.truth.units)[0].abs().tolist(), strict=True))


@pytest.mark.slow
def test_what_is_known_of_the_methods_on_compiled_models():
    """Neither of two heads with the same job is missed alone; a head that writes where nothing reads is no circuit.

    The heads of layer 1 are exchanged: 1.1 answers.
    """
    backup = written("identity", "backup")[1].whole
    rise = values(backup, ABLATION)
    assert rise["0.0"] < 0.01 * rise["1.1"] and rise["0.1"] < 0.01 * rise["1.1"]
    assert backup.skill[0, found_at(f"{INTEGRATED}, pair")] == pytest.approx(1.0)
    distractor = written("identity", "distractor")[1].whole
    for method in (ABLATION, RESAMPLED, f"{PATHS}, pair"):
        assert distractor.skill[0, found_at(method)] == pytest.approx(1.0)
    for method in (ABLATION, RESAMPLED, *FAMILIES[PATCHING], *FAMILIES[PATHS], "direct attribution"):
        assert values(distractor, method)["1.0"] < 0.01 * values(distractor, method)["1.1"], method
    assert values(distractor, "direct attribution")["0.0"] < 1e-3  # layer 0 writes nothing to the logits


def test_what_is_known_of_the_methods_for_heads():
    """A distractor attends like the answer head, so that a detector recognises it; a cut of its paths costs nothing."""
    heads = written("identity", "distractor")[1].heads
    assert values(heads, DETECTORS)["1.0"] > 0.9 > 0.5 > values(heads, DETECTORS)["0.1"]
    paths = values(heads, CIRCUIT)
    assert paths["1.0"] == paths["0.1"] == 0.0 and min(paths["0.0"], paths["1.1"]) > 1.0
    assert heads.skill[0, found_at(CIRCUIT)] == pytest.approx(1.0)


def test_a_wrong_circuit_is_wrong_of_its_own_truth():
    """Unit 1.0 matters most for one truth, and unit 0.0 for the other."""
    loss = torch.tensor([[4.0, 3.0, 0.0, 0.0]]).double()
    one, other = (
        Landscape(("0.0", "1.0"), each, torch.full_like(each, torch.nan)) for each in (loss, loss[:, [0, 2, 1, 3]])
    )
    found = [
        Scores(name, ("0.0", "1.0"), torch.tensor([[1.0, 2.0]]).double(), Passes(0, 0))
        for name in (*METHODS, *CONTROLS[:-1])
    ]
    assert against(one, found).scores[WRONG].values[0].argmax() == 0
    assert against(other, found).scores[WRONG].values[0].argmax() == 1
    assert against(one, found).skill[0, 0] == 1.0 and against(other, found).skill[0, 0] == pytest.approx(-1.0, abs=0.1)


@pytest.mark.slow
def test_members_are_ranked_apart():
    of_task = task("anchor/identity")
    one, other = (compiled("identity", "backup", rotated=True, seed=seed, sharpness=8).ensemble for seed in (0, 1))
    ensemble = one.with_weights({name: torch.cat([value, other.weights[name]]) for name, value in one.weights.items()})
    found, other = (ranked(ensemble, of_task, pairs=16, sequences=40, seed=seed).whole for seed in (3, 4))
    assert found.skill.shape == (2, len(METHODS) + len(CONTROLS))
    assert torch.equal(found.scores[OTHER].values, found.scores[f"{INTEGRATED}, mean"].values.roll(1, dims=0))
    assert not torch.equal(found.scores[RANDOM].values, other.scores[RANDOM].values)
    assert torch.equal(found.scores[f"{PLAIN}, pair"].values, other.scores[f"{PLAIN}, pair"].values)

    def loss(output, answers):
        return torch.nn.functional.cross_entropy(output.flatten(0, 1), answers[..., 0].flatten(), reduction="none")

    for name, function in BY_BASELINE.items():
        by_logits = [form for form in FAMILIES[name] if form in {f"{name}, {one}" for one in ("pair", "mean", "zero")}]
        values = torch.stack([found.scores[form].values for form in by_logits]).flatten(1)
        assert len(values) >= 2 and torch.pdist(values).min() > 1e-3, name
        for form, metric in ((f"{name}, mean", None), (f"{name}, mean, loss", loss)):
            if form in FAMILIES[name]:
                expected = function(ensemble, *paired(of_task, 16), baseline="mean", metric=metric).values
                torch.testing.assert_close(found.scores[form].values, expected)
    restored = patch(ensemble, *paired(of_task, 16), over="head")  # of the corrupted run
    expected = (restored.difference - restored.corrupted[:, None, None]).flatten(1).float()
    heads = found.scores[DENOISING].of(["0.0", "0.1", "1.0", "1.1"]).float()
    torch.testing.assert_close(heads, expected, rtol=1e-4, atol=1e-4)


def test_methods_and_the_truth_read_other_sequences():
    """Short tasks have few sequences, of which some come in both."""
    for one in TASKS.values():
        truth = one.sample(split_of(one), QUICK.sequences, child_seed(0, "landscape")).inputs
        both = (paired(one, QUICK.pairs)[0].inputs[:, None] == truth).flatten(2).all(dim=2).any(dim=1)
        short = one.name in ("classics/associative-recall", "classics/brackets")
        assert both.sum() <= (4 if short else 0), one.name


def test_pairs_have_each_others_answers_and_shares_of_all():
    clean, corrupted = paired(task("anchor/identity"), 10)
    assert torch.equal(corrupted.inputs[1:], clean.inputs[:-1]) and torch.equal(corrupted.answers[0], clean.answers[-1])
    assert torch.equal(task("anchor/identity").oracle(corrupted.inputs).answers, corrupted.answers)
    found = shares(torch.tensor([[1.0, -3.0], [0.0, 0.0]]))
    assert found.tolist() == [[0.25, 0.75], [0.5, 0.5]]


def test_skill_is_the_area_of_agreement_from_chance_to_one():
    # three units of which one suffices: a random ranking has an area of a half
    loss = torch.tensor([[1.0, 0.0] * 4]).double()
    one = Landscape(("0.0", "0.1", "1.0"), loss, torch.full_like(loss, torch.nan))
    given = [[3.0, 1.0, 2.0], [2.0, 3.0, 1.0], [-1.0, 2.0, 3.0]]
    scores = {str(row): Scores(str(row), one.units, torch.tensor([row]).double(), Passes(0, 0)) for row in given}
    assert Ranked(one, scores).skill[0].tolist() == pytest.approx([1.0, 0.0, -1.0], abs=0.1)
    assert Ranked(TRUTH, {"given": of([1.0, 2.0], [1.0, 2.0])}).skill.isnan().all()  # every unit is needed
    assert Ranked(one, scores).columns["recovered"][0].tolist() == [1.0, 0.0, 0.0]
    loss = torch.tensor([[1.0, 0.0, 0.9, 0.0, 0.3, 0.0, 0.05, 0.0], [2.0, 2.0, 0.1, 0.0, 2.0, 0.0, 2.0, 0.0]]).double()
    one = Landscape(("0.0", "0.1", "1.0"), loss, torch.full_like(loss, torch.nan))
    values = torch.tensor([[1.0, -3.0, 2.0], [0.5, 0.4, 0.1]]).double()
    found = Ranked(one, {"a": Scores("a", one.units, values, Passes(0, 0))})
    table = agreement(found.scores["a"], one)  # the same for any scores
    for name in ("area", "correlation", "recovered"):
        assert found.columns[name][:, 0].tolist() == pytest.approx(table[name].to_list()), name
    area, chance = found.columns["area"], found.chance.unsqueeze(1)
    assert chance[:, 0].tolist() == table["area_by_chance"].to_list()
    torch.testing.assert_close(found.skill, (area - chance) / (1 - chance))
    assert area[:, 0].tolist() == [1.0, 0.5]


def test_the_landscape_of_heads_keeps_feed_forward_layers():
    of = task("anchor/identity")
    ensemble = initialise(DecoderSpec(layers=2, heads=2, width=16, head_width=8), of.shape, range(2))
    for replace in ("mean", "resample"):
        every, heads = (
            landscape(ensemble, units, replace, task=of, sequences=20, progress=False) for units in ("all", "heads")
        )
        found = of_heads(every)
        assert (found.units, found.replace) == (heads.units, replace)
        torch.testing.assert_close(found.loss, heads.loss, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.accuracy, heads.accuracy, rtol=0, atol=1e-6)
        assert heads.loss.std(dim=1).min() > 1e-4


def test_a_head_has_its_strongest_detector():
    """By how much of the way from chance to 1: 0.6 of 0.2 is half; uniform attention does not count, nor less."""
    rows = [
        (0, 0, 0, "shift", 0.6, 0.2), (0, 0, 0, "first_token", 0.5, 0.1), (0, 0, 1, "shift", 0.1, 0.2),
        (0, 0, 1, "uniform", 1.0, 0.2), (0, 1, 0, "broadcast", 1.0, 0.3), (1, 0, 0, "shift", 0.2, 0.2),
        (1, 0, 1, "shift", 0.8, 0.2), (1, 1, 0, "broadcast", 0.37, 0.3),
    ]  # fmt: skip
    names = ("member", "layer", "head", "detector", "value", "chance")
    found = strongest(polars.DataFrame(rows, schema=names, orient="row"))
    assert found.units == ("0.0", "0.1", "1.0") and found.passes == (1, 0)
    assert found.values[0].tolist() == pytest.approx([0.5, 0.0, 1.0])
    assert found.values[1].tolist() == pytest.approx([0.0, 0.75, 0.1])


def test_a_cut_of_a_heads_best_path():
    """Cuts of head 0.0 raise the live loss by 0.5 and 2; head 0.1 has no path, and no rule explains head 1.0."""
    rules = [AttentionRule("asked", at) for at in (0, 1)]
    cuts = {"attention": 1.0, "mapped_cut_loss": 9.0}
    circuit = Circuit(
        explanations={(0, 0): Explanation("uniform", tuple(rules)), (0, 1): Explanation("uniform"), (1, 0): None},
        paths=tuple(
            CircuitPath(0, 0, rule, cut_loss=loss, **cuts) for rule, loss in zip(rules, (1.5, 3.0), strict=True)
        ),
        roles=("key", "asked"),
        threshold=1.2,
        model_loss=0.5,
        loss=0.75,
        live_loss=1.0,
        empty_loss=6.5,
        rest_loss=6.0,
        causal=True,
    )
    assert cut_losses(circuit).tolist() == [2.0, 0.0, 6.0]


def test_members_keep_their_own_circuits_and_detectors():
    """Two members that differ in which head of layer 0 is idle."""
    of = task("anchor/identity")
    made = compiled("identity", "distractor", rotated=True, sharpness=8).ensemble
    turned = dict(made.weights)
    for role in "QKVO":
        name = f"blocks.0.attn.W_{role}"
        axis = 1 if role == "O" else 2
        turned[name] = turned[name].roll(turned[name].shape[axis] // 2, dims=axis)
    both = made.with_weights({name: torch.cat([value, turned[name]]) for name, value in made.weights.items()})
    paths = circuit_paths(both, of, "test", 24)
    assert paths.units == ("0.0", "0.1", "1.0", "1.1")
    assert paths.values[0, 0] > 1 and paths.values[0, 1] == 0 and paths.values[1, 0] == 0 and paths.values[1, 1] > 1
    seen = detected(both, of.sample("test", 24, seed=0)).values
    assert seen[0, 0] > 0.9 and seen[0, 1] < 0.5 and seen[1, 0] < 0.5 and seen[1, 1] > 0.9
