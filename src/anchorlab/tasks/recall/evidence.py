"""The evidence in a noisy-recall sequence about each of its tokens: what followed the token's earlier occurrences."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int


@dataclass(frozen=True)
class Evidence:
    """The tokens that followed earlier occurrences of each token.

    Shapes
        recalled: `[row position]`, the only token other than noise that followed earlier occurrences of the token at
            this position; -1 if there is none, or several different ones
        noises: `[row position]`, how often noise followed earlier occurrences of the token at this position
        repeated: `[row position]`, whether the token at this position occurred before
        follower: `[row token]`, the first token other than noise that follows each token; -1 for none
        source: `[row token]`, the position of that follower; -1 for none
    """

    recalled: Int[np.ndarray, "row position"]
    noises: Int[np.ndarray, "row position"]
    repeated: Bool[np.ndarray, "row position"]
    follower: Int[np.ndarray, "row token"]
    source: Int[np.ndarray, "row token"]


def read_evidence(
    tokens: Int[np.ndarray, "row position"], states: int, noise: Bool[np.ndarray, "row position"]
) -> Evidence:
    """Return the evidence of sequences whose tokens are below `states` and are noise where `noise` says so.

    The last token is no evidence about the token before it, because it is set to a trigger, not drawn from the chain.
    """
    (rows, length), every = tokens.shape, np.arange(len(tokens))
    # The evidence so far, by token:
    follower, source = np.full((rows, states), -1), np.full((rows, states), -1)
    noise_count, seen = np.zeros((rows, states), dtype=np.int64), np.zeros((rows, states), dtype=bool)
    consistent = np.ones((rows, states), dtype=bool)  # no two different followers, noise aside
    # The evidence available at each position:
    recalled, noises = np.full(tokens.shape, -1), np.zeros(tokens.shape, dtype=np.int64)
    repeated = np.zeros(tokens.shape, dtype=bool)
    for position in range(length):
        token = tokens[:, position]
        if 0 < position < length - 1:
            before, informative = tokens[:, position - 1], ~noise[:, position]
            first = follower[every, before]
            consistent[every, before] &= ~informative | (first < 0) | (first == token)
            noise_count[every, before] += ~informative
            new = every[informative & (first < 0)]
            follower[new, before[new]], source[new, before[new]] = token[new], position
        recalled[:, position] = np.where(consistent[every, token], follower[every, token], -1)
        noises[:, position] = noise_count[every, token]
        repeated[:, position] = seen[every, token]
        seen[every, token] = True
    return Evidence(recalled, noises, repeated, follower, source)
