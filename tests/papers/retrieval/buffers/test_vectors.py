"""What layers bring to a query, and how far scores match: models written by hand, and numbers of closed form."""

from dataclasses import replace
from math import isnan, sqrt

import pytest
import torch
from torch.nn.functional import one_hot

import anchorlab as al
from anchorlab.models import VectorSpec
from anchorlab.papers.retrieval import one_head
from anchorlab.papers.retrieval.buffers.queries import Queries, token_queries
from anchorlab.papers.retrieval.buffers.vectors import (
    VectorBuffers,
    alignment,
    first_then_second,
    nearer_to_other,
    pair_layers,
    share_read,
    vector_buffers,
)
from anchorlab.theory.compiled import Move
from tests.papers.retrieval.buffers.hand_made import LONGER, TASK, erase, written


def queries(task):
    """Symbols as one-hot vectors."""
    asked = token_queries(task, 2000)
    own, other = (one_hot(chain, 12).float() for chain in (asked.chain, asked.other_chain))
    return Queries(asked.inputs, asked.others, own, other)


def read_of(found, value):
    return found.decoded[0, :, value].tolist()


def test_what_the_layers_of_a_model_written_by_hand_bring():
    """Of three steps, layer 1 brings x_1, and layer 2 both x_2 and the answer x_3."""
    found = vector_buffers(written(task=LONGER), queries(LONGER), (3,))
    no, yes = pytest.approx(0, abs=0.1), pytest.approx(1, abs=0.01)
    assert read_of(found, 0) == [yes, yes, yes, yes]
    assert read_of(found, 1) == [no, no, yes, yes]
    assert read_of(found, 2) == [no, no, no, yes] and read_of(found, 3) == [no, no, no, yes]
    assert found.brings.tolist() == [[1, 2, 2]]
    assert found.moved.tolist() == [[[0], [1], [1]]]  # nothing reads what layer 0 writes to the query
    assert found.moved_own.tolist() == found.moved_later.tolist() == [1]
    assert found.against_random.flatten().tolist() == pytest.approx([0] * 9, abs=1e-9)
    assert found.successive.tolist() == pytest.approx([0], abs=1e-9)
    assert found.dimensions[0, :2].tolist() == [11, 11]


def test_an_overwritten_buffer_is_read_no_more():
    found = vector_buffers(written(erase), queries(TASK), (2,))
    assert read_of(found, 1)[2:] == [pytest.approx(1, abs=0.01), pytest.approx(0, abs=0.1)]
    assert read_of(found, 2)[3] == pytest.approx(1, abs=0.01) and found.brings.tolist() == [[1, 2]]


def test_layers_that_write_to_one_subspace():
    """The second head writes to the block of the first, 11 dimensions; of random ones they would share 11 / width."""

    def both(note, first, second):
        return note, replace(first, moves=(Move("token", "before", torch.eye(12).double()),)), second

    model = written(both)
    found = vector_buffers(model, queries(TASK), (2,))
    assert found.against_random[0, 0, 1] == pytest.approx(model.embed.W_E.shape[1] / 11)


def made(decoded, moved=None, against_random=None):
    """Members whose stream is read to these shares, `[member stage value]`, of three layers."""
    values = torch.tensor(decoded, dtype=torch.float64)
    pairs = torch.tensor(against_random or [[[0.0, 0.3, 0.5], [0.3, 0.0, 0.7], [0.5, 0.7, 0.0]]] * len(values))
    moved = torch.zeros(len(values), 3, values.shape[2] - 1) if moved is None else torch.tensor(moved)
    return VectorBuffers(values, pairs.double(), torch.ones(len(values), 3), moved.double(), (1, 2))


STAIRS = [[1, 0.0, 0.0], [1, 0.9, 0.0], [1, 0.9, 0.1], [0.2, 1.0, 1.0]]  # x_1 in layer 0, x_2 in layer 2
SUDDEN = [[1, 0.0, 0.0], [1, 0.1, 0.0], [1, 1.0, 1.0], [1, 1.0, 1.0]]  # both in layer 1
BACKWARDS = [[1, 0.0, 0.0], [1, 0.2, 0.9], [1, 0.9, 1.0], [1, 1.0, 1.0]]  # x_2 in layer 0, x_1 in layer 1
MOVED = [[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]] * 3


def test_layers_that_bring_symbols():
    found = made([STAIRS, SUDDEN, BACKWARDS], MOVED)
    assert found.brings.tolist() == [[0, 2], [1, 1], [1, 0]]
    assert found.successive[[0, 2]].tolist() == pytest.approx([0.5, 0.3]) and isnan(found.successive[1])
    assert found.moved_own.tolist() == pytest.approx([(0.1 + 0.6) / 2, (0.3 + 0.4) / 2, (0.3 + 0.2) / 2])
    assert found.moved_later[0] == pytest.approx(0.2)  # x_2 with layer 0
    assert isnan(found.moved_later[1]) and isnan(found.moved_later[2])  # nothing comes later


def test_successive_layers_are_neighbours_among_those_that_bring_symbols():
    three = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1.0]]
    assert made([three]).successive.tolist() == pytest.approx([(0.3 + 0.7) / 2])


def test_a_share_of_closed_form_is_read():
    """Of 0.6 s + 0.8 e, a map of s explains 0.36; of a symbol that is 10,000 times fainter than the rest, nothing."""
    draw = torch.Generator().manual_seed(0)
    signal, noise, other = torch.randn(3, 20_000, 2, generator=draw, dtype=torch.float64)
    target = 0.6 * signal + 0.8 * noise
    values = torch.stack([torch.cat([scale * signal, other], dim=1) + 3 for scale in (1.0, 1e-4)])
    assert share_read(values, target + 5).tolist() == pytest.approx([0.36, 0], abs=0.02)
    assert share_read(values, signal).tolist() == pytest.approx([1, 0], abs=0.01)


def test_what_is_fitted_is_not_what_is_read():
    """Fitted to 100 targets of noise, 50 numbers of noise explain half of them; of others, the error is 1 + 50 / 49."""
    draw = torch.Generator().manual_seed(0)
    values, target = torch.randn(1, 200, 50, generator=draw), torch.randn(200, 30, generator=draw)
    assert share_read(values, target).item() == pytest.approx(-50 / 49, abs=0.2)


def test_answers_nearer_to_the_other():
    own, other = torch.zeros(4, 2, 1), torch.tensor([[[1.0], [2.0]]] * 4)
    outputs = torch.tensor([[[0.6, 0.9], [0.4, 1.1], [0.9, 0.2], [-1.0, 0.0]]])
    assert nearer_to_other(outputs, own, other).tolist() == [[0.5, 0.25]]


def test_the_layers_that_join_and_read_pairs():
    """As the gallery's circuits have them: of both models that the package ships, layers 1 and 2."""
    run = al.zoo("retrieval/minimal")
    joins, reads = pair_layers(run.ensemble(), one_head.QUICK.task, 50)
    assert joins.tolist() == [1, 1] and reads.tolist() == [2, 2]


def test_pairs_are_read_after_they_are_joined():
    """Of the second member, 0.5 x 0.9 is more than 0.8 x 0.5 and all else; 0.9 and 0.95 would be in the wrong order."""
    first = torch.tensor([[0.2, 0.9, 0.1], [0.5, 0.8, 0.9]])
    second = torch.tensor([[0.95, 0.1, 0.5], [0.95, 0.9, 0.5]])
    assert [one.tolist() for one in first_then_second(first, second)] == [[1, 0], [2, 1]]


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
    found = alignment(model, 2, torch.tensor([0]), torch.tensor([1]))
    assert found.item() == pytest.approx(expected, abs=1e-6)
