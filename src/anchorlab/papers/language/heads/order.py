"""How far one kind of heads comes before another by chance alone, if the heads of each kind lie anywhere in a model."""

from functools import cache
from math import comb


@cache
def reached_by_chance(layers: int, heads: int, first: int, second: int, share: float) -> int:
    """Return the distance between two kinds' first layers that a share of all random placements does not exceed.

    Placed at random, each kind's heads are as likely any set of that many heads of the model, and the kinds do not
    heed each other. The distance is the first layer with a head of the second kind minus the first with one of the
    first kind.

    Args:
        layers, heads: of the model, with as many heads in each layer
        first, second: how many heads are of each kind, at least 1
        share: of the placements, such as 0.95
    """
    earliest, latest = _first_layers(layers, heads, first), _first_layers(layers, heads, second)
    total = 0.0
    for distance in range(1 - layers, layers):
        total += sum(
            chance * latest[layer + distance] for layer, chance in enumerate(earliest) if 0 <= layer + distance < layers
        )
        if total >= share - 1e-12:  # sums of shares are rounded
            return distance
    return layers - 1


def _first_layers(layers: int, heads: int, count: int) -> list[float]:
    """Return, by layer, the probability that the first of `count` random heads is in it."""
    beyond = [comb(heads * (layers - layer), count) / comb(heads * layers, count) for layer in range(layers + 1)]
    return [beyond[layer] - beyond[layer + 1] for layer in range(layers)]
