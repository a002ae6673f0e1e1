"""Models written by hand whose buffers are known: three heads that follow chains of two or three steps."""

from dataclasses import replace

import torch

from anchorlab.tasks import TokenRetrieval
from anchorlab.theory.compiled import Match, Move, assemble, chains

TASK = TokenRetrieval(chains=3, steps=2, symbols=12, implicit_curriculum=False)
LONGER = TokenRetrieval(chains=3, steps=3, symbols=12, implicit_curriculum=False)
EVERY = torch.eye(12, dtype=torch.float64)


def written(change=lambda *heads: heads, task=TASK):
    """The model of three heads, with some of them changed."""
    program = chains(task)
    spec, weights = assemble(replace(program, units=change(*program.units)), sharpness=60.0, gap=1.0)
    module = spec.build(task.shape)
    module.load_state_dict(weights)
    return module


def erase(note, first, second):
    """Where the third head finds its pair, the token before is x_1: subtracting it empties the buffer of x_1."""
    return note, first, replace(second, moves=(*second.moves, Move("before", "1 ahead", -EVERY)))


def share(note, first, second):
    """The third head writes to the block of the first."""
    return note, first, replace(second, moves=(Move("token", "before", EVERY),))


def shifted(head):
    """A head that finds the next symbol in place of its equal."""
    (match, *rest) = head.matches
    return replace(head, matches=(Match(match.query, match.key, EVERY.roll(1, 0)), *rest))


def block(name):
    """The projector on a block of the stream."""
    blocks = [one for one, size in chains(TASK).sizes.items() for _ in range(size)]
    return torch.diag(torch.tensor([float(one == name) for one in blocks], dtype=torch.float64)).unsqueeze(0)
