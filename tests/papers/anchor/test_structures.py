import math
from dataclasses import replace

import pytest
import torch

from anchorlab.lens import look
from anchorlab.papers.anchor import structures as of
from anchorlab.papers.anchor.structures import STUDY, Accuracies
from anchorlab.tasks import task
from tests.papers.hand_made_runs import results_of, run_ending, seen_by_hand, student, values_of


def built(spec):
    return spec.build(task("anchor/identity").shape)


def test_the_fifteen_structures_are_those_of_the_paper_and_every_subset_is_a_model():
    found = of.structures()
    assert len(found) == len(set(found.values())) == 15
    wide = [name for name, spec in found.items() if (spec.width, spec.head_width) == (400, 64)]
    names = list(found)
    assert wide == [*names[:3], *names[-2:]]  # Figure 15's caption: the first three and the last two experiments
    assert all((found[name].width, found[name].head_width) == (201, 201) for name in names[3:-2])
    assert [found[name].layers for name in names] == [2] * 13 + [1, 1]
    found = of.every_subset(width=16, head_width=8)
    switches = {tuple(getattr(spec, name) for name in of.COMPONENTS.values()) for spec in found.values()}
    assert len(found) == len(switches) == 64
    for spec in found.values():
        outputs = built(spec)(torch.zeros(1, 9, dtype=torch.int64))
        assert outputs.shape == (1, 9, 201)
    # figure 15: "we run the experiment 5 times with different seeds for 4000 epochs"; 14 decide a share of seeds
    claimed = of.experiments(STUDY.profile("paper-claimed").setting)
    papers = of.experiments(of.PAPER)
    assert all(one.take(range(4)).cell == papers[name].take(range(4)).cell for name, one in claimed.items())
    assert {one.recipe.duration for one in claimed.values()} == {4000}
    assert [len(claimed[name].members) for name in (of.FULL, of.BADLY, of.NONE, of.ONE_LAYER)] == [4, 10, 15, 6]


def test_without_any_component_a_model_is_two_attention_products():
    # Section 5.4: X_out = Attn2 Attn1 X W_V1 W_V2, softmax over all positions, scaled by the square root of the size.
    model = built(of.structures()[of.NONE]).double()
    generator = torch.Generator().manual_seed(0)
    for value in model.parameters():
        value.data.normal_(0, 0.2, generator=generator)
    weights = {name: value.detach() for name, value in model.named_parameters()}
    inputs = torch.randint(0, 201, (4, 9), generator=generator)
    record = look(model, inputs, record=["hook_embed", "hook_pos_embed"])
    x = (record["hook_embed"] + record["hook_pos_embed"])[0]
    for layer in range(2):
        q, k, v = (x @ weights[f"blocks.{layer}.attn.W_{name}"] for name in "QKV")
        x = torch.softmax(q @ k.mT / math.sqrt(201), dim=-1) @ v
    torch.testing.assert_close(record["output"][0], x, rtol=1e-10, atol=1e-10)


def test_shifted_values_let_one_layer_see_the_next_token():
    model = built(of.structures(width=16, head_width=16)[of.SHIFTED])
    generator = torch.Generator().manual_seed(0)
    for value in model.parameters():
        value.data.normal_(0, 0.2, generator=generator)
    inputs = torch.randint(20, 100, (1, 9), generator=generator)
    changed = inputs.clone()
    changed[0, 5] = 101
    outputs = look(model, torch.cat([inputs, changed]))["output"][0]
    differs = (outputs[0] - outputs[1]).abs().amax(dim=-1) > 1e-6
    # The value at position 5 is handed to position 4, which position 4 and all later ones may attend to.
    assert differs.tolist() == [False] * 4 + [True] * 5


TEST = {  # two seeds of each structure that a claim is about
    of.FULL: [0.992, 1.0],
    of.NO_FNN: [0.82, 1.0],
    of.BADLY: [0.1, 0.4],
    of.NONE: [0.9, 1.0],
    of.ONE_LAYER: [0.0, 0.02],
    of.SHIFTED: [0.94, 1.0],
}


def seen(test, train=0.95) -> Accuracies:
    """Test accuracies by structure; all seeds fit their training sequences, but for those given."""
    made = {name: torch.tensor(values) for name, values in test.items()}
    fitted = {name: torch.full_like(values, train) for name, values in made.items()}
    return seen_by_hand(Accuracies, train=fitted, test=made)


def test_values_of_accuracies_made_by_hand_have_all_seeds_as_units():
    expected = {"full": 0.996, "no-fnn": 0.91, "one-layer": 0.01, "shifted-values": 0.97, "badly": 0.25, "none": 0.5}
    assert values_of(STUDY, seen(TEST)) == pytest.approx(expected | {"fewer-is-better": (0.8 + 0.6) / 2})
    found = results_of(STUDY, seen(TEST))
    assert {name: len(one.units) for name, one in found.items()} == dict.fromkeys(found, 2)
    assert found["full"].interval == student(0.996, 0.992, 1.0)


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ([0.94] * 13, "undecided"),  # one in five passes over 13 with a chance of 0.8^13, above 5 %
        ([0.94] * 14, "differs at small scale"),
        ([0.97, 0.94], "undecided"),
        ([0.95, 0.97, 0.1], "undecided"),  # 2 of 3 or more of one in five: 0.104
        ([0.95, 0.97, 0.96, 0.2], "agrees at small scale"),  # 3 of 4: 0.0272
    ],
)
def test_two_layers_without_components_can_generalise_if_a_fifth_of_seeds_do(accuracies, verdict):
    can = next(one for one in STUDY.claims if one.name == "none")
    alone = replace(STUDY, claims=(can,), profiles={"quick": STUDY.profiles["quick"]})
    found = results_of(alone, seen({of.NONE: accuracies}))
    assert found["none"].verdict == verdict


def test_a_structure_that_should_fail_is_judged_only_where_it_was_trained_and_fits():
    unfit = values_of(STUDY, seen(TEST, train=0.94))
    assert {name for name, value in unfit.items() if value is None} == {"one-layer", "badly", "fewer-is-better"}
    one = seen(TEST)
    one.train[of.BADLY][1] = one.train[of.ONE_LAYER][0] = 0.9  # the second and the first of two seeds do not
    values = values_of(STUDY, one)
    assert [values[name] for name in ("one-layer", "badly", "fewer-is-better")] == pytest.approx([0.02, 0.1, 0.8])
    assert set(values_of(STUDY, seen({"residual": [1.0]})).values()) == {None}
    assert values_of(STUDY, seen({of.NONE: [1.0]}))["fewer-is-better"] is None


def test_accuracies_of_runs_made_by_hand():
    setting = {name: one.shortened(steps=2) for name, one in of.QUICK.items() if name in TEST}
    runs = [
        run_ending(one, TEST[one.label], (0.75, 0.25), before=(0.0, 0.5)) for one in of.experiments(setting).values()
    ]
    found = STUDY.see(runs, setting)
    assert {name: values.tolist() for name, values in found.test.items()} == {
        name: pytest.approx(values) for name, values in TEST.items()
    }
    assert {tuple(values.tolist()) for values in found.train.values()} == {(0.75, 0.25)}
    made = STUDY.analysis(runs, setting)
    training, test = made.figures[0].maps[0]
    assert test.row_ticks[0] == training.row_ticks[0] == of.FULL
    assert test.values[0] == pytest.approx((0.992, 1.0))
    assert training.values[0] == (0.75, 0.25)
    name, _, *accuracies = made.tables[0].rows[0]
    assert (name, *accuracies) == (of.FULL, *map(pytest.approx, (0.5, 0.996, 0.992, 1.0)))
