"""The program that follows retrieval chains in the least number of layers, and the transformer that computes it."""

import torch

from anchorlab.errors import SpecError
from anchorlab.models.transformer import Transformer
from anchorlab.tasks import TokenRetrieval
from anchorlab.theory.compiled.assemble import assemble
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
    one_hot,
)
from anchorlab.theory.information_flow import Flow, least_depth

_SHARP = 60.0  # score difference that makes attention practically exact: exp(-60) is negligible


def chains(task: TokenRetrieval) -> Program:
    """Return the program that answers every query of a retrieval task, one head in each of `least_depth` causal layers.

    Blocks hold the current token, the token before, and the tokens 1, 2, .. D steps further along the chain. Layer 0
    notes the token before, so that the second member of a pair knows the first. In every later layer each token attends
    to the pair that begins with the furthest token it knows, and copies that pair's knowledge: 1, 3, 7 .. steps ahead,
    2^(t-1) - 1 after t layers. This matches the closed form of `least_depth` for one head with a causal mask,
    ceil(log_2(2D + 2)).

    Errors: `SpecError` for a task with parents, and for a task that asks for several numbers of steps.
    """
    if task.parents:
        raise SpecError("parents", "the circuit only follows chains", "leave parents out")
    if len(task.asked) > 1:
        raise SpecError("asked_steps", "the circuit answers one number of steps", f"give one, such as ({task.steps},)")
    steps, symbols, length = task.asked[0], task.symbols, task.shape.length
    ahead = ["token", *(f"{step} ahead" for step in range(1, steps)), ANSWER]  # the last step is the answer
    every, pairs = identity(symbols), length - task.chains
    place = torch.arange(length)
    seconds = at_keys(POSITION, -((place % 2 == 0) | (place >= pairs)).double())  # second members of pairs
    units = [
        Head(
            0,
            "each position looks one back and notes the token there",
            "note",
            (before(length, 1),),
            (Move("token", "before", every),),
        )
    ]
    for layer in range(1, least_depth(steps, Flow(causal=True, heads=1))):
        known = 2 ** (layer - 1) - 1
        furthest = "its own token" if known == 0 else f"the token {known} steps ahead"
        moves = [Move(ahead[step], ahead[known + 1 + step], every) for step in range(min(known + 1, steps - known))]
        role = f"each position finds the pair that begins with {furthest} and copies what its second token knows"
        units.append(Head(layer, role, f"step {layer}", (Match(ahead[known], "before", every), seconds), tuple(moves)))
    return Program(
        task,
        blocks=dict.fromkeys(("before", *ahead), symbols),
        tokens={"token": one_hot(range(symbols), task.shape.input_size).T},
        outputs=one_hot(range(symbols), task.shape.output_size),
        units=tuple(units),
    )


def retrieval_circuit(task: TokenRetrieval) -> Transformer:
    """Return a transformer that answers every query of a task, with one head in each of `least_depth` causal layers.

    It is the program `chains` in weights; the logit of the answer is 1, all others are 0.

    Errors: `SpecError` for a task with parents, and for a task that asks for several numbers of steps.
    """
    spec, weights = assemble(chains(task), sharpness=_SHARP, gap=1.0)
    module = spec.build(task.shape)
    module.load_state_dict(weights)
    return module
