"""What order of two kinds of heads chance gives, against an enumeration of all their placements."""

from collections import Counter
from itertools import combinations

import pytest

from anchorlab.papers.language.heads.order import reached_by_chance


@pytest.mark.parametrize(
    ("layers", "heads", "first", "second"), [(3, 2, 1, 1), (4, 2, 2, 1), (4, 2, 1, 3), (6, 1, 2, 2), (6, 4, 2, 2)]
)
def test_a_share_of_all_placements_stays_below(layers, heads, first, second):
    def first_layers(count):
        return [min(chosen) // heads for chosen in combinations(range(layers * heads), count)]

    distances = Counter(later - earlier for earlier in first_layers(first) for later in first_layers(second))
    total = sum(distances.values())
    for share in (0.5, 0.8, 0.95):
        reached = reached_by_chance(layers, heads, first, second, share)
        up_to, below = (sum(n for distance, n in distances.items() if distance < end) for end in (reached + 1, reached))
        assert up_to / total >= share - 1e-9 > below / total - 1e-9


def test_heads_that_fill_a_model_begin_in_its_first_layer():
    assert reached_by_chance(5, 2, 10, 10, 0.95) == 0
    assert reached_by_chance(5, 2, 10, 1, 1.0) == 4
