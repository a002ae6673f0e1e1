"""The buffers of models on tokens, written by hand so that they are known."""

from functools import cache

import pytest

from anchorlab.papers.retrieval.buffers.queries import token_queries
from anchorlab.papers.retrieval.buffers.tokens import Buffers, buffers, hand_written
from tests.papers.retrieval.buffers.hand_made import TASK, erase, share, shifted, written

ASKED = token_queries(TASK, 600)


@cache
def plain() -> Buffers:
    return buffers(written(), ASKED)


def read_by(found, value):
    return found.decoded[0, :, value].tolist()


def test_separate_buffers_are_a_staircase():
    """x_0 is there from the start, x_1 from layer 1, x_2 from layer 2; unread, one of 12 symbols is a guess."""
    found, low = plain(), pytest.approx(1 / 12, abs=0.06)
    assert read_by(found, 0) == [1, 1, 1, 1]
    assert read_by(found, 1) == [low, low, 1, 1]
    assert read_by(found, 2) == [low, low, low, 1]
    assert found.matched.tolist() == [pytest.approx([1, 1])]
    none = [pytest.approx([0, 0, 0], abs=1e-9)]
    assert found.overlap.tolist() == none and found.against_random.tolist() == none
    assert found.dimensions.tolist() == [[11, 11, 11]]  # twelve symbols about their mean
    assert found.moved.tolist() == [[0, 1, 1]] and found.kept.tolist() == [1]  # nothing reads what head 0 writes there


def test_an_overwritten_buffer_is_a_sliding_window():
    found = buffers(written(erase), ASKED)
    assert read_by(found, 1) == [pytest.approx(1 / 12, abs=0.06)] * 2 + [1, pytest.approx(1 / 12, abs=0.06)]
    assert read_by(found, 2)[-1] == 1 and found.moved[0, 1] == 1


def test_overlap_tells_which_heads_share_a_buffer():
    """Random subspaces of 11 dimensions overlap by 11 over the width."""
    model = written(share)
    found = buffers(model, ASKED)
    assert found.overlap.tolist() == [pytest.approx([0, 0, 1], abs=1e-9)]  # heads 0 and 1, 1 and 2, 0 and 2
    width = model.embed.W_E.shape[1]
    assert found.against_random.tolist() == [pytest.approx([0, 0, width / 11], abs=1e-9)]


def test_matching_tells_which_head_matches():
    """A head that finds the next symbol in place of its equal has a score of 0."""
    second = buffers(written(lambda note, first, second: (note, shifted(first), second)), ASKED)
    third = buffers(written(lambda note, first, second: (note, first, shifted(second))), ASKED)
    assert second.matched.tolist() == [pytest.approx([0, 1])] and third.matched.tolist() == [pytest.approx([1, 0])]


def test_the_model_that_the_page_lists_has_a_buffer_for_each_step():
    found = hand_written()
    assert found.moved.tolist() == [[0, 1, 1]] and found.dimensions.tolist() == [[23, 23, 23]]
