"""What the study of buffers measures, on models written by hand whose buffers are known."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from anchorlab.papers.retrieval.buffers import (
    QUICK,
    STUDY,
    Buffers,
    Read,
    analyse,
    buffers,
    exchanged,
    hand_written,
    overlap,
    queries,
    subspace,
)
from anchorlab.tasks import TokenRetrieval
from anchorlab.theory.compiled import Match, Move, assemble, chains
from tests.papers.hand_made_runs import run_ending, values_of, verdicts_of

TASK = TokenRetrieval(chains=3, steps=2, symbols=12, implicit_curriculum=False)
EVERY = torch.eye(12, dtype=torch.float64)
ASKED = queries(TASK, 600)


def written(change=lambda note, first, second: (note, first, second)):
    """The hand-written model of three heads, with some of them changed."""
    program = chains(TASK)
    spec, weights = assemble(replace(program, units=change(*program.units)), sharpness=60.0, gap=1.0)
    module = spec.build(TASK.shape)
    module.load_state_dict(weights)
    return module


@cache
def plain() -> Buffers:
    return buffers(written(), ASKED)


def block(name):
    """The projector on a block of the hand-written stream."""
    blocks = [one for one, size in chains(TASK).sizes.items() for _ in range(size)]
    return torch.diag(torch.tensor([float(one == name) for one in blocks], dtype=torch.float64)).unsqueeze(0)


def read_by(found, value):
    return found.decoded[0, :, value].tolist()


def test_separate_buffers_are_a_staircase():
    """x_0 is there from the start, x_1 from layer 1, x_2 from layer 2; unread, one of 12 symbols is a guess."""
    found, low = plain(), pytest.approx(1 / 12, abs=0.06)
    assert read_by(found, 0) == [1, 1, 1, 1]
    assert read_by(found, 1) == [low, low, 1, 1]
    assert read_by(found, 2) == [low, low, low, 1]
    assert found.matched.tolist() == [pytest.approx([1, 1])]
    assert found.overlap.tolist() == [pytest.approx([0, 0, 0], abs=1e-9)]
    assert found.dimensions.tolist() == [[11, 11, 11]]  # twelve symbols about their mean
    assert found.moved.tolist() == found.kept.tolist() == [1]


def test_an_overwritten_buffer_is_a_sliding_window():
    """Where the third head finds its pair, the token before is x_1: subtracting it empties the buffer of x_1."""

    def erase(note, first, second):
        return note, first, replace(second, moves=(*second.moves, Move("before", "1 ahead", -EVERY)))

    found = buffers(written(erase), ASKED)
    assert read_by(found, 1) == [pytest.approx(1 / 12, abs=0.06)] * 2 + [1, pytest.approx(1 / 12, abs=0.06)]
    assert read_by(found, 2)[-1] == 1 and found.moved.tolist() == [1]


def test_overlap_tells_which_heads_share_a_buffer():
    def share(note, first, second):
        return note, first, replace(second, moves=(Move("token", "before", EVERY),))

    assert buffers(written(share), ASKED).overlap.tolist() == [pytest.approx([0, 1, 0], abs=1e-9)]


def test_matching_tells_which_head_matches():
    """A head that finds the next symbol in place of its equal has a score of 0."""

    def shifted(head):
        (match, *rest) = head.matches
        return replace(head, matches=(Match(match.query, match.key, EVERY.roll(1, 0)), *rest))

    second = buffers(written(lambda note, first, second: (note, shifted(first), second)), ASKED)
    third = buffers(written(lambda note, first, second: (note, first, shifted(second))), ASKED)
    assert second.matched.tolist() == [pytest.approx([0, 1])] and third.matched.tolist() == [pytest.approx([1, 0])]


@pytest.mark.parametrize(("name", "moves"), [("token", False), ("1 ahead", True)])  # no other block differs
def test_only_the_buffer_that_is_read_moves_the_answer(name, moves):
    answers = exchanged(written(), ASKED, block(name))[0]
    assert answers.tolist() == (ASKED.other_end if moves else ASKED.chain[:, -1]).tolist()


def test_subspaces_and_overlaps_of_closed_form():
    rows = torch.diag(torch.tensor([10.0, 2.0, 0.5, 0.0], dtype=torch.float64))  # squares 100, 4, 0.25
    basis = subspace(rows)
    torch.testing.assert_close(basis.abs(), torch.eye(4, dtype=torch.float64)[:, :2], rtol=0, atol=1e-12)
    x, y, _ = torch.eye(3, dtype=torch.float64).unsqueeze(-1)
    slanted = x / 2 + y * 3**0.5 / 2  # 60 degrees from x
    plane = torch.cat([x, y], dim=1)
    assert [float(overlap(*two)) for two in ((x, y), (x, slanted), (slanted, plane), (plane, x))] == [
        pytest.approx(one, abs=1e-12) for one in (0, 0.25, 1, 1)
    ]


def test_queries_differ_in_the_last_token_alone():
    for task in (TASK, QUICK.task):
        asked = queries(task, 50)
        assert (asked.inputs[:, :-1] == asked.others[:, :-1]).all() and (
            asked.inputs[:, -1] != asked.others[:, -1]
        ).all()
        assert (asked.chain[:, 0] == asked.inputs[:, -1]).all()
        assert (task.oracle(asked.inputs).answers[:, -1] == asked.chain[:, 2]).all()
    followed = QUICK.task.oracle(asked.others)
    assert followed.known.all() and (followed.answers[:, 0] == asked.other_end).all()


def made(**changes):
    """Two members; every claim reads another number."""
    decoded = torch.tensor([[[1, 0.1, 0.1], [1, 0.1, 0.2], [1, 0.9, 0.3], [1, 0.94, 0.97]]] * 2, dtype=torch.float64)
    pair = torch.tensor([0.9, 1.0], dtype=torch.float64)
    found = Buffers(
        decoded, torch.tensor([[0.6, 0.8]] * 2), torch.zeros(2, 3), torch.ones(2, 3), moved=pair, kept=pair - 0.01
    )
    return Read(pair - 0.02 + 0.05, pair - 0.04, replace(found, **changes))


def test_values_of_buffers_made_by_hand():
    assert values_of(STUDY, made()) == {
        "learned": pytest.approx(0.98),
        "generalises": pytest.approx(0.91),
        "one-layer-each": pytest.approx(0.67),  # x_1 rises by 0.8 in layer 1, x_2 by 0.67 in layer 2
        "matches-start": pytest.approx(0.6),
        "matches-middle": pytest.approx(0.8),
        "not-overwritten": pytest.approx(0.94),
        "buffer-moves-answer": pytest.approx(0.95),
        "rest-moves-nothing": pytest.approx(0.94),
    }


def test_a_model_without_buffers_differs():
    none = made(
        decoded=torch.full((2, 4, 3), 0.1),
        matched=torch.full((2, 2), 0.05),
        moved=torch.zeros(2),
        kept=torch.tensor([0.1, 0.1]),
    )
    found = verdicts_of(STUDY, none)
    assert found == {
        **dict.fromkeys(found, "differs at small scale"),
        **dict.fromkeys(("learned", "generalises"), "agrees at small scale"),
    }


def test_the_page_lists_every_seed_and_the_hand_written_model():
    small = replace(QUICK, members=QUICK.members.replace(seeds=(1000, 1001)))
    run = run_ending(small, (0.5, 0.6), (0.7, 0.8), {0: small.initial_ensemble()})
    found = analyse([run], small)
    (table,) = found.tables
    assert [row[0] for row in table.rows] == ["seed 1000", "seed 1001", "by hand"]
    of_hand = dict(zip(table.columns, table.rows[-1], strict=True))
    assert of_hand["matches x_0"] == of_hand["x_1 at the end"] == of_hand["moved"] == of_hand["kept"] == 1
    assert hand_written().moved.tolist() == [1] and found.seen.tested.tolist() == pytest.approx([0.5, 0.6])
