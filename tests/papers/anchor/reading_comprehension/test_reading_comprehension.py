"""Reading comprehension, on models made by hand: one shifts and matches, another reads the same item of every text."""

from dataclasses import replace

import pytest
import torch

from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.reading_comprehension import answering
from anchorlab.papers.anchor.reading_comprehension.reading_comprehension import QUICK, STUDY, experiments
from anchorlab.tasks import task
from anchorlab.training.ensemble import Ensemble
from tests.papers.hand_made_models import blank
from tests.papers.hand_made_runs import HandMadeRun, run_ending, seen_by_hand, values_of, verdicts_of

LENGTH, ANCHORS, ITEMS = 9, range(1, 9), range(20, 101)
OWN, BEFORE, ITEM, ANSWER = 9, 17, 25, 106  # where the stream's coordinates begin, after one for each position
WIDTH, HEAD = 187, 81
SHARP = 60.0  # exp(-60) is nothing
BATCH = task("anchor/reading-comprehension").sample("test", answering.LOOKED_AT, seed=0)
TEXT, QUESTION = BATCH.inputs[:, 1:8:2], BATCH.inputs[:, 8]
ASKED = (BATCH.inputs[:, 0:8:2] == QUESTION.unsqueeze(1)).int().argmax(dim=1)  # the pair of the text, from 0


def circuit(*members: tuple[int, str]) -> Ensemble:
    """Two layers of two heads; a member is how far head 1 of layer 0 shifts, and what both heads of layer 1 read.

    Head 0 of layer 0 does nothing. Layer 1 reads the item to which the question's anchor was shifted (`match`), that of
    the `first` pair, half the `anchor` itself and half the question, where there is no item, or all items alike to
    which an anchor was shifted (`any`).
    """
    spec = DecoderSpec(layers=2, heads=2, width=WIDTH, head_width=HEAD, layer_norm=False, feed_forward=False)
    ensemble = blank(spec, "anchor/reading-comprehension", len(members))
    weights = ensemble.weights
    weights["pos_embed.W_pos"][:, :, :LENGTH] = torch.eye(LENGTH)
    weights["embed.W_E"][:, ANCHORS.start : ANCHORS.stop, OWN:BEFORE] = torch.eye(8)
    weights["embed.W_E"][:, ITEMS.start : ITEMS.stop, ITEM:ANSWER] = torch.eye(81)
    weights["unembed.W_U"][:, ANSWER:, ITEMS.start : ITEMS.stop] = torch.eye(81)
    sharp = SHARP * HEAD**0.5
    weights["blocks.0.attn.W_Q"][:, :LENGTH, HEAD : HEAD + LENGTH] = torch.eye(LENGTH) * sharp
    weights["blocks.0.attn.W_V"][:, OWN:BEFORE, HEAD : HEAD + 8] = torch.eye(8)
    weights["blocks.0.attn.W_O"][:, HEAD : HEAD + 8, BEFORE:ITEM] = torch.eye(8)
    for member, (shift, read) in enumerate(members):
        for position in range(LENGTH - shift):
            weights["blocks.0.attn.W_K"][member, position, HEAD + position + shift] = 1
        for at in (0, HEAD):
            query, key, value, out = (weights[f"blocks.1.attn.W_{name}"][member] for name in "QKVO")
            if read == "any":
                query[OWN:BEFORE, at], key[BEFORE:ITEM, at], key[OWN:BEFORE, at] = sharp, 1, -1
            elif read == "first":
                query[LENGTH - 1, at], key[1, at] = sharp, 1
            else:
                query[OWN:BEFORE, at : at + 8] = torch.eye(8) * sharp
                # position 0 attends to itself alone in layer 0: its own anchor takes away what it shifts to itself
                key[OWN:BEFORE, at : at + 8] = torch.eye(8) * (-1 if read == "match" else 1)
            if read == "match":
                key[BEFORE:ITEM, at : at + 8] = torch.eye(8)
            value[ITEM:ANSWER, at : at + HEAD] = torch.eye(HEAD)
            out[at : at + HEAD, ANSWER:] = torch.eye(HEAD)
    return ensemble


PAPERS, FIXED, DIRECT, ANY = (1, "match"), (2, "first"), (1, "anchor"), (1, "any")


def run(test: list[float], train: list[float], *members: tuple[int, str]) -> HandMadeRun:
    """A run that ends with these members and begins with those that read the first pair's item."""
    (experiment,) = experiments(replace(QUICK, seeds=len(test))).values()
    before = circuit(*[FIXED] * len(test))
    return run_ending(experiment, test, train, {0: before, 25: before, 1500: circuit(*members)})


def see(made: HandMadeRun) -> answering.Seen:
    return STUDY.see([made], QUICK)


def share(true: torch.Tensor) -> float:
    return float(true.float().mean())


FIRST = share(ASKED == 0)  # how often the first pair is asked for
SMALLEST = share(TEXT.amin(dim=1) == BATCH.answers[:, 0])  # how often the asked item is the smallest of its text
# the item of the pair after the asked one left out
WITHOUT_NEXT = TEXT.scatter(1, ((ASKED + 1) % 4).unsqueeze(1), ITEMS.stop)
SMALLEST_LEFT = share(WITHOUT_NEXT.amin(dim=1) == BATCH.answers[:, 0])
# The last pair is asked for and smaller than the two before it: so it is named where the first pair cannot be read.
LAST_OF_THREE = share((ASKED == 3) & (TEXT[:, 1:].argmin(dim=1) == 2))


def by_frequency() -> float:
    """How often the asked pair is the one in whose place its anchor is most frequent."""
    counts = torch.stack([(BATCH.inputs[:, 0:8:2] == anchor).sum(dim=0) for anchor in ANCHORS])
    return share(counts[QUESTION - 1].argmax(dim=1) == ASKED)


@pytest.mark.slow
def test_a_circuit_that_shifts_and_matches_and_another_that_reads_the_same_item():
    seen = see(run([0.98, 0.94], [1.0, 0.97], PAPERS, FIXED))
    of_uniform = float((1 / (2 * ASKED + 2)).mean())  # what a head without a preference gives an item's anchor
    assert values_of(STUDY, seen) == {
        "learned": pytest.approx(0.96),
        "fits": pytest.approx(0.985),
        "shift-mass": pytest.approx((1 + of_uniform) / 2, abs=1e-5),
        "reading-mass": pytest.approx((1 + FIRST) / 2, abs=1e-5),
        # without its shift the first names the smallest of the four items, all equally likely
        "shift-critical": pytest.approx((1 - SMALLEST) / 2, abs=1e-5),
        "broadcast-critical": pytest.approx((1 + FIRST + LAST_OF_THREE) / 2, abs=1e-5),
    }
    assert 0.2 < SMALLEST < 0.3 < SMALLEST_LEFT < 0.4 and 0.2 < FIRST < 0.3 and by_frequency() < 0.5


def test_a_model_that_shifts_and_matches_does_what_the_paper_says_of_another_task():
    seen = see(run([1.0], [1.0], PAPERS))
    assert set(verdicts_of(STUDY, seen).values()) == {"agrees at small scale"}
    scopes = {one.claim.id.rpartition("/")[2]: one.scope for one in STUDY.judge(seen, "quick")}
    own = dict.fromkeys(("shift-mass", "reading-mass", "shift-critical", "broadcast-critical"), "own")
    assert scopes == {"learned": "other", "fits": "precondition"} | own


@pytest.mark.slow
def test_members_that_did_not_learn_are_not_judged_and_what_heads_attend_to():
    alone, together = (see(run([0.98], [1.0], PAPERS)), see(run([0.98, 0.89], [1.0, 1.0], PAPERS, FIXED)))
    judged = {name: value for name, value in values_of(STUDY, together).items() if name != "learned"}
    assert judged == pytest.approx({name: values_of(STUDY, alone)[name] for name in judged}, abs=1e-5)
    none = values_of(STUDY, see(run([0.89], [1.0], PAPERS)))
    assert [name for name, value in none.items() if value is not None] == ["learned", "fits"]
    heads = see(run([1.0] * 3, [1.0] * 3, PAPERS, FIXED, DIRECT)).heads
    assert heads.shifting.tolist() == [1, 0, 1]  # x1, which has nothing two places back, attends to all alike
    assert heads.to_anchor[:, 1].tolist() == pytest.approx([1, FIRST / 2, 1], abs=1e-5)
    assert heads.shifts[:, 1].tolist() == [1, 2, 1]
    assert heads.to_item[:, 0].tolist() == [pytest.approx([value] * 2, abs=1e-5) for value in (1, FIRST, 0)]
    assert heads.to_match[:, 0].tolist() == [pytest.approx([value] * 2, abs=1e-5) for value in (0, 0, 0.5)]
    assert heads.sources[0].tolist() == [[1, 1]] and heads.sources[2].tolist() == [[0, 0]]
    assert all(one.tolist() == [0, 0, 0] for one in heads.reading)


@pytest.mark.slow
def test_what_is_answered_without_some_attention():
    answers = see(run([1.0] * 3, [1.0] * 3, PAPERS, FIXED, ANY)).answers
    matching, fixed, any_item = (
        {name: shares[member].tolist() for name, shares in answers.cut.items()} for member in range(3)
    )
    right, other = [1, 0, 0, 0], pytest.approx([0, 1, 0, 0])
    smallest = pytest.approx([SMALLEST, 1 - SMALLEST, 0, 0], abs=1e-5)
    first = pytest.approx([FIRST, 1 - FIRST, 0, 0], abs=1e-5)
    first_or_last = pytest.approx([FIRST + LAST_OF_THREE, 1 - FIRST - LAST_OF_THREE, 0, 0], abs=1e-5)
    # of the items that it is left with, all equally likely, it names the smallest
    smallest_left = pytest.approx([SMALLEST_LEFT, 1 - SMALLEST_LEFT, 0, 0], abs=1e-5)
    cuts = (answering.WHOLE, answering.FUSED, answering.OTHER_FUSED, answering.READ, answering.OTHER_READ)
    cuts += (answering.MATCHED,)
    assert matching == dict(zip(cuts, (right, smallest, right, other, right, right), strict=True))
    assert fixed == dict(zip(cuts, (first, first, first, other, first_or_last, first), strict=True))
    assert any_item == dict(zip(cuts, (smallest, other, smallest_left, other, smallest_left, smallest), strict=True))
    left = answers.without_head[..., 0]  # [member layer head], accuracies
    assert left[0, 0].tolist() == pytest.approx([1, by_frequency()], abs=1e-5)
    assert left[0, 1].tolist() == [1, 1]  # either head of layer 1 does for both
    assert left[1, 0].tolist() == pytest.approx([FIRST, FIRST], abs=1e-5)


def test_the_reading_head_is_found_in_all_later_layers_and_an_only_head_has_no_others():
    to_item = torch.tensor([[[0.1, 0.3, 0.2], [0.2, 0.1, 0.9]], [[0.1, 0.8, 0.2], [0.7, 0.1, 0]]])
    shifts = torch.ones(2, 3, dtype=torch.int64)
    deep = answering.Heads(torch.rand(2, 3), shifts, to_item, torch.rand(2, 2, 3), torch.ones(2, 2, 3).long())
    assert [one.tolist() for one in deep.reading] == [[1, 0], [2, 1]]
    seen = see(run([1.0], [1.0], PAPERS))
    heads = answering.Heads(**{name: values[..., 1:] for name, values in vars(seen.heads).items()})
    answers = replace(seen.answers, without_head=seen.answers.without_head[:, :, 1:])
    values = values_of(
        STUDY, seen_by_hand(answering.Seen, train=seen.train, test=seen.test, heads=heads, answers=answers)
    )
    assert values["shift-mass"] == pytest.approx(1, abs=1e-5)


def test_answers_are_sorted_by_what_they_name_and_places_are_those_of_the_question():
    # By hand: 40 is asked for; 20 and 100 are the outermost items; 19 and 101 are none.
    answers = torch.tensor([40, 50, 20, 100, 19, 101, 3])
    assert answering.kinds(answers, torch.tensor([40, 30, 50, 60]).expand(7, 4)).tolist() == [0, 1, 2, 2, 3, 3, 3]
    assert answering.kinds(torch.tensor([40]), torch.tensor([[40, 40, 50, 60]])).tolist() == [0]
    assert len(answering.KINDS) == 4
    (anchors, places), items = answering.places(BATCH), answering.asked_first(BATCH)
    assert torch.equal(BATCH.inputs.gather(1, anchors)[:, 0], QUESTION)
    assert torch.equal(items[:, 0], BATCH.answers[:, 0]) and torch.equal(places, anchors + 1)
    assert torch.equal(items.sort(dim=1).values, TEXT.sort(dim=1).values)
    assert torch.equal(places[:, 1], (places[:, 0] + 1) % 8 + 1)
    assert torch.equal(BATCH.inputs.gather(1, places), items)
    same = BATCH.inputs.unsqueeze(2) == BATCH.inputs.unsqueeze(1)
    assert (same.sum(dim=(1, 2)) == LENGTH + 2).all()


@pytest.mark.slow
def test_what_is_drawn_and_listed():
    made = run([0.97, 0.99], [1.0, 1.0], FIXED, PAPERS)
    analysis = STUDY.analysis([made], QUICK)
    accuracy, maps, errors = analysis.figures
    assert [one.label for one in accuracy.lines] == ["train", "test"]
    first, second = maps.maps[0]
    assert (first.title, second.title) == ("layer 0, head 1", "layer 1, head 0")  # of the second seed, the best
    assert maps.seeds == "1001"
    assert first.values[3][2] == pytest.approx(1) and second.values[8][3] == pytest.approx(1)  # the second pair
    assert [line.label for line in errors.lines] == list(answering.KINDS)
    right, other, *none = (line.mean for line in errors.lines)
    assert all(line.x == (25, 1500) for line in errors.lines)
    assert right == pytest.approx([FIRST, (1 + FIRST) / 2]) and other == pytest.approx([1 - FIRST, (1 - FIRST) / 2])
    assert all(mean == (0, 0) for mean in none)
    heads, answers = analysis.tables
    assert heads.rows[1] == pytest.approx((1001, 0.99, 1, 1, 1, 1, 0, 1, 1, 0, SMALLEST, by_frequency(), 0), abs=1e-5)
    listed = {row[0]: row[1:] for row in answers.rows}
    assert len(listed) == 10 and all(sum(row) == pytest.approx(1) for row in listed.values())
    assert listed["the shifting head"][0] == pytest.approx((FIRST + by_frequency()) / 2)
    assert listed["another head of layer 0"][0] == pytest.approx((FIRST + 1) / 2)
    assert listed["another head of the reading layer"][0] == pytest.approx((FIRST + 1) / 2)
