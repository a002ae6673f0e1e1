"""Programs that find a token by the anchor before it: identity and two distances."""

import torch

from anchorlab.tasks import AnchorFunction
from anchorlab.theory.compiled.program import (
    ANSWER,
    POSITION,
    Head,
    Match,
    Move,
    Program,
    at_keys,
    before,
    identity,
    not_first,
    one_hot,
)


def next_token(task: AnchorFunction) -> Program:
    """Return the program of `anchor/identity`: mark the position after the anchor, read the token there.

    position   43  33   3  20  89        layer 0   each position looks one back and notes an anchor
    after                    1           layer 1   the last position looks for the note and copies the token
    """
    (first, last), size, length = task.vocabulary.items, task.vocabulary.size, task.placement.length
    tokens = [*range(first, last + 1), *task.vocabulary.anchors]
    items = last - first + 1
    is_anchor = torch.tensor([[float(token > last or token < first)] for token in tokens], dtype=torch.float64)
    return Program(
        task,
        blocks={"token": len(tokens), "after": 1, ANSWER: items},
        tokens={"token": one_hot(tokens, size).T},
        outputs=one_hot(tokens[:items], size),
        units=(
            Head(
                0,
                "each position looks one back and notes whether an anchor is there",
                "mark",
                (before(length, 1),),
                (Move("token", "after", is_anchor),),
            ),
            Head(
                1,
                "the last position finds the position after the anchor and copies its token",
                "answer",
                (at_keys("after", [1.0]), not_first(length)),
                (Move("token", ANSWER, identity(len(tokens))[:, :items]),),
            ),
        ),
    )


def address(task: AnchorFunction) -> Program:
    """Return the program of `anchor/two-distances`: compute the key's position from the anchor, read the token there.

    Layer 0 computes the key's position t, the anchor's position plus its distance. Layer 1 scores position s by
    `2 s t - s²`, which is largest at s = t and 1 lower at its neighbours.
    """
    (first, last), size, length = task.vocabulary.items, task.vocabulary.size, task.placement.length
    distances = {}
    for rule in task.rules.values():
        slots = rule.pattern.text.split()
        distances[int(slots[0])] = len(slots) - 1
    tokens = [*range(first, last + 1), *distances]
    items, places = last - first + 1, torch.arange(length, dtype=torch.float64)
    distance = torch.tensor([[float(distances.get(token, 0))] for token in tokens], dtype=torch.float64)
    return Program(
        task,
        blocks={"token": len(tokens), "place": 1, ANSWER: items},
        tokens={"token": one_hot(tokens, size).T},
        outputs=one_hot(tokens[:items], size),
        units=(
            Head(
                0,
                "every position finds the anchor and adds up its position and its distance to the key",
                "address",
                (at_keys("token", (distance > 0).double().squeeze(1)),),
                (Move(POSITION, "place", places.unsqueeze(1)), Move("token", "place", distance)),
            ),
            Head(
                1,
                "the last position attends to this place and copies its token",
                "answer",
                (Match("place", POSITION, 2 * places.unsqueeze(0)), at_keys(POSITION, -(places**2))),
                (Move("token", ANSWER, identity(len(tokens))[:, :items]),),
            ),
        ),
        doubled=1,
    )
