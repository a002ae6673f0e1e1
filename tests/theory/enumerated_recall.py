"""Every sequence that noisy recall with uniform tokens allows, with its probability, straight from the paper's law.

Tokens 0..N-1, the trigger 0, the noise N.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class Everything:
    """`tokens` `[sequence position]`; `outputs`, `targets`, `chance` `[sequence]`; `counts` `[sequence token]`."""

    tokens: np.ndarray
    outputs: np.ndarray
    targets: np.ndarray
    chance: np.ndarray
    counts: np.ndarray

    def mean(self, values: np.ndarray, where: np.ndarray | bool = True) -> np.ndarray:
        weights = self.chance * where
        return np.tensordot(weights / weights.sum(), values, axes=1)


def enumerate_recall(tokens: int, length: int, alpha: float) -> Everything:
    rows: list[tuple[list[int], int, int, float]] = []

    def after(token: int, output: int) -> dict[int, float]:
        if token == 0:
            return {output: 1 - alpha, tokens: alpha}
        return dict.fromkeys(range(tokens), 1 / tokens)

    def go_on(begun: list[int], output: int, chance: float) -> None:
        if len(begun) == length - 1:
            for target, likely in after(0, output).items():
                rows.append(([*begun, 0], output, target, chance * likely))
            return
        following = after(begun[-1], output) if begun else dict.fromkeys(range(tokens), 1 / tokens)
        for token, likely in following.items():
            go_on([*begun, token], output, chance * likely)

    for output in range(tokens):
        go_on([], output, 1 / tokens)
    sequences = np.array([row[0] for row in rows])
    counts = (sequences[:, :, None] == np.arange(tokens + 1)).sum(axis=1).astype(float)
    return Everything(
        sequences, np.array([row[1] for row in rows]), np.array([row[2] for row in rows]),
        np.array([row[3] for row in rows]), counts,
    )  # fmt: skip
