"""What a sequence of noisy recall tells of each of its tokens: what followed the same token before."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int


@dataclass(frozen=True)
class Evidence:
    """What sequences tell of the token at each position, by what stands up to there; -1 where there is nothing.

    Shapes
        recalled: `[row position]`, the token other than noise that followed it before; -1 also for several of them
        noises: `[row position]`, how often noise followed it before
        repeated: `[row position]`, whether it stood there before
        follower, source: `[row token]`, of the whole sequence: the first token other than noise after each token, and
            where it stands
    """

    recalled: Int[np.ndarray, "row position"]
    noises: Int[np.ndarray, "row position"]
    repeated: Bool[np.ndarray, "row position"]
    follower: Int[np.ndarray, "row token"]
    source: Int[np.ndarray, "row token"]


def read_evidence(tokens: Int[np.ndarray, "row position"], states: int, noise: int) -> Evidence:
    """What followed what in sequences of tokens below `states`; the last token is set, not drawn, and tells nothing."""
    (rows, length), every = tokens.shape, np.arange(len(tokens))
    follower, source = np.full((rows, states), -1), np.full((rows, states), -1)
    noises, seen = np.zeros((rows, states), dtype=np.int64), np.zeros((rows, states), dtype=bool)
    consistent = np.ones((rows, states), dtype=bool)
    recalled, heard = np.full(tokens.shape, -1), np.zeros(tokens.shape, dtype=np.int64)
    repeated = np.zeros(tokens.shape, dtype=bool)
    for position in range(length):
        token = tokens[:, position]
        if 0 < position < length - 1:
            before, told = tokens[:, position - 1], token != noise
            first = follower[every, before]
            consistent[every, before] &= ~told | (first < 0) | (first == token)
            noises[every, before] += ~told
            new = every[told & (first < 0)]
            follower[new, before[new]], source[new, before[new]] = token[new], position
        recalled[:, position] = np.where(consistent[every, token], follower[every, token], -1)
        heard[:, position] = noises[every, token]
        repeated[:, position] = seen[every, token]
        seen[every, token] = True
    return Evidence(recalled, heard, repeated, follower, source)
