"""What the simplified model does, on patterns and models made by hand."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import one_hot

from anchorlab.lens import Record
from anchorlab.papers.anchor import simplified
from anchorlab.tasks import task
from anchorlab.training.ensemble import Ensemble
from tests.papers.hand_made_models import blank
from tests.papers.hand_made_runs import HandMadeRun, run_ending, seen_by_hand, values_of

SITES = ("blocks.0.attn.hook_pattern", "blocks.1.hook_resid_pre", "blocks.1.attn.hook_pattern")


def made_by_hand(batch, length=9):
    """Figure 16 as patterns: the anchor's row reads the key, all others the anchor; then all read the anchor's row."""
    anchors, keys = batch.latents["anchor_positions"][:, 0], batch.latents["key_positions"][:, 0]
    first = one_hot(anchors, length).float().unsqueeze(1).repeat(1, length, 1)
    first[torch.arange(len(anchors)), anchors] = one_hot(keys, length).float()
    second = one_hot(anchors, length).float().unsqueeze(1).repeat(1, length, 1)
    return first, second


TOKENS = torch.eye(201)  # one direction per token
BARE = {  # embeddings and value maps that do nothing; positions have no vectors
    "embed.W_E": TOKENS[None],
    "pos_embed.W_pos": torch.zeros(1, 9, 201),
    "blocks.0.attn.W_V": TOKENS[None],
    "blocks.1.attn.W_V": TOKENS[None],
}


def measure(first, rows, second, batch, weights=BARE) -> simplified.Mechanism:
    """From patterns `[member batch query key]` and rows, of members that learned and have the same weights."""
    arrays = dict(zip(SITES, (first.unsqueeze(2), rows, second.unsqueeze(2)), strict=True))
    arrays["output"] = second @ first @ TOKENS[batch.inputs]
    weights = {name: value.expand(len(first), *value.shape[1:]) for name, value in weights.items()}
    return simplified.read_mechanism(Record(arrays, {}, batch.inputs), weights, batch)


def test_members_are_kept_apart_and_two_kinds_of_rows():
    batch = task("anchor/identity").sample("test", 10, seed=0)
    first, second = made_by_hand(batch)
    even = torch.full((10, 9, 9), 1 / 9)
    rows = torch.ones(2, 10, 9, 4)
    found = measure(torch.stack([even, first]), rows, torch.stack([even, second]), batch)
    assert found.product.tolist() == [pytest.approx(1 / 9), pytest.approx(1.0)]
    assert found.all_to_anchor.tolist() == [pytest.approx(1 / 9), pytest.approx(1.0)]
    assert found.others_to_anchor.tolist() == [pytest.approx(1 / 9), pytest.approx(1.0)]
    at = torch.tensor([1])
    rows = torch.tensor([[[[3.0, 7], [0, 7], [3, 7]]], [[[1, 0], [2, 0], [4, 0]]], [[[5, 5], [5, 5], [5, 5]]]])
    # Two kinds, far from zero; 1, 2, 4 have squares 14/3 about their mean 7/3, of which 2 against (1 + 4) / 2 has 1/6;
    # three equal rows are of one kind.
    assert simplified.variance_between(rows, at)[:, 0].tolist() == pytest.approx([1, (1 / 6) / (14 / 3), 0])
    batch = task("anchor/identity").sample("test", 40, seed=0)
    first, second = made_by_hand(batch)
    second[:, :4] = torch.eye(9)[batch.latents["anchor_positions"][:, 0] - 1].unsqueeze(1)  # a row that has the anchor
    found = measure(first[None], (first @ TOKENS[batch.inputs])[None], second[None], batch)
    assert found.rows_right.tolist() == [pytest.approx(5 / 9)]


def classified(**changed) -> tuple[float, float]:
    """What `BARE` weights with changes classify: with the vectors of a key's positions, and without."""
    names = {"embeddings": "embed.W_E", "positions": "pos_embed.W_pos"}
    names |= {"first": "blocks.0.attn.W_V", "second": "blocks.1.attn.W_V"}
    batch = task("anchor/identity").sample("test", 2, seed=0)
    even = torch.full((1, 2, 9, 9), 1 / 9)
    weights = BARE | {names[name]: value[None] for name, value in changed.items()}
    found = measure(even, torch.ones(1, 2, 9, 4), even, batch, weights)
    return float(found.classified), float(found.classified_alone)


def test_value_maps_classify_where_they_undo_the_embedding_and_no_position_hides_the_item():
    turn = torch.linalg.qr(torch.randn(201, 201, generator=torch.Generator().manual_seed(0)))[0]
    shift = TOKENS.roll(1, dims=1)  # gives every token its next
    assert classified(embeddings=turn, first=turn.T @ shift, second=shift.T) == (1.0, 1.0)
    assert classified(embeddings=turn, first=shift.T, second=turn.T @ shift) == pytest.approx((0.0, 0.0), abs=0.05)
    assert classified(second=shift) == (0.0, 0.0)
    places = torch.zeros(9, 201)
    places[3, 50] = 2  # beside it every other item is less
    assert classified(positions=places) == (pytest.approx((7 + 1 / 81) / 8), 1.0)
    places = torch.zeros(9, 201)
    places[0, 50] = 2  # no key is first
    places[3, 150] = 2  # nor is 150 an item
    assert classified(positions=places) == (pytest.approx(7 / 8), 1.0)


def seen(accuracy, anchor_to_key, others_to_anchor, kinds, all_to_anchor, rows, items) -> simplified.Seen:
    """Each given `[member]`; what no claim reads is 9."""
    unread = [9.0] * len(accuracy)
    values = (unread, anchor_to_key, others_to_anchor, kinds, all_to_anchor, rows, items, unread)
    mechanism = simplified.Mechanism(*map(torch.tensor, values))
    return seen_by_hand(simplified.Seen, accuracy=torch.tensor(accuracy), mechanism=mechanism)


def test_seeds_that_did_not_learn_are_not_judged():
    mixed = seen(
        [0.89, 0.91, 0.97], [9, 0.1, 0.2], [9, 0.3, 0.5], [9, 0.8, 0.7], [9, 0, 1.0], [9, 0.9, 1], [9, 0.7, 0.9]
    )
    assert values_of(simplified.STUDY, mixed) == {
        "generalises": pytest.approx(1 / 3), "shift": pytest.approx(0.15), "broadcast": pytest.approx(0.4),
        "two-kinds": pytest.approx(0.75), "second-broadcast": pytest.approx(0.5), "all-rows": pytest.approx(0.95),
        "classifies": pytest.approx(0.8),
    }  # fmt: skip
    none = values_of(
        simplified.STUDY,
        seen_by_hand(simplified.Seen, accuracy=torch.tensor([0.89, 0.5, 0.1]), mechanism=mixed.mechanism),
    )
    assert none.pop("generalises") == 0.0
    assert set(none.values()) == {None}


def ensemble(*firsts: str) -> Ensemble:
    """The study's model, where layer 0 reads the `anchor` or attends to `all` alike, and layer 1 reads the anchor."""
    made = blank(simplified.QUICK.model, "anchor/identity", len(firsts))
    weights = made.weights
    weights["pos_embed.W_pos"][:, :, 0] = 1
    weights["embed.W_E"][:, 3, 1] = 1
    for layer in range(2):
        read = [layer == 1 or first == "anchor" for first in firsts]
        weights[f"blocks.{layer}.attn.W_Q"][:, 0, 0] = 1000
        weights[f"blocks.{layer}.attn.W_K"][read, 1, 0] = 1
    weights["blocks.0.attn.W_V"][:, [0, 1], [0, 1]] = 1
    return made


def test_what_a_run_made_by_hand_does():
    setting = replace(simplified.QUICK, seeds=2)
    ensembles = {0: ensemble("all", "all"), 2400: ensemble("anchor", "all")}
    run = run_ending(*simplified.experiments(setting).values(), (0.92, 0.97), (0.5, 0.5), ensembles)
    seen = simplified.STUDY.see([run], setting)
    found = seen.mechanism
    assert seen.accuracy.tolist() == pytest.approx([0.92, 0.97])
    assert found.others_to_anchor.tolist() == pytest.approx([1.0, 1 / 9])
    assert found.anchor_to_key.tolist() == pytest.approx([0.0, 1 / 9], abs=1e-6)
    # Layer 0 brings every position the same row, so that layer 1 is even over all; so is the product's second factor.
    assert found.all_to_anchor.tolist() == pytest.approx([1 / 9, 1 / 9])
    assert found.product.tolist() == pytest.approx([0.0, 1 / 9], abs=1e-6)
    made = simplified.STUDY.analysis([run], setting)
    assert made.figures[0].caption.startswith("Seed 1001,")  # the best in test
    assert [one.seeds for one in made.figures] == ["1001", "1001"]
    first, _, product = made.figures[0].maps[0]
    assert first.values[8][4] == pytest.approx(1 / 9)
    assert product.values[8][5] == pytest.approx(1 / 9)
    heads = dict(zip(made.tables[0].columns, made.tables[0].rows[0], strict=True))
    assert heads["Attn1, others to anchor"] == pytest.approx(1.0)
    assert heads["Attn1, anchor to key"] == pytest.approx(0.0, abs=1e-6)


def solving() -> Ensemble:
    """The study's model as Figure 16 has it: layer 0 sends the anchor to its next position and all others to the
    anchor, layer 1 sends all to the row that holds an item, and the value maps keep items alone."""
    made = blank(simplified.QUICK.model, "anchor/identity")
    weights = made.weights
    anchor, items, place, always, score = 3, range(20, 101), 101, 120, 60 * 201**0.5
    weights["embed.W_E"][0] = TOKENS
    for position in range(9):
        weights["pos_embed.W_pos"][0, position, [place + position, always]] = 1
        weights["blocks.0.attn.W_Q"][0, place + position, place + position + 1] = score  # the next position
        weights["blocks.0.attn.W_K"][0, place + position, place + position] = 1
    weights["blocks.0.attn.W_Q"][0, [always, anchor], anchor] = torch.tensor([2, -3]) * score  # not from itself
    weights["blocks.0.attn.W_K"][0, anchor, anchor] = 1
    weights["blocks.0.attn.W_V"][0] = torch.diag(torch.tensor([float(i in (*items, always)) for i in range(201)]))
    weights["blocks.1.attn.W_Q"][0, always, 0] = score
    weights["blocks.1.attn.W_K"][0, items, 0] = 1
    weights["blocks.1.attn.W_V"][0] = torch.diag(torch.tensor([float(i in items) for i in range(201)]))
    return made


def run_of(ensemble: Ensemble) -> HandMadeRun:
    return run_ending(
        *simplified.experiments(replace(simplified.QUICK, seeds=1)).values(), [1.0], [1.0], {2400: ensemble}
    )


def test_a_model_that_solves_the_task_as_the_paper_says_measures_one():
    run = run_of(solving())
    found = simplified.STUDY.see([run], simplified.QUICK)
    assert values_of(simplified.STUDY, found) == dict.fromkeys(
        values_of(simplified.STUDY, found), pytest.approx(1.0, abs=1e-5)
    )
    made = simplified.STUDY.analysis([run], replace(simplified.QUICK, seeds=1))
    ((drawn,),) = made.figures[1].maps
    assert torch.equal(torch.tensor(drawn.values), torch.eye(81))
    row = dict(zip(made.tables[0].columns, made.tables[0].rows[0], strict=True))
    assert (row["output rows right"], row["items classified"], row["by embedding alone"]) == (1, 1, 1)


def test_a_second_attention_to_the_anchors_has_no_row_right_and_no_profile_is_the_papers():
    ensemble = solving()
    ensemble.weights["blocks.1.attn.W_K"].neg_()  # rows with the key are now the last to be read
    for layer in range(2):
        ensemble.weights[f"blocks.{layer}.attn.W_V"][0, 3, 3] = 1  # the others name the anchor
    found = simplified.STUDY.see([run_of(ensemble)], simplified.QUICK).mechanism
    assert found.rows_right.tolist() == [0.0]
    assert found.classified.tolist() == [1.0]
    paper = simplified.STUDY.profile("paper")
    assert not any(paper.is_papers_setting(one.name) for one in simplified.STUDY.claims)
