"""What the study of circuits measures, on circuits written by hand."""

from dataclasses import replace
from math import nan

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import AttentionRule, Explanation
from anchorlab.papers.retrieval import circuits, one_head
from anchorlab.papers.retrieval.circuits import STUDY, Seen, later_rules
from anchorlab.papers.retrieval.one_head import Solution, first_useful, joining, useful_heads
from anchorlab.papers.retrieval.settings import smoke
from anchorlab.training.ensemble import initialise
from tests.papers.hand_made_circuits import FIRST, JOIN, SECOND, circuit, maps_titled, path, titled
from tests.papers.hand_made_runs import HandMadeRun, judged, results_of, seen_by_hand, values_of

GOOD = circuit(path(0, JOIN, cut=0.3), path(1, FIRST), path(3, SECOND, cut=0.4))
LARGE = circuit(path(0, JOIN), path(1, FIRST), path(2, SECOND), path(5, FIRST), layers=8)
STAY = AttentionRule("x1 of pair 1", 0)
POOR = circuit(path(0, FIRST), path(1, SECOND), path(2, FIRST), path(3, SECOND, cut=0.1), loss=0.04, model=0.002)


def found(*several, uniform, layers=8):
    models = [Solution(at, at, one) for at, one in enumerate(several)]
    return seen_by_hand(
        Seen, models=models, first_uniform=uniform, steps=2, layers=layers
    )  # three heads are the least for two steps


def test_values_of_circuits_written_by_hand_good_and_poor():
    large = replace(LARGE, rest_loss=0.91)
    seen = found(large, replace(GOOD, model_loss=0.001, rest_loss=0.91), uniform=(0.05, 0.09))
    assert values_of(STUDY, seen) == {
        "solved": 0.001, "suffices": 1.0, "few-do-all": pytest.approx((0.905 / 0.995 + 0.909 / 0.999) / 2),
        "needed": 1.0, "needed-as-printed": 1.0,
        "first-is-indirect": pytest.approx(0.07), "first-joins-pair": 1.0,
        "few-heads": pytest.approx((4 / 8 + 1 / 4) / 2), "more-than-least": 0.5, "differ": 1.0,
    }  # fmt: skip
    one = found(large, uniform=(0.09,))
    assert {"few-heads": 0.5, "more-than-least": 1.0}.items() <= values_of(STUDY, one).items()
    seen = found(GOOD, POOR, POOR, replace(POOR, model_loss=0.5), uniform=(0.1, 0.2, 0.3, 9.0))
    assert values_of(STUDY, seen) == {
        "solved": 0.002, "suffices": 1.0, "few-do-all": pytest.approx((0.895 / 0.995 + 2 * 0.898 / 0.998) / 3),
        "needed": pytest.approx(1 / 3), "needed-as-printed": pytest.approx(1 / 3),  # 0.1 / 0.04 and 0.05 of the poor
        "first-is-indirect": pytest.approx(0.2), "first-joins-pair": pytest.approx(1 / 3),
        "few-heads": pytest.approx(1 / 12), "more-than-least": pytest.approx(2 / 3), "differ": pytest.approx(2 / 3),
    }  # fmt: skip
    alike = values_of(STUDY, found(POOR, POOR, replace(POOR, loss=0.06), uniform=(0, 0, 0)))
    assert (alike["suffices"], alike["differ"]) == (pytest.approx(2 / 3), 0.0)


def test_a_model_is_one_unit_and_circuits_differ_by_what_their_later_heads_do():
    seen = results_of(STUDY, found(GOOD, POOR, POOR, replace(POOR, model_loss=0.5), uniform=(0.1, 0.2, 0.3, 9.0)))
    assert seen["differ"].units == (1.0, 0.5, 0.5)
    assert seen["suffices"].units == (1.0, 1.0, 1.0)
    assert seen["suffices"].interval == pytest.approx((0.05 ** (1 / 3), 1.0))  # exact binomial: 3 of 3
    assert seen["solved"].units == (0.005, 0.002, 0.002, 0.5)
    moved = circuit(path(1, FIRST), path(2, FIRST), path(3, SECOND))
    swapped = circuit(path(0, JOIN), path(1, SECOND), path(3, FIRST))
    assert later_rules(GOOD, 2) == later_rules(moved, 2)
    assert later_rules(GOOD, 2) != later_rules(swapped, 2)
    assert joining(2) == {JOIN, AttentionRule("x2 of pair 2", "x1 of pair 2")}


def test_models_that_do_not_solve_it_or_keep_attention_are_left_out():
    unsolved = circuit(path(0, FIRST), loss=0.6, model=0.5)
    keeps = circuit(path(1, FIRST), path(2, SECOND, cut=0.1))
    keeps = replace(keeps, explanations={**keeps.explanations, (0, 0): None})
    seen = found(GOOD, unsolved, keeps, uniform=(0.07, 0.9, 0.5), layers=4)
    values = values_of(STUDY, seen)
    assert (values["solved"], values["suffices"]) == (0.005, 0.5)
    assert (values["needed"], values["first-is-indirect"]) == (1.0, pytest.approx(0.07))
    assert (values["few-heads"], values["differ"]) == (None, None)  # of four layers four may be in use; one model
    few = STUDY.claims[2](seen)
    assert (few.spread, few.detail) == ("one value", "1 of 3 models")
    nothing = values_of(STUDY, found(unsolved, uniform=(0.9,)))
    assert {name for name, value in nothing.items() if value is not None} == {"solved"}


def test_one_seed_of_the_papers_setting_with_a_loss_above_the_papers():
    """At 0.03 it follows the chains. The claims about losses, of models below 0.01, have no value; the others have."""
    one = replace(LARGE, model_loss=0.03, live_loss=0.04, rest_loss=0.98)
    values = judged(STUDY, found(one, uniform=(0.09,)), "paper")
    # nor is there another model from which it could differ
    assert values == pytest.approx(dict.fromkeys(("suffices", "needed-as-printed", "first-is-indirect", "differ")) | {
        "solved": 0.03, "few-do-all": 0.95 / 0.97, "needed": 1.0, "first-joins-pair": 1.0, "few-heads": 0.5,
        "more-than-least": 1.0,
    })  # fmt: skip
    both = judged(STUDY, found(one, replace(GOOD, model_loss=0.009), uniform=(0.09, 0.06)), "paper")
    assert (both["solved"], both["first-is-indirect"], both["needed-as-printed"]) == (0.009, 0.06, 1.0)
    lost = values_of(STUDY, found(replace(one, model_loss=0.06), uniform=(0.09,)))
    assert {name for name, value in lost.items() if value is not None} == {"solved"}


def test_heads_without_rules_are_in_use_and_the_first_useful_ones_only_join_pairs():
    # five of eight heads: four with a path, of which one keeps its own attention, and one more that does
    kept = replace(LARGE, explanations={**LARGE.explanations, (2, 0): None, (6, 0): None})
    values = values_of(STUDY, found(kept, uniform=(0.09,)))
    assert (values["few-heads"], values["more-than-least"]) == (3 / 8, 1.0)
    assert (values["suffices"], values["few-do-all"], values["first-joins-pair"]) == (0.0, None, None)
    # they are the only ones that may be missed little
    two = circuit(path(0, JOIN, cut=0.2), path(1, JOIN, cut=0.2), path(2, FIRST), path(3, JOIN, cut=0.5))
    assert first_useful(two, 2) == [(0, 0), (1, 0)]
    assert first_useful(POOR, 2) == [(0, 0)]
    values = values_of(STUDY, found(two, uniform=(0.07,)))
    assert values["needed-as-printed"] == 1.0  # 0.25, and not 0.1, of the first two


def test_heads_that_keep_every_query_at_its_own_place_are_idle():
    """Appendix E replaces idle heads by uniform attention or by an identity."""
    idle = circuit(path(0, STAY, cut=0.03), path(1, JOIN), path(2, JOIN), path(2, STAY), path(3, FIRST), layers=8)
    assert idle.heads == ((0, 0), (1, 0), (2, 0), (3, 0))
    assert idle.useful_heads == ((1, 0), (2, 0), (3, 0))
    assert [[str(each.rule) for each in paths] for paths in useful_heads(idle).values()] == [
        [str(JOIN)], [str(JOIN)], [str(FIRST)],
    ]  # fmt: skip
    values = values_of(STUDY, found(idle, uniform=(0.07,)))
    assert (values["few-heads"], values["first-joins-pair"], values["more-than-least"]) == (5 / 8, 1.0, 0.0)
    assert values["needed"] == 1.0  # 0.6 / 0.02 of the others, and not 0.03 / 0.02


def test_the_first_heads_of_each_circuit_is_made_uniform(monkeypatch):
    """One loss for each model, of its own member, with everything else as its circuit has it."""
    explained = circuit(path(2, FIRST), path(1, JOIN), path(0, JOIN))
    explained = replace(explained, paths=explained.paths[::-1])
    models = [Solution(1, 1, explained), Solution(0, 0, circuit(path(2, SECOND)))]
    asked = []

    class Losses:
        def __init__(self, ensemble, task, batch):
            assert torch.equal(batch.inputs, task.sample("test", 256, seed=1).inputs)
            asked.append(ensemble)

        def loss(self, assignment):
            asked.append(dict(assignment))
            return 0.5 + len(asked)

    class Members:
        def select(self, members):
            return tuple(members)

    monkeypatch.setattr(one_head, "solutions", lambda run, rise: models if rise == pytest.approx(0.04) else [])
    monkeypatch.setattr(circuits, "AttentionLosses", Losses)
    seen = STUDY.see([HandMadeRun(smoke(2), (0, 6), {}, {6: Members()})], smoke(2))
    assert (seen.models, seen.first_uniform, seen.steps, seen.layers) == (models, [2.5, 4.5], 2, 2)
    uniform = Explanation("uniform")
    assert asked == [
        (1,),
        {**explained.explanations, (0, 0): uniform, (1, 0): uniform},
        (0,),
        dict.fromkeys(models[1].circuit.explanations, uniform),
    ]


def test_tables_have_a_row_for_each_model_and_each_path(monkeypatch):
    weak = replace(circuit(path(3, SECOND), path(0, JOIN)), live_loss=0.03, empty_loss=1.02, rest_loss=0.4)
    seen = found(weak, circuit(layers=2), uniform=(0.2, 0.7))
    seen.runs = {"models": HandMadeRun(smoke(2), (0, 6), {}, {3: None, 6: None})}
    monkeypatch.setattr(one_head, "view_circuits", lambda run, models, steps: titled(f"step {steps}"))
    monkeypatch.setattr(one_head, "attention_maps", lambda run, one: maps_titled(f"seed {one.seed}"))
    figure, maps, models, paths, view = (draw(seen) for draw in STUDY.draws)
    assert models.rows == (
        # of 1.015 that attention does, the circuit does 1, and 0.395 are lost without its paths
        (0, "0, 3", 2, 0, 0.005, 0.02, 0.03, 1.02, 0.2, *map(pytest.approx, (1 / 1.015, 0.395 / 1.015, 0.6 / 0.03))),
        (1, "none", 0, 0, 0.005, 0.02, 0.02, 1.0, 0.7, *map(pytest.approx, (0.98 / 0.995, 0.895 / 0.995)), None),
    )
    assert paths.columns == ("seed", "layer", "from", "to", "attention", "cut, live", "cut, maps")
    assert paths.rows == (
        (0, 0, "x1 of pair 1", "x0 of pair 1", 0.9, 0.6, 0.3),
        (0, 3, "query x0", "x2 of pair 2", 0.9, 0.6, 0.3),
    )
    assert [len(panel.arrows) for panel in figure.panels] == [2, 0]
    assert figure.panels[0].layers == 4
    assert (maps.title, view.title) == ("seed 0", "step [6]")


def test_attention_maps_are_means_over_chains_in_the_order_of_the_sequence():
    setting = smoke(2, seeds=1)  # pairs of step 2 fill positions 0 to 7, those of step 1 positions 8 to 15
    ensemble = initialise(setting.model, setting.task.shape, [0])
    weights = {name: torch.zeros_like(value) for name, value in ensemble.weights.items()}
    weights["embed.W_E"][0, 4:, :4] = torch.eye(4)  # only the position vectors enter the stream
    weights["blocks.1.ln1.w"] += 1
    weights["blocks.1.attn.W_Q"][0], weights["blocks.1.attn.W_K"][0] = 1e5 * torch.eye(16), torch.eye(16)
    run = HandMadeRun(setting, (0, 6), {}, {6: ensemble.with_weights(weights)})
    figure = one_head.attention_maps(run, Solution(0, 1000, GOOD))
    ((uniform, same),) = figure.maps
    assert (uniform.title, same.title) == ("layer 0", "layer 1")
    assert uniform.row_ticks == uniform.column_ticks == (
        "x1 of pair 2", "x2 of pair 2", "x0 of pair 1", "x1 of pair 1", "query x0",
    )  # fmt: skip
    asked = [sum(1 / (1 + place) for place in places) / 4 for places in ((0, 2, 4, 6), (1, 3, 5, 7), range(16, 20))]
    assert torch.tensor(same.values) == pytest.approx(torch.eye(5), abs=1e-3)
    assert uniform.values[0] == pytest.approx((asked[0], 0, 0, 0, 0), abs=1e-3)
    assert uniform.values[1] == pytest.approx((asked[1], asked[1], 0, 0, 0), abs=1e-3)
    assert uniform.values[4] == pytest.approx([asked[2]] * 5, abs=1e-3)


def test_circuits_are_the_same_after_they_were_kept_as_text(monkeypatch):
    cut = Explanation("itself", (FIRST,), cut=(STAY, JOIN))
    one = replace(circuit(path(0, JOIN), path(3, STAY)), causal=False)
    one = replace(one, explanations={**one.explanations, (1, 0): None, (2, 0): cut})
    run = HandMadeRun(smoke(2), (0, 6), {("test", "loss"): [[1.0, nan], [1.0, 0.5]]}, {6: None})
    monkeypatch.setattr(one_head, "find_circuit", lambda ensemble, task, *, member, rise: one)
    assert one_head.solutions(run, 0.1) == [Solution(1, 1001, one)]  # the first member diverged
    kept = run.taken["circuits, rise 0.1"]
    part = HandMadeRun(smoke(2), (0, 6), {})
    part._readings = {"circuits, rise 0.1": kept}
    assert one_head.solutions(part, 0.1) == [Solution(1, 1001, one)]
    with pytest.raises(SpecError, match="run: long take more than"):
        one_head.as_json(run, "long", lambda run: ["x" * 2**18])
