"""Buffers of models written by hand: queries of two chains, what layers bring to them, and subspaces of closed form."""

from dataclasses import replace
from functools import cache
from math import isnan, sqrt

import pytest
import torch
from torch.nn.functional import one_hot

import anchorlab as al
from anchorlab.models import VectorSpec
from anchorlab.papers.retrieval import one_head
from anchorlab.papers.retrieval.buffers import queries as of
from anchorlab.papers.retrieval.buffers import vectors
from anchorlab.papers.retrieval.buffers.buffers import QUICK
from anchorlab.papers.retrieval.buffers.queries import Queries, exchanged, token_queries, vector_queries
from anchorlab.papers.retrieval.buffers.tokens import Buffers, buffers, hand_written
from anchorlab.theory.compiled import Move
from tests.papers.retrieval.buffers.hand_made import LONGER, TASK, block, erase, share, shifted, written


def queries(task):
    """Symbols as one-hot vectors."""
    asked = token_queries(task, 2000)
    own, other = (one_hot(chain, 12).float() for chain in (asked.chain, asked.other_chain))
    return Queries(asked.inputs, asked.others, own, other)


def read_of(found, value):
    return found.decoded[0, :, value].tolist()


def test_what_the_layers_of_a_model_written_by_hand_bring():
    """Of three steps, layer 1 brings x_1, and layer 2 both x_2 and the answer x_3."""
    found = vectors.vector_buffers(written(task=LONGER), queries(LONGER), (3,))
    no, yes = pytest.approx(0, abs=0.1), pytest.approx(1, abs=0.01)
    assert read_of(found, 0) == [yes, yes, yes, yes]
    assert read_of(found, 1) == [no, no, yes, yes]
    assert read_of(found, 2) == [no, no, no, yes] and read_of(found, 3) == [no, no, no, yes]
    assert found.brought_by.tolist() == [[1, 2, 2]]
    assert found.moved.tolist() == [[[0], [1], [1]]]  # nothing reads what layer 0 writes to the query
    assert found.moved_own.tolist() == found.moved_later.tolist() == [1]
    assert found.against_random.flatten().tolist() == pytest.approx([0] * 9, abs=1e-9)
    assert found.successive.tolist() == pytest.approx([0], abs=1e-9)
    assert found.dimensions[0, :2].tolist() == [11, 11]


def test_an_overwritten_buffer_is_read_no_more():
    found = vectors.vector_buffers(written(erase), queries(TASK), (2,))
    assert read_of(found, 1)[2:] == [pytest.approx(1, abs=0.01), pytest.approx(0, abs=0.1)]
    assert read_of(found, 2)[3] == pytest.approx(1, abs=0.01) and found.brought_by.tolist() == [[1, 2]]
    found = buffers(written(erase), ASKED)
    assert read_of(found, 1) == [pytest.approx(1 / 12, abs=0.06)] * 2 + [1, pytest.approx(1 / 12, abs=0.06)]
    assert read_of(found, 2)[-1] == 1 and found.moved[0, 1] == 1


def test_layers_that_write_to_one_subspace():
    """The second head writes to the block of the first, 11 dimensions; of random ones they would share 11 / width."""

    def both(note, first, second):
        return note, replace(first, moves=(Move("token", "before", torch.eye(12).double()),)), second

    model = written(both)
    found = vectors.vector_buffers(model, queries(TASK), (2,))
    assert found.against_random[0, 0, 1] == pytest.approx(model.embed.W_E.shape[1] / 11)


def made(decoded, moved=None, against_random=None):
    """Members whose stream is read to these shares, `[member stage value]`, of three layers."""
    values = torch.tensor(decoded, dtype=torch.float64)
    pairs = torch.tensor(against_random or [[[0.0, 0.3, 0.5], [0.3, 0.0, 0.7], [0.5, 0.7, 0.0]]] * len(values))
    moved = torch.zeros(len(values), 3, values.shape[2] - 1) if moved is None else torch.tensor(moved)
    return vectors.VectorBuffers(values, pairs.double(), torch.ones(len(values), 3), moved.double(), (1, 2))


STAIRS = [[1, 0.0, 0.0], [1, 0.9, 0.0], [1, 0.9, 0.1], [0.2, 1.0, 1.0]]  # x_1 in layer 0, x_2 in layer 2
SUDDEN = [[1, 0.0, 0.0], [1, 0.1, 0.0], [1, 1.0, 1.0], [1, 1.0, 1.0]]  # both in layer 1
BACKWARDS = [[1, 0.0, 0.0], [1, 0.2, 0.9], [1, 0.9, 1.0], [1, 1.0, 1.0]]  # x_2 in layer 0, x_1 in layer 1
MOVED = [[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]] * 3


def test_layers_that_bring_symbols_and_their_successors():
    found = made([STAIRS, SUDDEN, BACKWARDS], MOVED)
    assert found.brought_by.tolist() == [[0, 2], [1, 1], [1, 0]]
    assert found.successive[[0, 2]].tolist() == pytest.approx([0.5, 0.3]) and isnan(found.successive[1])
    assert found.moved_own.tolist() == pytest.approx([(0.1 + 0.6) / 2, (0.3 + 0.4) / 2, (0.3 + 0.2) / 2])
    assert found.moved_later[0] == pytest.approx(0.2)  # x_2 with layer 0
    assert isnan(found.moved_later[1]) and isnan(found.moved_later[2])  # nothing comes later
    three = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1.0]]
    assert made([three]).successive.tolist() == pytest.approx([(0.3 + 0.7) / 2])


def test_a_share_of_closed_form_is_read_and_not_what_is_fitted():
    # of 0.6 s + 0.8 e, a map of s explains 0.36; of a symbol that is 10,000 times fainter than the rest, nothing
    draw = torch.Generator().manual_seed(0)
    signal, noise, other = torch.randn(3, 20_000, 2, generator=draw, dtype=torch.float64)
    target = 0.6 * signal + 0.8 * noise
    values = torch.stack([torch.cat([scale * signal, other], dim=1) + 3 for scale in (1.0, 1e-4)])
    assert vectors.share_read(values, target + 5).tolist() == pytest.approx([0.36, 0], abs=0.02)
    assert vectors.share_read(values, signal).tolist() == pytest.approx([1, 0], abs=0.01)
    # fitted to 100 targets of noise, 50 numbers of noise explain half of them; of others, the error is 1 + 50 / 49
    draw = torch.Generator().manual_seed(0)
    values, target = torch.randn(1, 200, 50, generator=draw), torch.randn(200, 30, generator=draw)
    assert vectors.share_read(values, target).item() == pytest.approx(-50 / 49, abs=0.2)
    own, other = torch.zeros(4, 2, 1), torch.tensor([[[1.0], [2.0]]] * 4)
    outputs = torch.tensor([[[0.6, 0.9], [0.4, 1.1], [0.9, 0.2], [-1.0, 0.0]]])
    assert vectors.nearer_to_other(outputs, own, other).tolist() == [[0.5, 0.25]]


def test_the_layers_that_join_and_read_pairs_in_this_order():
    # as the gallery's circuits have them: of both models that the package ships, layers 1 and 2
    run = al.zoo("retrieval/minimal")
    joins, reads = vectors.pair_layers(run.ensemble(), one_head.QUICK.task, 50)
    assert joins.tolist() == [1, 1] and reads.tolist() == [2, 2]
    # of the second member, 0.5 x 0.9 is more than 0.8 x 0.5 and all else; 0.9 and 0.95 would be in the wrong order
    first = torch.tensor([[0.2, 0.9, 0.1], [0.5, 0.8, 0.9]])
    second = torch.tensor([[0.95, 0.1, 0.5], [0.95, 0.9, 0.5]])
    assert [one.tolist() for one in vectors.first_then_second(first, second)] == [[1, 0], [2, 1]]


KERNELS = {
    "equal": (torch.eye(2), (1, 1), (1, 1), 1),
    "opposite": (-torch.eye(2), (1, 1), (1, 1), -1),
    "swapped": (torch.eye(2).flip(0), (1, 1), (1, 1), 0),
    "by the gains where pairs are joined": (torch.eye(2), (1, 3), (1, 1), 4 / sqrt(20)),  # diag(1, 3)
    "by the gains where pairs are read": (torch.eye(2), (1, 1), (1, 2), 5 / sqrt(34)),  # diag(1, 4), with each twice
}


@pytest.mark.parametrize(("table", "joining", "reading", "expected"), KERNELS.values(), ids=KERNELS)
def test_alignment_of_closed_form(table, joining, reading, expected):
    """Two features lie along coordinates 0 - 1 and 2 - 3, shifted by a mean that norms take away; layer 0 moves them to
    4 - 5 and 6 - 7, where keys of layer 1 hold them."""
    task = al.task("retrieval/minimal", steps=2, features=2)
    model = VectorSpec(layers=2, heads=1, width=8, head_width=4, feed_forward=False).build(task.shape)
    first, second = (block.attn for block in model.blocks)
    both = torch.kron(table, torch.eye(2))
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.fill_(1.0 if name.endswith("ln1.w") else 0.0)
        model.embed.W_E[:2] = torch.tensor([[1.0, -1, 0, 0, 0, 0, 0, 0], [0, 0, 1, -1, 0, 0, 0, 0]]) + 0.7
        model.embed.W_E[2:] = 9.0  # positions
        first.W_V[:4], first.W_O[:, 4:] = torch.eye(4), torch.eye(4)
        second.W_Q[:4], second.W_K[4:] = both, torch.eye(4)
        for weights, gains in ((model.blocks[0].ln1.w, joining), (model.blocks[1].ln1.w, reading)):
            weights[:] = torch.tensor(gains).repeat_interleave(2).repeat(2).float()
    found = vectors.alignment(model, 2, torch.tensor([0]), torch.tensor([1]))
    assert found.item() == pytest.approx(expected, abs=1e-6)


ASKED = token_queries(TASK, 600)


# No other block differs.
@pytest.mark.parametrize(
    ("layer", "name", "moves"), [(1, "token", False), (0, "token", True), (1, "1 ahead", True), (0, "1 ahead", False)]
)
def test_only_the_buffer_that_is_read_moves_the_answer(layer, name, moves):
    answers = exchanged(written(), ASKED, layer, block(name))[0].argmax(dim=-1)
    assert answers.tolist() == (ASKED.other_chain if moves else ASKED.chain)[:, -1].tolist()


def test_queries_differ_in_the_last_token_or_symbol_alone():
    for task in (TASK, QUICK.two_steps.task):
        asked = token_queries(task, 50)
        assert (asked.inputs[:, :-1] == asked.others[:, :-1]).all() and (
            asked.inputs[:, -1] != asked.others[:, -1]
        ).all()
        assert (asked.chain[:, 0] == asked.inputs[:, -1]).all()
        assert (task.oracle(asked.inputs).answers[:, -1] == asked.chain[:, 2]).all()
    followed = QUICK.two_steps.task.oracle(asked.others)
    assert followed.known.all() and (followed.answers[:, 0] == asked.other_chain[:, -1]).all()
    task = one_head.QUICK.task
    asked = vector_queries(task, 50)
    assert (asked.inputs[:, :-1] == asked.others[:, :-1]).all()
    assert (asked.inputs[:, -1, 8:] == asked.others[:, -1, 8:]).all()  # its position
    assert (asked.inputs[:, -2, :8] == asked.others[:, -1, :8]).all()  # the query before
    for inputs, chain in ((asked.inputs, asked.chain), (asked.others, asked.other_chain)):
        assert (chain[:, 0] == inputs[:, -1, :8]).all()
        followed = task.oracle(inputs)
        assert followed.known[:, -1].all() and torch.equal(followed.answers[:, -1], chain[:, 1:].flatten(1))


@cache
def plain() -> Buffers:
    return buffers(written(), ASKED)


def test_separate_buffers_are_a_staircase():
    # x_0 is there from the start, x_1 from layer 1, x_2 from layer 2; unread, one of 12 symbols is a guess
    found, low = plain(), pytest.approx(1 / 12, abs=0.06)
    assert read_of(found, 0) == [1, 1, 1, 1]
    assert read_of(found, 1) == [low, low, 1, 1]
    assert read_of(found, 2) == [low, low, low, 1]
    assert found.matched.tolist() == [pytest.approx([1, 1])]
    none = [pytest.approx([0, 0, 0], abs=1e-9)]
    assert found.overlap.tolist() == none and found.against_random.tolist() == none
    assert found.dimensions.tolist() == [[11, 11, 11]]  # twelve symbols about their mean
    assert found.moved.tolist() == [[0, 1, 1]] and found.kept.tolist() == [1]  # nothing reads what head 0 writes there
    found = hand_written()
    assert found.moved.tolist() == [[0, 1, 1]] and found.dimensions.tolist() == [[23, 23, 23]]


def test_overlap_and_matching_tell_which_heads_share_a_buffer_or_match():
    # random subspaces of 11 dimensions overlap by 11 over the width
    model = written(share)
    found = buffers(model, ASKED)
    assert found.overlap.tolist() == [pytest.approx([0, 0, 1], abs=1e-9)]  # heads 0 and 1, 1 and 2, 0 and 2
    width = model.embed.W_E.shape[1]
    assert found.against_random.tolist() == [pytest.approx([0, 0, width / 11], abs=1e-9)]
    # A head that finds the next symbol in place of its equal has a score of 0
    second = buffers(written(lambda note, first, second: (note, shifted(first), second)), ASKED)
    third = buffers(written(lambda note, first, second: (note, first, shifted(second))), ASKED)
    assert second.matched.tolist() == [pytest.approx([0, 1])] and third.matched.tolist() == [pytest.approx([1, 0])]


X, Y, Z = torch.eye(3, dtype=torch.float64).unsqueeze(-1)
PLANE = torch.cat([X, Y], dim=1)
SLANTED = X / 2 + Y * 3**0.5 / 2  # 60 degrees from x
TILTED = torch.cat([X / 2 + Z * 3**0.5 / 2, Y], dim=1)  # shares y with the plane, and has 60 degrees from x


def test_subspaces_projectors_and_their_overlaps_by_chance():
    rows = torch.diag(torch.tensor([10.0, 2.0, 0.5, 0.0], dtype=torch.float64))  # squares 100, 4, 0.25
    basis = of.subspace(rows)
    torch.testing.assert_close(basis.abs(), torch.eye(4, dtype=torch.float64)[:, :2], rtol=0, atol=1e-12)
    draw = torch.Generator().manual_seed(0)

    def basis(dimensions):
        return torch.linalg.qr(torch.randn(20, dimensions, generator=draw, dtype=torch.float64)).Q

    for one, other in ((3, 5), (5, 3), (4, 4), (8, 2)):
        found = torch.stack([of.against_random(basis(one), basis(other)) for _ in range(400)])
        assert float(found.mean()) == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize(
    ("one", "other", "expected", "ratio"),
    [
        (X, Y, 0, 0),
        (X, SLANTED, 0.25, 0.75),  # random lines: 1 / 3
        (SLANTED, PLANE, 1, 1.5),  # a random line and a random plane: 2 / 3
        (PLANE, X, 1, 1.5),
        (PLANE, TILTED, 0.625, 0.9375),  # squared cosines 1 and 1 / 4
    ],
)
def test_overlaps(one, other, expected, ratio):
    assert float(of.overlap(one, other)) == pytest.approx(expected, abs=1e-12)
    assert float(of.against_random(one, other)) == pytest.approx(ratio, abs=1e-12)
