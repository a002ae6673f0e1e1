import math

import pytest
import torch

from anchorlab.lens import look
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor import mechanism_measures as of
from anchorlab.tasks import task
from anchorlab.training import Members
from anchorlab.training.ensemble import initialise

SHARP = 60.0


@pytest.fixture(scope="module")
def identity():
    return task("anchor/identity")


@pytest.fixture(scope="module")
def batch(identity):
    return identity.sample("test", 40, seed=0)


@pytest.fixture(scope="module")
def ensemble(identity):
    """Two untrained members of two layers of one head."""
    model = DecoderSpec(layers=2, heads=1, width=16, head_width=16)
    return initialise(model, identity.shape, [Members(seeds=(seed,)).stream("initialisation", 0) for seed in range(2)])


def test_the_stages_are_what_the_model_itself_computes(ensemble, batch):
    sites = ["ln1.hook_normalized", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out", "hook_resid_post"]
    names = [f"blocks.0.{site}" for site in (*sites, "ln2.hook_normalized")]
    record = look(ensemble, batch.inputs, record=names)
    stages = of.feed_forward_stages(ensemble.weights, 0, record[names[0]])
    assert len(stages) == len(of.STAGES) == 6
    for name, stage in zip(names, stages, strict=True):
        torch.testing.assert_close(stage, record[name], rtol=1e-5, atol=1e-5)


def test_a_head_of_positions_alone_is_found_to_be_one(ensemble, batch):
    # Queries and keys that read positions alone: position i asks for i - 1.
    weights = {name: value.clone() for name, value in ensemble.weights.items()}
    directions = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(0)))[0]
    weights["pos_embed.W_pos"][:] = directions[:9] * SHARP
    weights["embed.W_E"][:] = 0
    weights["blocks.0.attn.W_Q"][:] = torch.eye(16)
    weights["blocks.0.attn.W_K"][:] = directions.T @ directions.roll(
        -1, dims=0
    )  # the key of i is the direction of i + 1
    found = of.first_attention(ensemble.with_weights(weights), batch)
    assert found.matched.tolist() == [1.0, 1.0]
    assert found.positions_apart.tolist() == pytest.approx([0.0, 0.0], abs=1e-5)
    assert found.shifted_agrees.tolist() == [1.0, 1.0]
    # Tokens alone give no scores, so that row i is even over i + 1 positions: 1 - 1 / (i + 1) from the shift.
    expected = sum(1 - 1 / (row + 1) for row in range(1, 9)) / 8
    assert found.tokens_apart.tolist() == pytest.approx([expected] * 2, abs=1e-5)


def test_a_head_of_tokens_alone_is_found_to_be_one(ensemble, batch):
    weights = {name: value.clone() for name, value in ensemble.weights.items()}
    weights["pos_embed.W_pos"][:] = 0
    found = of.first_attention(ensemble.with_weights(weights), batch)
    assert found.tokens_apart.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert (found.positions_apart > 0.01).all()


def test_similarities_are_split_by_the_key():
    # Four positions, the key at 2 (and at 0): the others parallel, the key orthogonal to them.
    rows = torch.tensor([[[1.0, 0], [2, 0], [0, 3], [1, 0]], [[0, 1], [1, 0], [1, 0], [5, 0]]])[None]
    similarity = torch.nn.functional.cosine_similarity(rows.unsqueeze(3), rows.unsqueeze(2), dim=-1)
    others, key = of.split_similarity(similarity, torch.tensor([2, 0]))
    assert others.tolist() == [pytest.approx(1.0)]
    assert key.tolist() == [pytest.approx(0.0)]


def test_spread_and_distance_by_hand():
    # The others at 1 and -1, their centre at 0; the key 3 away.
    rows = torch.tensor([[[1.0, 0], [0, 3], [-1, 0]]])[None]
    spread, distance = of.spread_and_distance(rows, torch.tensor([1]))
    assert spread.tolist() == [pytest.approx(1.0)]
    assert distance.tolist() == [pytest.approx(3.0)]


def test_the_matrices_of_equation_8_show_every_statement():
    # Q has rows alpha and, at the key, beta; K has their opposites; alpha beta > 0 and alpha is the longer.
    alpha, beta = torch.tensor([4.0, 0.0]), torch.tensor([0.5, 1.0])
    queries = alpha.repeat(1, 2, 9, 1)
    at = torch.tensor([5, 3])
    queries[0, torch.arange(2), at] = beta
    found = of.read_directions(queries, -queries, at)
    assert found.queries.tolist() == found.keys.tolist() == [pytest.approx(1.0)]
    assert found.opposite.tolist() == [pytest.approx(-1.0)]
    assert found.same_side.tolist() == [1.0]
    assert found.longer.tolist() == [pytest.approx(4 / 1.25**0.5)]
    # Scores: -16 among the others and -2 in the key's column; in the key's own row -2 and -1.25.
    assert found.to_key.tolist() == [1.0]


def test_a_key_that_is_not_read_is_seen():
    queries = torch.ones(1, 1, 9, 2)
    keys = torch.ones(1, 1, 9, 2)
    keys[0, 0, 0] = 5  # every row's greatest score is the first column's
    assert of.read_directions(queries, keys, torch.tensor([4])).to_key.tolist() == [0.0]


def test_an_even_projection_makes_no_choice(ensemble, batch):
    weights = {name: value.clone() for name, value in ensemble.weights.items()}
    weights["unembed.W_U"][:] = 0
    weights["unembed.b_U"][:] = 0
    found = of.project_others(ensemble.with_weights(weights), batch, range(20, 101))
    assert found.favour.tolist() == pytest.approx([1.0, 1.0], rel=1e-4)
    assert found.evenness.tolist() == pytest.approx([1.0, 1.0], rel=1e-5)
    weights["unembed.b_U"][:, 30] = 10  # one item takes e^10 times as much as every other token
    found = of.project_others(ensemble.with_weights(weights), batch, range(20, 101))
    assert found.favour.tolist() == pytest.approx([(math.exp(10) + 80) / 81] * 2, rel=1e-2)
    assert (found.evenness < 0.02).all()
    assert found.probabilities.argmax(dim=-1).tolist() == [30, 30]
