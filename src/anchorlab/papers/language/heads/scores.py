"""Scores of every head of a language model on some texts, for each detector, with the detector's chance level."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import comb

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from anchorlab import lens
from anchorlab.language import LanguageModel

PATTERNS = "blocks.*.attn.hook_pattern"
LARGEST_SHIFT = 8
"""The largest distance by which a head can count as shifting."""

Pattern = Float[Tensor, "batch head query key"]


@dataclass(frozen=True)
class ScoredHeads:
    """The scores of all heads on some texts."""

    # by detector, as in `anchorlab.lens`; `broadcast` is from the best source except the first token, `any source` from
    # the best source of all
    scores: dict[str, Float[Tensor, "layer head"]]
    # the scores of each text, of which `scores` are the means; `shift` is by `distance`
    by_text: dict[str, Float[Tensor, "text layer head"]]
    chance: dict[str, float]  # by detector, the score of a head that attends at random
    distance: Int[Tensor, "layer head"]  # the distance that each head shifts by, if it does
    sources: Int[Tensor, "layer text head"]  # the token that each head broadcasts from in each text, if it does
    from_first: Bool[Tensor, "text layer head"]  # whether the best source of all is the text's first token
    # the mean cosine between the patterns of two heads of a layer, in each text
    similarity: Float[Tensor, "text layer"]

    def fires(self, detector: str) -> Bool[Tensor, "layer head"]:
        """Return for which heads a detector fires: their score is more than halfway from chance to 1.

        A head that attends to the first token does not count as broadcasting, whatever its remaining attention does.
        """
        found = self.over(detector, self.scores[detector])
        return found & ~self.fires("first token") if detector == "broadcast" else found

    def over(self, detector: str, scores: Float[Tensor, "*lead"]) -> Bool[Tensor, "*lead"]:
        """Return which scores of a detector are more than halfway from chance to 1."""
        return scores > lens.threshold(self.chance[detector])

    def texts(self, *detectors: str) -> Float[Tensor, "text detector layer head"]:
        """Return the scores of some detectors on each text."""
        return torch.stack([self.by_text[one] for one in detectors], dim=1)

    def heads(self, detector: str) -> list[tuple[int, int]]:
        """Return the layer and index of the heads for which a detector fires, from the first layer up."""
        return [(layer, head) for layer, head in self.fires(detector).nonzero().tolist()]

    def strongest(self, detector: str) -> tuple[int, int]:
        """Return the layer and index of the head with the largest score."""
        layer, head = divmod(int(self.scores[detector].argmax()), self.scores[detector].shape[1])
        return layer, head


def score_heads(
    model: LanguageModel, inputs: Int[Tensor, "batch position"], report: Callable[[int], None] = lambda done: None
) -> ScoredHeads:
    """Score every head on token ids of one length, part by part; `report` gets the number of texts done."""
    layers, done = range(len(model.blocks)), 0
    scores: dict[str, list[list[lens.HeadScores]]] = defaultdict(lambda: [[] for _ in layers])
    read: dict[str, list[list[Tensor]]] = defaultdict(lambda: [[] for _ in layers])
    for part in lens.look_by_parts(model, inputs, [PATTERNS], output=False):
        here = part.inputs.cpu()
        for layer in layers:
            pattern = part[PATTERNS.replace("*", str(layer))][0].float().cpu()
            for name, found in {"shift": _shifts(pattern), **_detectors(pattern, here)}.items():
                scores[name][layer].append(found)
            read["source"][layer].append(here.gather(1, lens.best_source(pattern, besides_first=True)[1]))
            read["first"][layer].append(lens.best_source(pattern, besides_first=False)[1] == 0)
            read["similarity"][layer].append(_similarity(pattern))
        done += len(here)
        report(done)
    joined = {name: [lens.HeadScores.join(one) for one in each] for name, each in scores.items()}
    shifts = joined.pop("shift")  # [shift text head], of each layer
    distance = torch.stack([one.mean.argmax(dim=0) for one in shifts])
    own = [
        one.values.gather(0, best.expand(1, *one.values.shape[1:]))[0]
        for one, best in zip(shifts, distance, strict=True)
    ]
    sources, first, similarity = (torch.stack(list(map(torch.cat, each)), dim=1) for each in read.values())
    return ScoredHeads(
        scores={
            "shift": torch.stack([one.mean.amax(dim=0) for one in shifts]),
            **{name: torch.stack([one.mean for one in each]) for name, each in joined.items()},
        },
        by_text={
            "shift": torch.stack(own, dim=1),
            **{name: torch.stack([one.values for one in each], dim=1) for name, each in joined.items()},
        },
        chance=_chance(inputs),
        distance=distance + 1,
        sources=sources.movedim(1, 0),
        from_first=first,
        similarity=similarity,
    )


def _shifts(pattern: Pattern) -> lens.HeadScores:
    found = lens.per_sequence.shift_profile(pattern, min(LARGEST_SHIFT, pattern.shape[-1] - 1)).scores
    return lens.HeadScores(found.values[1:], found.weights[1:])


def _detectors(pattern: Pattern, tokens: Int[Tensor, "batch position"]) -> dict[str, lens.HeadScores]:
    weights = torch.ones(len(pattern))
    return {
        "self": lens.per_sequence.shift(pattern, 0),
        "first token": lens.per_sequence.first_token(pattern),
        "broadcast": lens.HeadScores(lens.best_source(pattern, besides_first=True)[0], weights),
        "any source": lens.HeadScores(lens.best_source(pattern, besides_first=False)[0], weights),
        "uniform": lens.per_sequence.uniform(pattern),
        "matching": lens.per_sequence.recurrence(pattern, tokens, "copies"),
        "induction": lens.per_sequence.recurrence(pattern, tokens, "followers"),
    }


def _chance(inputs: Int[Tensor, "batch position"]) -> dict[str, float]:
    """Return, by detector, the score that a head with random attention has on average."""
    length = inputs.shape[1]
    random = lens.uniform_attention(length).expand(len(inputs), 1, length, length)
    found = {name: float(scores.mean) for name, scores in _detectors(random, inputs.cpu()).items()}
    return {**found, "shift": float(_shifts(random).mean.max()), "uniform": lens.chance_of_uniform(length)}


def _similarity(pattern: Pattern) -> Float[Tensor, "batch"]:
    """Return each text's mean cosine between the patterns of two different heads; 1 for a single head."""
    rows = normalize(pattern.flatten(2), dim=-1)
    cosines = rows @ rows.transpose(1, 2)
    heads = rows.shape[1]
    if heads == 1:
        return cosines[:, 0, 0]
    return (cosines.sum(dim=(1, 2)) - cosines.diagonal(dim1=1, dim2=2).sum(dim=1)) / (heads * (heads - 1))


@cache
def reached_by_chance(layers: int, heads: int, first: int, second: int, share: float) -> int:
    """Return the distance between two kinds' first layers that a share of all random placements does not exceed.

    In a random placement each kind's heads are any set of that many heads of the model with equal probability,
    independently of the other kind. The distance is the first layer with a head of the second kind minus that of the
    first kind. A layer has `heads` heads; `first` and `second` are the numbers of heads of each kind, at least 1.
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
