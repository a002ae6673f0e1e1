"""The linear associative memory: its scores written out, its embeddings, its gradient at zero, its ranks."""

import numpy as np
import pytest
import torch
from scipy import stats

from anchorlab.axes import TaskShape
from anchorlab.models import AssociativeSpec, Truncate, apply_edits
from anchorlab.tasks import NoisyAssociative
from anchorlab.training import SGD, Evaluation, Experiment, FixedSample, Members, Recipe, initialise
from anchorlab.training.trainer import fit

SHAPE = TaskShape("tokens", 1, 3, 4)
ALPHA = 0.25


def drawn(embeddings, width=8, seed=0):
    model = AssociativeSpec(width=width, embeddings=embeddings).build(SHAPE)
    model.initialise(torch.Generator().manual_seed(seed))
    return model.double()


@pytest.mark.parametrize("embeddings", ["sphere", "orthonormal"])
def test_scores_are_those_of_equation_five(embeddings):
    model = drawn(embeddings)
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    e, u, W = weights["embed.W_E"], weights["unembed.W_U"].T, weights["memory.W_F"].T
    found = model(torch.tensor([[0], [1], [2]]))[:, 0].detach()
    for i in range(3):
        for j in range(4):
            assert float(found[i, j]) == pytest.approx(u[j] @ W @ e[i], abs=1e-12)


def test_only_the_matrix_is_trained_from_variance_one_over_width():
    trainable = [name for name, value in drawn("sphere").named_parameters() if value.requires_grad]
    assert trainable == ["memory.W_F"]
    entries = torch.stack([drawn("sphere", width=12, seed=seed).memory.W_F for seed in range(50)]).detach().numpy()
    assert stats.kstest(entries.ravel() * 12**0.5, "norm").pvalue > 1e-3


def test_embeddings_on_the_sphere_are_unit_vectors_in_every_direction():
    models = [drawn("sphere", seed=seed) for seed in range(200)]
    for vectors in (
        torch.cat([model.embed.W_E for model in models]),
        torch.cat([model.unembed.W_U.T for model in models]),
    ):
        torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(vectors)).double(), rtol=0, atol=1e-6)
        # on the sphere of d coordinates, (1 + x) / 2 of one of them is Beta((d - 1) / 2, (d - 1) / 2)
        assert stats.kstest((1 + vectors[:, 0].detach().numpy()) / 2, stats.beta(3.5, 3.5).cdf).pvalue > 1e-3
    inner = torch.stack([(model.embed.W_E[0] * model.embed.W_E[1]).sum() for model in models])
    assert float(inner.std()) == pytest.approx(8**-0.5, rel=0.2)


def test_orthonormal_embeddings_are_orthonormal_and_uniform():
    firsts = []
    for seed in range(300):
        model = drawn("orthonormal", width=4, seed=seed)
        e, u = model.embed.W_E, model.unembed.W_U.T
        torch.testing.assert_close(e @ e.T, torch.eye(3).double(), rtol=0, atol=1e-6)
        torch.testing.assert_close(u @ u.T, torch.eye(4).double(), rtol=0, atol=1e-6)
        firsts += [float(e[0, 0]), float(u[2, 1])]
    assert stats.kstest((1 + np.array(firsts)) / 2, stats.beta(1.5, 1.5).cdf).pvalue > 1e-3


def one_step(embeddings, rate=1.0):
    """The matrix from zero after one step of full-batch descent, with the embeddings: W, e and u of two members."""
    experiment = Experiment(
        NoisyAssociative(inputs=3, alpha=ALPHA),
        AssociativeSpec(width=8, embeddings=embeddings),
        Recipe(
            data=FixedSample(size=3), optimiser=SGD(learning_rate=rate), batch=3, duration=1, precision="float64",
            evaluation=Evaluation(size=3),
        ),
        Members(seeds=(0, 1), initialisation_scale=(0.0, 0.0)),
    )  # fmt: skip
    weights = fit(experiment).ensemble.weights
    return weights["memory.W_F"].mT, weights["embed.W_E"], weights["unembed.W_U"].mT


@pytest.mark.parametrize("embeddings", ["sphere", "orthonormal"])
def test_the_first_step_from_zero_is_the_gradient_by_hand(embeddings):
    """At W = 0 every output has probability 1/4, so that W = (1/3) sum of (p(y | x) - 1/4) u_y e_xᵀ."""
    W, e, u = one_step(embeddings)
    expected = torch.zeros_like(W)
    for x in range(3):
        for y in range(4):
            wanted = (1 - ALPHA if y == x else 0.0) + (ALPHA if y == 3 else 0.0)
            expected += (wanted - 0.25) / 3 * u[:, y, :, None] * e[:, x, None, :]
    torch.testing.assert_close(W, expected, rtol=0, atol=1e-7)


def test_singular_values_after_one_step_with_orthonormal_embeddings():
    """With alpha = 1/4 the noise is at its mean, and what is left are the three inputs told apart.

    Scores are (1/3) (3/4 on the right output, nothing elsewhere) less (1/3)(1/4) on the three, nothing on noise: the
    matrix (1/4) (1 - J/3) with two singular values 1/4 and no third.
    """
    W, _, _ = one_step("orthonormal")
    values = torch.linalg.svdvals(W)
    torch.testing.assert_close(values[:, :2], torch.full((2, 2), 0.25).double(), rtol=0, atol=1e-7)
    assert float(values[:, 2:].max()) < 1e-7


def test_rank_two_of_an_ideal_memory_forgets_the_noise():
    """Scores log p(y | x) up to a constant per input: told apart by a, noise at b; the third singular value is noise.

    W = s (1 - J/3) over the right outputs + t (1, 1, 1, -3) over every input, its singular values s, s and 6 t.
    """
    s, t = 5.0, 0.4
    model = drawn("orthonormal")
    scores = torch.zeros(4, 3).double()
    scores[:3] = s * (torch.eye(3) - 1 / 3)
    kept = scores.clone()
    scores += t * torch.tensor([1.0, 1.0, 1.0, -3.0]).double()[:, None]
    ensemble = initialise(AssociativeSpec(width=8, embeddings="orthonormal"), SHAPE, [0], torch.float64)
    e, u = ensemble.weights["embed.W_E"][0], ensemble.weights["unembed.W_U"][0]
    stored = {**ensemble.weights, "memory.W_F": (u @ scores @ e).mT[None]}
    cut = apply_edits(stored, [Truncate(weight="memory.W_F", rank=2)])
    for weights, expected in ((stored, scores), (cut, kept)):
        found = torch.func.functional_call(
            model, {name: value[0] for name, value in weights.items()}, (torch.tensor([[0], [1], [2]]),)
        )
        torch.testing.assert_close(found[:, 0], expected.T, rtol=0, atol=1e-5)
