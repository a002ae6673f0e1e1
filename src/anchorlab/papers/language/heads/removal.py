"""Predictions of a language model on each text without some of its heads or layers."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.language import LanguageModel
from anchorlab.language.losses import next_token_losses
from anchorlab.lens import Intervention, Operand, look, look_by_parts, per_sequence
from anchorlab.rng import generator

Head = tuple[int, int]
"""A layer and a head in it, both from 0."""


@dataclass(frozen=True)
class RepeatedTexts:
    """Random tokens that are repeated once."""

    inputs: Int[Tensor, "batch position"]  # token ids
    half: int  # the number of tokens before they are repeated

    @property
    def predicting(self) -> Int[Tensor, "scored"]:
        """The positions that can predict a repeated token; the last before the repetition starts cannot."""
        return torch.arange(self.inputs.shape[1] - self.half, self.inputs.shape[1] - 1)


@dataclass(frozen=True)
class Predictions:
    """A model's predictions on each text."""

    text_loss: Float[Tensor, "text"]  # the mean of -log p of the next token of each ordinary text
    repeated: Float[Tensor, "sequence"]  # the mean probability of repeated tokens in each sequence of them
    induction: Float[Tensor, "scored"]  # the mean score of the induction heads on each sequence; empty without any


@dataclass(frozen=True)
class WithoutHeads:
    """Predictions of the whole model, without some heads, and without as many other heads in each draw."""

    removed: Sequence[Head]
    unchanged: Predictions
    without: Predictions
    draws: Sequence[Predictions]

    def change(self, measure: str) -> Float[Tensor, "text"]:
        """Return how much the removal changes a prediction on each text."""
        found: Tensor = getattr(self.without, measure) - getattr(self.unchanged, measure)
        return found

    def drawn(self, measure: str) -> Float[Tensor, "text draw"]:
        """Return how much removing each draw of other heads changes a prediction on each text."""
        before = getattr(self.unchanged, measure)
        return torch.stack([getattr(draw, measure) - before for draw in self.draws], dim=1)


def without_heads(
    model: LanguageModel,
    text: Int[Tensor, "batch position"],
    repeated: RepeatedTexts,
    removed: Sequence[Head],
    induction: Sequence[Head],
    draws: int,
    seed: int = 0,
    report: Callable[[int], None] = lambda done: None,
) -> WithoutHeads:
    """Measure a model's predictions without some heads, and without as many other heads drawn at random.

    The output of a removed head is replaced by its mean over texts at each position, separately for ordinary text and
    repeated tokens. Other heads are drawn from the same layers as far as possible, then from the nearest.
    """
    blocks: Any = model.blocks  # of a model of any library
    heads = [(layer, head) for layer, block in enumerate(blocks) for head in range(int(block.attn.heads))]
    random = generator(seed, "language", "removed heads")
    sets = [[], list(removed), *(draw_others(removed, heads, random) for _ in range(draws))]
    means = [_mean_outputs(model, inputs, sets) for inputs in (text, repeated.inputs)]
    found = []
    for done, one in enumerate(sets, start=1):
        on_text, on_repeated = (removal(one, outputs) for outputs in means)
        found.append(Predictions(losses(model, text, on_text), *_on_repeated(model, repeated, on_repeated, induction)))
        report(done)
    return WithoutHeads(tuple(removed), found[0], found[1], tuple(found[2:]))


def draw_others(removed: Sequence[Head], heads: Sequence[Head], random: np.random.Generator) -> list[Head]:
    """Draw as many other heads: in each layer as many as are removed there, and the rest in the nearest layers."""
    free = [head for head in heads if head not in removed]
    drawn: list[Head] = []
    missing: list[int] = []
    for layer, count in Counter(layer for layer, _ in removed).items():
        pool = [head for head in free if head[0] == layer]
        drawn += [pool[place] for place in random.choice(len(pool), min(count, len(pool)), replace=False)]
        missing += [layer] * (count - len(pool))
    for layer in missing:
        pool = [head for head in free if head not in drawn]
        near = min((abs(head[0] - layer) for head in pool), default=0)
        pool = [head for head in pool if abs(head[0] - layer) == near]
        drawn += [pool[place] for place in random.choice(len(pool), min(1, len(pool)), replace=False)]
    return drawn


def removal(heads: Sequence[Head], outputs: dict[int, Float[Tensor, "position head head_width"]]) -> list[Intervention]:
    """Return the interventions that replace heads' outputs with `outputs`: by layer, `[position head head_width]`."""
    layers: dict[int, list[int]] = {}
    for layer, head in sorted(heads):
        layers.setdefault(layer, []).append(head)
    return [
        Intervention(
            site=_mixture(layer),
            where={"head": tuple(chosen)},
            rule="replace",
            operand=Operand(values=outputs[layer][:, chosen], axes=("position", "head", "head_width")),
        )
        for layer, chosen in layers.items()
    ]


def losses(
    model: LanguageModel, text: Int[Tensor, "batch position"], interventions: Sequence[Intervention] = ()
) -> Float[Tensor, "batch"]:
    """Return each text's mean of -log p over all its tokens but the first, under interventions."""
    places = torch.arange(text.shape[1] - 1)
    parts = look_by_parts(model, text, interventions=interventions, positions=places)
    found = [next_token_losses(part["output"][0].cpu(), part.inputs[:, 1:].cpu()).mean(dim=1) for part in parts]
    return torch.cat(found)


def losses_without_layers(
    model: LanguageModel, text: Int[Tensor, "batch position"], layers: Sequence[int]
) -> Float[Tensor, "batch"]:
    """Return the losses on texts when some layers add nothing to the stream."""
    sites = [f"blocks.{layer}.{name}" for layer in layers for name in ("hook_attn_out", "hook_mlp_out")]
    return losses(model, text, [Intervention(site=site, rule="zero") for site in sites])


def _on_repeated(
    model: LanguageModel, repeated: RepeatedTexts, interventions: Sequence[Intervention], induction: Sequence[Head]
) -> tuple[Float[Tensor, "sequence"], Float[Tensor, "sequence"]]:
    """Return each text's mean probability of repeated tokens and mean score of induction heads, empty without any."""
    places = repeated.predicting
    sites = sorted({_pattern(layer) for layer, _ in induction})
    probabilities, scores = list[Tensor](), list[Tensor]()
    for part in look_by_parts(model, repeated.inputs, sites, interventions, positions=places):
        tokens = part.inputs.cpu()
        probabilities.append(torch.exp(-next_token_losses(part["output"][0].cpu(), tokens[:, places + 1])).mean(dim=1))
        found = {site: per_sequence.induction(part[site][0].cpu(), tokens).values for site in sites}
        if induction:
            scores.append(torch.stack([found[_pattern(layer)][:, head] for layer, head in induction]).mean(dim=0))
    return torch.cat(probabilities), torch.cat(scores) if scores else torch.zeros(0)


def _mean_outputs(model: LanguageModel, inputs: Tensor, sets: Sequence[Sequence[Head]]) -> dict[int, Tensor]:
    """Return the mean over texts of all heads' outputs `[position head head_width]`, for each layer in `sets`."""
    layers = sorted({layer for one in sets for layer, _ in one})
    if not layers:
        return {}
    record = look(model, inputs, [_mixture(layer) for layer in layers], output=False)
    return {layer: record[_mixture(layer)][0].mean(dim=0) for layer in layers}


def _mixture(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_z"


def _pattern(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_pattern"
