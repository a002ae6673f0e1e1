"""Twenty optimiser steps of the anchor paper's decoder, beside the same model and training in plain torch.

The reference is written from the paper's equations (appendix B.1) and its recipe (appendix A): post-layer-norm blocks
without biases, AdamW with decay 0.01, the gradient's norm clipped at 1, a learning rate that warms up from a tenth.
Weights, sequences and their order are copied.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from anchorlab.models import DecoderSpec
from anchorlab.tasks import task
from anchorlab.training import AdamW, Evaluation, Experiment, FixedSample, Members, Recipe, WarmupCosine, fit
from anchorlab.training.ensemble import initialise
from anchorlab.training.feed import make_feed

LAYERS, HEADS, WIDTH, HEAD_WIDTH = 2, 2, 32, 12
BATCH, SIZE, RATE, STEPS = 10, 40, 1e-3, 20  # five epochs of four steps
WARM_UP, HORIZON = 2, 8  # epochs
SEED = 3


class Block(nn.Module):
    """X -> LN(X + Attn(X)), then Y -> LN(Y + ReLU(Y W1) W2)."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values = (nn.Linear(WIDTH, HEADS * HEAD_WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(HEADS * HEAD_WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(3 * WIDTH, WIDTH, bias=False)
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part(x).view(batch, length, HEADS, HEAD_WIDTH).transpose(1, 2)
            for part in (self.queries, self.keys, self.values)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(HEAD_WIDTH)
        ahead = torch.ones(length, length).triu(1).bool()
        attention = scores.masked_fill(ahead, -math.inf).softmax(dim=-1)
        mixed = (attention @ v).transpose(1, 2).reshape(batch, length, HEADS * HEAD_WIDTH)
        y = self.norm_1(x + self.out(mixed))
        return self.norm_2(y + self.down(torch.relu(self.up(y))))


class Reference(nn.Module):
    """Embeddings of tokens and positions, blocks, and a projection with a bias."""

    def __init__(self, tokens: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, WIDTH), nn.Embedding(length, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.projection = nn.Linear(WIDTH, tokens)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.projection(x)


def counterparts(reference: Reference) -> dict[str, tuple[nn.Parameter, bool]]:
    """The reference's parameters by our names, and whether ours are their transposes."""
    found = {
        "embed.W_E": (reference.tokens.weight, False), "pos_embed.W_pos": (reference.positions.weight, False),
        "unembed.W_U": (reference.projection.weight, True), "unembed.b_U": (reference.projection.bias, False),
    }  # fmt: skip
    for layer, block in enumerate(reference.blocks):
        maps = {"attn.W_Q": "queries", "attn.W_K": "keys", "attn.W_V": "values", "attn.W_O": "out"}
        for ours, theirs in {**maps, "mlp.W_in": "up", "mlp.W_out": "down"}.items():
            found[f"blocks.{layer}.{ours}"] = (block.get_submodule(theirs).weight, True)
        for norm in (1, 2):
            for ours, theirs in (("w", "weight"), ("b", "bias")):
                found[f"blocks.{layer}.ln{norm}.{ours}"] = (block.get_parameter(f"norm_{norm}.{theirs}"), False)
    return found


def experiment() -> Experiment:
    recipe = Recipe(
        data=FixedSample(size=SIZE),
        optimiser=AdamW(learning_rate=RATE, weight_decay=0.01),
        schedule=WarmupCosine(warmup=WARM_UP, horizon=HORIZON, start=0.1, end=0.1),
        batch=BATCH,
        unit="epochs",
        duration=STEPS * BATCH // SIZE,
        clip=1.0,
        evaluation=Evaluation(size=10),
    )
    model = DecoderSpec(layers=LAYERS, heads=HEADS, width=WIDTH, head_width=HEAD_WIDTH)
    return Experiment(task("anchor/identity"), model, recipe, Members(seeds=(SEED,)))


def rate(epoch: int) -> float:
    """From a tenth to the whole over the warm-up, then half a cosine back to a tenth; one rate for each epoch."""
    if epoch < WARM_UP:
        return RATE * (0.1 + 0.9 * epoch / WARM_UP)
    done = (epoch - WARM_UP) / (HORIZON - WARM_UP)
    return RATE * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)


@pytest.fixture(scope="module")
def both():
    """Our weights after the steps, and the reference, from the same start; the largest norm of a gradient before it
    was clipped."""
    one = experiment()
    shape = one.task.shape
    reference = Reference(shape.input_size, shape.length)
    start = initialise(one.model, shape, [one.members.stream("initialisation", 0)]).member_weights(0)
    with torch.no_grad():
        for name, (parameter, turned) in counterparts(reference).items():
            parameter.copy_(start[name].T if turned else start[name])
    optimiser = torch.optim.AdamW(reference.parameters(), weight_decay=0.01)
    feed, norms = make_feed(one.task, one.recipe, one.members, torch.device("cpu"), torch.float32), []
    for step in range(STEPS):
        optimiser.param_groups[0]["lr"] = rate(step * BATCH // SIZE)
        batches = feed.at(step)
        loss = functional.cross_entropy(reference(batches.inputs[0])[:, -1], batches.targets[0, :, 0])
        optimiser.zero_grad()
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(reference.parameters(), 1.0)))
        optimiser.step()
    return fit(one, execution="member").ensemble.member_weights(0), start, reference, max(norms)


def test_weights_and_predictions_agree_after_twenty_steps(both):
    ours, start, reference, largest = both
    assert set(counterparts(reference)) == set(ours)
    assert sum(one.numel() for one in reference.parameters()) == sum(one.numel() for one in ours.values())
    assert largest > 1  # so that clipping took part
    for name, (parameter, turned) in counterparts(reference).items():
        theirs = parameter.detach().T if turned else parameter.detach()
        assert float((ours[name] - theirs).abs().max()) < 1.5e-6, name
        assert float((ours[name] - start[name]).abs().max()) > 1e-3, name  # it did learn
    one = experiment()
    module = one.model.build(one.task.shape)
    module.load_state_dict(dict(ours))
    inputs = one.task.sample("test", 50, seed=9).inputs
    assert float((module(inputs) - reference(inputs)).abs().max()) < 1e-5
