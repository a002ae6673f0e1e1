"""The one-layer model, and the linear associative memory: starts, scores, and first steps against counts."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from anchorlab.axes import TaskShape
from anchorlab.lens import qk
from anchorlab.models import AssociativeSpec, OneLayerSpec
from anchorlab.rng import child_seed
from anchorlab.tasks import NoisyAssociative
from anchorlab.tasks import task as make_task
from anchorlab.training import SGD, AdamW, Evaluation, Experiment, FixedSample, Members, Recipe, Stream, initialise
from anchorlab.training.trainer import fit

N, LENGTH, SIZE = 9, 20, 64
RATES = (1.0, 30.0)
TASKS = {
    "one trigger": make_task("recall/noisy", source="uniform", tokens=N, length=LENGTH, alpha=0.4),
    "three triggers": make_task(
        "recall/noisy", source="uniform", tokens=N, length=LENGTH, alpha=0.4, triggers=(0, 1, 5)
    ),
}
KEYS, VALUES, FORWARD = (f"blocks.0.{name}" for name in ("attn.W_KQ", "attn.W_V", "mlp.W_F"))


def after_one_step(task, execution="auto"):
    """Two members that have taken one step of gradient descent on a sample of their own, each at its rate."""
    recipe = Recipe(
        data=FixedSample(size=SIZE), optimiser=SGD(), batch=SIZE, duration=1, precision="float64",
        evaluation=Evaluation(size=8),
    )  # fmt: skip
    one = Experiment(task, OneLayerSpec(width=14), recipe, Members(seeds=(0, 1), learning_rate=RATES))
    return fit(one, execution=execution).ensemble


def counted(task, seed):
    """The projections W_U(j)ᵀ grad_F W_E(k) and W_U(j)ᵀ grad_V W_E(k), `[output token]`, over a member's sample.

    Section 4.1 and appendix D: the means of (1/(N+1) - 1{y = j}) 1{z_T = k} and of (1/(N+1) - 1{y = j}) n_k / T.
    """
    batch = task.sample("train", SIZE, child_seed(seed, "train"))
    forward, values = np.zeros((2, N + 1, N + 1))
    for tokens, target in zip(batch.inputs.tolist(), batch.targets[:, 0].tolist(), strict=True):
        for output in range(N + 1):
            share = (1 / (N + 1) - (target == output)) / SIZE
            forward[output, tokens[-1]] += share
            for token, count in Counter(tokens).items():
                values[output, token] += share * count / LENGTH
    return forward, values


@pytest.fixture(params=TASKS, name="task")
def _task(request):
    return TASKS[request.param]


@pytest.mark.parametrize("execution", ["member", "mapped"])
def test_the_first_step_from_zero_is_what_counting_says(task, execution):
    weights = after_one_step(task, execution).weights
    assert not weights[KEYS].any()  # exactly: nothing is mixed that would tell one attention from another
    for member, rate in enumerate(RATES):
        e, u = weights["embed.W_E"][member], weights["unembed.W_U"][member]
        for name, gradient in zip((FORWARD, VALUES), counted(task, seed=member), strict=True):
            projections = -(e @ weights[name][member] @ u).T / rate
            torch.testing.assert_close(projections, torch.from_numpy(gradient), rtol=0, atol=1e-6)
            # nothing lies outside the span of the embeddings
            matrix = -rate * e.T @ torch.from_numpy(gradient).T @ u.T
            torch.testing.assert_close(weights[name][member], matrix, rtol=0, atol=1e-6 * rate)


def test_it_learns_the_noise_first_and_then_reads_the_sequence():
    """From chance to the best answer that does not look at the sequence, and then below it."""
    tokens, alpha = 4, 0.5
    task = make_task("recall/noisy", source="uniform", tokens=tokens, length=24, alpha=alpha)
    recipe = Recipe(
        data=Stream(), optimiser=AdamW(learning_rate=1e-2), batch=64, duration=300,
        evaluation=Evaluation(at=(0, 10, 300), size=2000),
    )  # fmt: skip
    rows = fit(Experiment(task, OneLayerSpec(width=14), recipe, Members(seeds=(0, 1)))).rows
    found = {(row.step, row.metric, row.member): row.value for row in rows if row.split == "train"}
    blind = -(alpha * np.log(alpha) + (1 - alpha) * np.log((1 - alpha) / tokens))
    for member in (0, 1):
        assert found[0, "loss", member] == pytest.approx(np.log(tokens + 1), abs=1e-6)
        assert found[10, "noise", member] == pytest.approx(alpha, abs=0.1)
        assert found[10, "right", member] < 1 / (tokens + 1)
        assert found[300, "loss", member] < blind - 0.1


@pytest.mark.parametrize("embeddings", ["orthonormal", "sphere"])
def test_what_is_trained_starts_at_zero_or_normal_beside_the_same_embeddings(embeddings):
    shape = TaskShape("tokens", LENGTH, 30, 40)
    spec = OneLayerSpec(width=48, embeddings=embeddings)
    zero, normal = (initialise(spec.replace(start=start), shape, [0, 1], torch.float64) for start in ("zero", "normal"))
    assert set(zero.trainable) == {KEYS, VALUES, FORWARD}
    for name in zero.trainable:
        assert not zero.weights[name].any()
        assert float(normal.weights[name].std()) == pytest.approx(48**-0.5, rel=0.05)
    e, u = zero.weights["embed.W_E"], zero.weights["unembed.W_U"].mT
    for name in ("embed.W_E", "unembed.W_U"):
        assert torch.equal(zero.weights[name], normal.weights[name])
    for vectors in (e, u):
        products = vectors @ vectors.mT
        ones = torch.eye(vectors.shape[1]).double().expand_as(products)
        off = products - ones
        assert float(off.diagonal(dim1=1, dim2=2).abs().max()) < 1e-6
        assert (float(off.abs().max()) < 1e-6) == (embeddings == "orthonormal")
    assert float((e @ u.mT).abs().max()) > 0.2  # two families, not one


def test_its_query_key_circuit_is_its_matrix():
    ensemble = initialise(OneLayerSpec(width=14, start="normal"), TASKS["one trigger"].shape, [0, 1])
    assert torch.equal(qk(ensemble).matrix[:, 0, 0], ensemble.weights[KEYS])


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
