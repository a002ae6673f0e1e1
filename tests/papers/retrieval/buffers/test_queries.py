"""Queries of two chains, and answers that move with a part of the stream."""

import pytest
import torch

from anchorlab.papers.retrieval import one_head
from anchorlab.papers.retrieval.buffers.queries import exchanged, token_queries, vector_queries
from anchorlab.papers.retrieval.buffers.study import QUICK
from tests.papers.retrieval.buffers.hand_made import TASK, block, written

ASKED = token_queries(TASK, 600)


# No other block differs.
@pytest.mark.parametrize(
    ("layer", "name", "moves"), [(1, "token", False), (0, "token", True), (1, "1 ahead", True), (0, "1 ahead", False)]
)
def test_only_the_buffer_that_is_read_moves_the_answer(layer, name, moves):
    answers = exchanged(written(), ASKED, layer, block(name))[0].argmax(dim=-1)
    assert answers.tolist() == (ASKED.other_chain if moves else ASKED.chain)[:, -1].tolist()


def test_queries_of_tokens_differ_in_the_last_token_alone():
    for task in (TASK, QUICK.two_steps.task):
        asked = token_queries(task, 50)
        assert (asked.inputs[:, :-1] == asked.others[:, :-1]).all() and (
            asked.inputs[:, -1] != asked.others[:, -1]
        ).all()
        assert (asked.chain[:, 0] == asked.inputs[:, -1]).all()
        assert (task.oracle(asked.inputs).answers[:, -1] == asked.chain[:, 2]).all()
    followed = QUICK.two_steps.task.oracle(asked.others)
    assert followed.known.all() and (followed.answers[:, 0] == asked.other_chain[:, -1]).all()


def test_queries_of_vectors_differ_in_the_last_symbol_alone():
    task = one_head.QUICK.task
    asked = vector_queries(task, 50)
    assert (asked.inputs[:, :-1] == asked.others[:, :-1]).all()
    assert (asked.inputs[:, -1, 8:] == asked.others[:, -1, 8:]).all()  # its position
    assert (asked.inputs[:, -2, :8] == asked.others[:, -1, :8]).all()  # the query before
    for inputs, chain in ((asked.inputs, asked.chain), (asked.others, asked.other_chain)):
        assert (chain[:, 0] == inputs[:, -1, :8]).all()
        followed = task.oracle(inputs)
        assert followed.known[:, -1].all() and torch.equal(followed.answers[:, -1], chain[:, 1:].flatten(1))
