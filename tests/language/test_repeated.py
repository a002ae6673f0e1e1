"""Random tokens said twice."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.language.repeated import repeated_tokens


def test_the_second_half_repeats_the_first_and_no_token_comes_twice_in_a_half() -> None:
    tokens = repeated_tokens(100, sequences=50, half=30, seed=2)
    assert tokens.shape == (50, 60)
    assert tokens.dtype == torch.int64
    assert torch.equal(tokens[:, :30], tokens[:, 30:])
    assert all(len(set(row.tolist())) == 30 for row in tokens)


def test_excluded_tokens_are_never_drawn_and_all_others_are() -> None:
    tokens = repeated_tokens(20, sequences=60, half=5, excluded={0, 7, 19})
    assert set(tokens.flatten().tolist()) == set(range(20)) - {0, 7, 19}
    every = repeated_tokens(6, sequences=3, half=4, excluded=[1, 2])
    assert all(set(row[:4].tolist()) == {0, 3, 4, 5} for row in every)


def test_a_token_of_the_beginning_goes_before_each_sequence() -> None:
    plain = repeated_tokens(50, sequences=4, half=8, seed=1)
    begun = repeated_tokens(50, sequences=4, half=8, seed=1, start=0)
    assert begun.shape == (4, 17)
    assert begun[:, 0].tolist() == [0, 0, 0, 0]
    assert torch.equal(begun[:, 1:], plain)


def test_a_seed_gives_the_same_tokens() -> None:
    assert torch.equal(repeated_tokens(49152, 2, 3, seed=4), repeated_tokens(49152, 2, 3, seed=4))
    assert not torch.equal(repeated_tokens(49152, 2, 3, seed=4), repeated_tokens(49152, 2, 3, seed=5))


def test_tokens_are_drawn_evenly() -> None:
    counts = torch.bincount(repeated_tokens(10, sequences=4000, half=5)[:, :5].flatten(), minlength=10)
    # each of the 10 tokens is in half of the 4000 sequences; the deviation is sqrt(4000 / 4) = 32
    assert (counts - 2000).abs().max() < 5 * 32


@pytest.mark.parametrize(
    ("sequences", "half", "said"),
    [
        (0, 4, "choose at least 1 of each"),
        (4, 0, "choose at least 1 of each"),
        (1, 9, "9 different tokens, but only 8 may be drawn; choose fewer"),
    ],
)
def test_a_draw_that_cannot_be_is_refused(sequences: int, half: int, said: str) -> None:
    with pytest.raises(SpecError, match=f"half: .*{said}"):
        repeated_tokens(10, sequences, half, excluded=(0, 1))
