"""Gradient descent of many memories at once against ordinary training, and cuts against numbers by hand."""

import numpy as np
import pytest
import torch

from anchorlab.engine import train
from anchorlab.models import AssociativeSpec
from anchorlab.rng import generator
from anchorlab.runs import Store
from anchorlab.tasks import task
from anchorlab.theory.associative_descent import Memories, draw_memories
from anchorlab.training import SGD, FixedSample, Recipe, initialise


def memories_of(ensemble):
    """Ours of an ensemble's weights; rows are vectors there, so its matrix is the transpose."""
    weights = {name: value.double().numpy() for name, value in ensemble.weights.items()}
    W = weights["memory.W_F"].swapaxes(1, 2)
    return Memories(W, weights["embed.W_E"], weights["unembed.W_U"].swapaxes(1, 2))


def test_it_is_what_training_does(tmp_path):
    law, spec = task("associative/noisy", inputs=3, alpha=0.03), AssociativeSpec(width=5)
    recipe = Recipe(
        data=FixedSample(size=3), optimiser=SGD(learning_rate=2.0), batch=3, duration=30, precision="float64"
    )
    run = train(law, spec, recipe, seeds=2, store=Store(tmp_path))
    start = memories_of(initialise(spec, law.shape, [0, 1], dtype=torch.float64))
    found = start.descend(alpha=0.03, rate=2.0, steps=30)
    np.testing.assert_allclose(found.weights, memories_of(run.ensemble()).weights, atol=1e-6)
    assert np.abs(found.weights - start.weights).max() > 0.1


def test_losses_by_hand():
    """Scores 2 and 0 of two inputs: with the basis as embeddings, W is the matrix of scores itself."""
    W = np.zeros((1, 3, 3))
    W[0, 0, 0], W[0, 1, 1] = 3.0, 1.0
    one = Memories(W, np.eye(3)[None, :2], np.eye(3)[None])
    exact = [np.log(1 + 2 * np.exp(-score)) for score in (3.0, 1.0)]
    assert one.pure_label_loss().tolist() == pytest.approx([np.mean(exact)])
    assert one.pure_label_loss(rank=1).tolist() == pytest.approx([np.mean([exact[0], np.log(3)])])


def test_the_start_is_that_of_the_paper():
    drawn = draw_memories(generator(0, "test"), runs=200, inputs=3, width=8)
    assert (drawn.inputs.shape, drawn.outputs.shape) == ((200, 3, 8), (200, 4, 8))
    for vectors in (drawn.inputs, drawn.outputs):
        assert np.linalg.norm(vectors, axis=2) == pytest.approx(np.ones(vectors.shape[:2]))
        assert abs(float(vectors.mean())) < 0.02
    assert float(drawn.weights.var()) == pytest.approx(1 / 8, rel=0.05)
