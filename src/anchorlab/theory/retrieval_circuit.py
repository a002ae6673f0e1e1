"""A hand-written transformer that follows retrieval chains in the least number of layers."""

import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.models import DecoderSpec
from anchorlab.models.transformer import Transformer
from anchorlab.tasks import TokenRetrieval
from anchorlab.theory.information_flow import Flow, least_depth

_SHARP = 60.0  # score difference that makes attention practically exact: exp(-60) is negligible


def retrieval_circuit(task: TokenRetrieval) -> Transformer:
    """Return a transformer that answers every query of a task, with one head in each of `least_depth` causal layers.

    The stream consists of one-hot blocks: the current token, the position, the previous token, and the tokens 1, 2, ..
    D steps further along the chain. Layer 0 copies the previous token, so that the second member of a pair knows the
    first. In every later layer each token attends to the pair that begins with the furthest token it knows, and copies
    that pair's knowledge: 1, 3, 7 .. steps ahead, 2^(t-1) - 1 after t layers. This matches the closed form of
    `least_depth` for one head with a causal mask, ceil(log_2(2D + 2)).

    Errors: `SpecError` for a task with parents, and for a task that asks for several numbers of steps.
    """
    if task.parents:
        raise SpecError("parents", "the circuit only follows chains", "leave parents out")
    if len(task.asked) > 1:
        raise SpecError("asked_steps", "the circuit answers one number of steps", "give one, such as asked_steps=(3,)")
    steps, length = task.asked[0], task.shape.length
    depth = least_depth(steps, Flow(causal=True, heads=1))
    blocks = _Blocks(task.symbols, length, steps)
    spec = DecoderSpec(
        layers=depth, heads=1, width=blocks.width, head_width=blocks.width, layer_norm=False, feed_forward=False
    )
    module = spec.build(task.shape)
    weights: dict[str, Tensor] = dict(module.named_parameters())
    with torch.no_grad():
        for weight in weights.values():
            weight.zero_()
        weights["embed.W_E"][:, blocks.token] = torch.eye(task.symbols)
        weights["pos_embed.W_pos"][:, blocks.position] = torch.eye(length)
        weights["unembed.W_U"][blocks.ahead(steps)] = torch.eye(task.symbols)
        _bring_the_token_before(weights, blocks)
        for layer in range(1, depth):
            _look_ahead(weights, blocks, layer, known=2 ** (layer - 1) - 1, pairs=length - task.chains)
    return module


class _Blocks:
    """The coordinates of each block of the stream."""

    def __init__(self, symbols: int, length: int, steps: int) -> None:
        self.symbols, self.length, self.steps = symbols, length, steps
        self.token = slice(0, symbols)
        self.position = slice(symbols, symbols + length)
        self.before = slice(self.position.stop, self.position.stop + symbols)
        self.width = self.before.stop + steps * symbols

    def ahead(self, steps: int) -> slice:
        """Return the block of the token `steps` steps further along the chain; 0 is the current token."""
        if steps == 0:
            return self.token
        start = self.before.stop + (steps - 1) * self.symbols
        return slice(start, start + self.symbols)


def _bring_the_token_before(weights: dict[str, Tensor], blocks: _Blocks) -> None:
    scale = _SHARP * blocks.width**0.5
    places = slice(0, blocks.length)
    weights["blocks.0.attn.W_Q"][blocks.position, places] = torch.eye(blocks.length) * scale
    weights["blocks.0.attn.W_K"][blocks.position, places] = torch.eye(blocks.length).roll(1, dims=1)
    weights["blocks.0.attn.W_K"][blocks.position, places][-1] = 0  # no position follows the last one
    _carry(weights, 0, blocks.token, blocks.before)


def _look_ahead(weights: dict[str, Tensor], blocks: _Blocks, layer: int, known: int, pairs: int) -> None:
    """Let each token attend to the second member of the pair that begins with the furthest token it knows."""
    scale = _SHARP * blocks.width**0.5
    queries, keys = weights[f"blocks.{layer}.attn.W_Q"], weights[f"blocks.{layer}.attn.W_K"]
    queries[blocks.ahead(known), blocks.token] = torch.eye(blocks.symbols) * scale
    keys[blocks.before, blocks.token] = torch.eye(blocks.symbols)
    # Lower the score of every position that is not the second member of a pair.
    queries[blocks.position, blocks.symbols] = scale
    place = torch.arange(blocks.length)
    keys[blocks.position, blocks.symbols] = -((place % 2 == 0) | (place >= pairs)).float()
    for steps in range(min(known + 1, blocks.steps - known)):
        _carry(weights, layer, blocks.ahead(steps), blocks.ahead(known + 1 + steps))


def _carry(weights: dict[str, Tensor], layer: int, source: slice, target: slice) -> None:
    """Let the head copy one block of the stream into another."""
    size = source.stop - source.start
    weights[f"blocks.{layer}.attn.W_V"][source, source] = torch.eye(size)
    weights[f"blocks.{layer}.attn.W_O"][source, target] = torch.eye(size)
