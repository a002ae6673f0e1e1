"""Broadcasting from the best source, on patterns written by hand."""

import pytest
import torch

from anchorlab.lens import best_source

LENGTH = 6


def attending(**shares: list[float]) -> torch.Tensor:
    """A pattern whose queries give these shares to the keys 0, 1, and so on, and the rest to themselves."""
    pattern = torch.zeros(LENGTH, LENGTH)
    for query in range(LENGTH):
        for key, share in enumerate(shares["keys"]):
            if key < query:
                pattern[query, key] = share
        pattern[query, query] = 1 - pattern[query].sum()
    return pattern[None, None]


def test_the_position_that_later_queries_attend_to():
    value, source = best_source(attending(keys=[0.0, 0.1, 0.6]), besides_first=False)
    assert value.item() == pytest.approx(0.6) and source.item() == 2


def test_what_the_first_token_gets_does_not_count_besides_it():
    """Queries after 1 give 0.8 to the first token and 0.15 of the remaining 0.2 to position 1."""
    pattern = attending(keys=[0.8, 0.15])
    value, source = best_source(pattern, besides_first=True)
    assert value.item() == pytest.approx(0.75) and source.item() == 1
    value, source = best_source(pattern, besides_first=False)
    assert value.item() == pytest.approx(0.8) and source.item() == 0


def test_sources_lie_in_the_first_half():
    """The last query alone attends to position 4, which would be a perfect broadcast to one query."""
    pattern = torch.eye(LENGTH)
    pattern[5] = torch.eye(LENGTH)[4]
    value, _ = best_source(pattern[None, None], besides_first=True)
    assert value.item() == 0


def test_a_head_that_gives_all_to_the_first_token_scores_nothing():
    value, _ = best_source(attending(keys=[1.0]), besides_first=True)
    assert value.item() == 0


def test_leading_axes_are_kept():
    pattern = torch.cat([attending(keys=[0.0, 0.5]), attending(keys=[0.0, 0.0, 0.7])])
    values, sources = best_source(torch.stack([pattern, pattern.flip(0)]), besides_first=True)
    assert values.flatten().tolist() == pytest.approx([0.5, 0.7, 0.7, 0.5])
    assert sources.flatten().tolist() == [1, 2, 2, 1]
