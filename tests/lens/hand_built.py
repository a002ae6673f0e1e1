"""Decoders whose weights are written by hand, so that what every head does is known.

The stream of a hand-built decoder is four blocks of one-hot coordinates: the token here, the position, the token that a
first head has brought here, and the token that is the prediction.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from anchorlab.axes import TaskShape
from anchorlab.lens import Intervention, Record, look
from anchorlab.models import DecoderSpec
from anchorlab.training.ensemble import Ensemble

VOCABULARY, LENGTH, ANCHOR, HEADS = 12, 9, 3, 3
SHARP = 60.0  # exp(-60) is nothing
TOKEN = range(0, VOCABULARY)
POSITION = range(VOCABULARY, VOCABULARY + LENGTH)
BROUGHT = range(POSITION.stop, POSITION.stop + VOCABULARY)
PREDICTED = range(BROUGHT.stop, BROUGHT.stop + VOCABULARY)
HEAD_WIDTH = VOCABULARY
SHAPE = TaskShape("tokens", LENGTH, VOCABULARY, VOCABULARY)
PATTERNS = "blocks.*.attn.hook_pattern"
PATTERN_0, PATTERN_1 = "blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"


def blank(layers: int) -> nn.Module:
    """A decoder without layer norm and feed-forward that predicts nothing and whose heads are all uniform."""
    spec = DecoderSpec(
        layers=layers, heads=HEADS, width=PREDICTED.stop, head_width=HEAD_WIDTH, layer_norm=False, feed_forward=False
    )
    module = spec.build(SHAPE)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        weights = dict(module.named_parameters())
        weights["embed.W_E"][:, list(TOKEN)] = torch.eye(VOCABULARY)
        weights["pos_embed.W_pos"][:, list(POSITION)] = torch.eye(LENGTH)
        weights["unembed.W_U"][list(PREDICTED)] = torch.eye(VOCABULARY)
    return module


def matching(module: nn.Module, layer: int, head: int, query: Tensor, key: Tensor) -> None:
    """Lets a head attend where `(x query) . (x key)` is 1, both maps being `[width, at most head_width]`."""
    weights = dict(module.named_parameters())
    columns = slice(head * HEAD_WIDTH, head * HEAD_WIDTH + query.shape[1])
    with torch.no_grad():
        weights[f"blocks.{layer}.attn.W_Q"][:, columns] = query * SHARP * HEAD_WIDTH**0.5
        weights[f"blocks.{layer}.attn.W_K"][:, columns] = key


def carrying(module: nn.Module, layer: int, head: int, source: range, target: range) -> None:
    """Lets a head carry one block of the stream to another."""
    weights = dict(module.named_parameters())
    columns = slice(head * HEAD_WIDTH, head * HEAD_WIDTH + len(source))
    with torch.no_grad():
        weights[f"blocks.{layer}.attn.W_V"][list(source), columns] = torch.eye(len(source))
        weights[f"blocks.{layer}.attn.W_O"][columns, list(target)] = torch.eye(len(source))


def reading(block: range, image: Tensor | None = None) -> Tensor:
    """The map `[width, ...]` that reads a block, and then applies `image` `[block, ...]`."""
    image = torch.eye(len(block)) if image is None else image
    whole = torch.zeros(PREDICTED.stop, image.shape[1])
    whole[list(block)] = image
    return whole


def shifting(module: nn.Module, layer: int, head: int, k: int) -> None:
    """Lets a head attend from every query q >= k to q - k."""
    one_further = torch.eye(LENGTH).roll(k, dims=1)
    one_further[LENGTH - k :] = 0  # the last positions are no one's source
    matching(module, layer, head, reading(POSITION), reading(POSITION, one_further))


def everywhere() -> Tensor:
    """The map that gives 1 at every position."""
    return reading(POSITION, torch.ones(LENGTH, 1))


def where(block: range, token: int) -> Tensor:
    """The map that gives 1 where a block holds a token."""
    return reading(block, torch.eye(VOCABULARY)[:, [token]])


def identity_solver(k: int = 1) -> nn.Module:
    """Solves the identity anchor function: the answer is the token k after the anchor.

    Layer 0: head 0 shifts by k and brings the token there, head 1 shifts by k + 1, head 2 is uniform. Layer 1: head 0
    broadcasts from k after the anchor and predicts the token there, head 1 attends to the anchor, head 2 to itself.
    """
    module = blank(layers=2)
    shifting(module, 0, 0, k)
    shifting(module, 0, 1, k + 1)
    carrying(module, 0, 0, TOKEN, BROUGHT)
    matching(module, 1, 0, everywhere(), where(BROUGHT, ANCHOR))
    carrying(module, 1, 0, TOKEN, PREDICTED)
    matching(module, 1, 1, everywhere(), where(TOKEN, ANCHOR))
    shifting(module, 1, 2, 0)
    return module


def induction_circuit() -> nn.Module:
    """Layer 0, head 0 brings the previous token; layer 1, head 0 attends where the brought token is the current one."""
    module = blank(layers=2)
    shifting(module, 0, 0, 1)
    carrying(module, 0, 0, TOKEN, BROUGHT)
    matching(module, 1, 0, reading(TOKEN), reading(BROUGHT))
    carrying(module, 1, 0, TOKEN, PREDICTED)
    return module


def turned_solver() -> nn.Module:
    """The identity solver with the heads of each layer the other way round."""
    module = identity_solver()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if ".attn.W_" in name:  # head by head along the axis that has all of them
                axis = 0 if name.endswith("W_O") else 1
                weight.copy_(torch.cat(weight.chunk(HEADS, dim=axis)[::-1], dim=axis))
    return module


def stacked(*modules: nn.Module) -> Ensemble:
    """The ensemble of some modules of one architecture."""
    named = [dict(module.named_parameters()) for module in modules]
    weights = {name: torch.stack([each[name].detach() for each in named]) for name in named[0]}
    return Ensemble(modules[0], weights, tuple(weights))


def identity_sequences() -> tuple[Tensor, Tensor]:
    """Six sequences without repetitions, and where their anchor stands: 1 to 6, so that it is never the first token."""
    anchors = torch.arange(1, 7)
    others = torch.tensor([token for token in TOKEN if token != ANCHOR])
    rows = []
    for row, place in enumerate(anchors.tolist()):
        items = others.roll(row)[: LENGTH - 1].tolist()
        rows.append([*items[:place], ANCHOR, *items[place:]])
    return torch.tensor(rows), anchors


INPUTS, ANCHORS = identity_sequences()
ROWS = torch.arange(len(INPUTS))
KEYS = INPUTS[ROWS, ANCHORS + 1].unsqueeze(1)
"""The identity sequences, and the right answers, `[batch 1]`: the tokens after the anchors."""


def other_anchor() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The first four sequences, and the same with the anchor and the token three places on exchanged.

    Then the answers of both, and where the anchor is in the others. In the last two sequences that place would be the
    last, which has no successor, or outside.
    """
    found, rows, places = INPUTS[:4].clone(), ROWS[:4], ANCHORS[:4] + 3
    found[rows, ANCHORS[:4]], found[rows, places] = INPUTS[rows, places], ANCHOR
    return INPUTS[:4], found, KEYS[:4], found[rows, places + 1].unsqueeze(1), places


def tokens(inputs: Tensor = INPUTS) -> Tensor:
    """The sequences as one-hot vectors."""
    return one_hot(inputs, VOCABULARY).float()


def predicted(model: nn.Module, *interventions: Intervention, inputs: Tensor = INPUTS, **options) -> Tensor:
    """The output of one model under interventions."""
    return look(model, inputs, interventions=interventions, **options)["output"][0]


def known_pattern() -> Tensor:
    """The broadcasting head's pattern: uniform up to the anchor, then all on the token after it."""
    pattern = torch.zeros(len(ANCHORS), LENGTH, LENGTH)
    for b, anchor in enumerate(ANCHORS.tolist()):
        for q in range(LENGTH):
            if q > anchor:
                pattern[b, q, anchor + 1] = 1
            else:
                pattern[b, q, : q + 1] = 1 / (q + 1)
    return pattern


def pattern_record(pattern: Tensor, inputs: Tensor) -> Record:
    """A record of the patterns of one layer, `[member batch head query key]`."""
    return Record({"attention": pattern}, {"attention": ("member", "batch", "head", "query", "key")}, inputs)


def drawn(ensemble: Ensemble, size: float = 0.25) -> Ensemble:
    """The ensemble with all weights away from their defaults, so that no norm or bias is idle."""
    noise = torch.Generator().manual_seed(1)
    weights = {
        name: value + size * torch.randn(value.shape, generator=noise, dtype=torch.float64)
        for name, value in ensemble.weights.items()
    }
    return ensemble.with_weights(weights)


def is_near(value: Tensor, expected: Tensor) -> bool:
    """Equal within rounding."""
    return torch.allclose(value, expected, atol=1e-5)
