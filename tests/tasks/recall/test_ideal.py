"""The ideal predictor of noisy recall, against the law summed over every sequence and every y."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import NoisyRecall
from anchorlab.tasks.metrics import loss_per_position

LENGTH, TOKENS, ALPHA = 5, 3, 0.3


def law(task, sequence, y):
    """The probability of z_1 .. z_{T+1} given y, from the definition; z_T is set to the trigger."""
    chain, (trigger,) = task.chain, task.triggers
    probability = chain.initial[sequence[0]]
    for position, (before, token) in enumerate(pairwise(sequence)):
        if position == LENGTH - 2:
            probability *= token == trigger
        elif before == trigger:
            probability *= (1 - ALPHA) * (token == y) + ALPHA * (token == task.noise_token)
        else:
            probability *= chain.transition[before, token]
    return probability


@pytest.mark.parametrize("noise", ["appended", "existing"])
@pytest.mark.parametrize("scored", ["last", "after_trigger"])
def test_it_is_the_law_given_all_that_stands_before(noise, scored):
    task = NoisyRecall(
        source="uniform", tokens=TOKENS, length=LENGTH, alpha=ALPHA, noise=noise, scored=scored, max_scored=0
    )
    states = task.chain.states
    joint = {
        sequence: sum(law(task, sequence, y) for y in range(TOKENS)) / TOKENS
        for sequence in product(range(states), repeat=LENGTH + 1)
    }
    assert sum(joint.values()) == pytest.approx(1)
    possible = sorted({sequence[:LENGTH] for sequence, each in joint.items() if each > 0})
    inputs = torch.tensor(possible)
    ideal = task.ideal(inputs)
    batch = task.sample("train", 400, seed=0)
    assert torch.allclose(ideal.sum(-1), torch.ones(()))
    following = np.zeros((len(possible), states))
    for row, inputs_ in enumerate(possible):
        following[row] = [joint[(*inputs_, token)] for token in range(states)]
    following /= following.sum(axis=1, keepdims=True)
    assert np.abs(ideal[:, -1].numpy() - following).max() < 1e-6
    if scored == "last":
        return
    index = {inputs_: row for row, inputs_ in enumerate(possible)}
    checked = 0
    for inputs_, positions, weights in zip(
        batch.inputs.tolist(), batch.positions.tolist(), batch.weights.tolist(), strict=True
    ):
        for column, (position, weight) in enumerate(zip(positions[:-1], weights[:-1], strict=True)):
            if weight:
                before = tuple(inputs_[: position + 1])
                told = [(sequence, each) for sequence, each in joint.items() if sequence[: position + 1] == before]
                expected = np.bincount(
                    [sequence[position + 1] for sequence, _ in told], [each for _, each in told], minlength=states
                )
                found = ideal[index[tuple(inputs_)], column].numpy()
                assert np.abs(found - expected / expected.sum()).max() < 1e-6
                checked += 1
    assert checked > 10


def test_no_predictor_of_the_law_has_a_lower_loss():
    """On its own draws it beats the oracle's answer smoothed in any measure, by Gibbs' inequality."""
    task = NoisyRecall(source="uniform", tokens=6, length=40, alpha=ALPHA)
    batch = task.sample("train", 20_000, seed=1)
    ideal = task.ideal(batch.inputs)
    loss = loss_per_position("cross_entropy", ideal.log(), batch.targets).mean()
    told = task.oracle(batch.inputs)
    answer = torch.nn.functional.one_hot(told.answers.clamp(min=0), 7).float() * told.known.unsqueeze(-1)
    noise = torch.nn.functional.one_hot(torch.tensor(task.noise_token), 7).float()
    for share in (0.5, 0.65, 0.75):
        other = 0.02 / 7 + 0.98 * (share * answer + (1 - share) * noise)
        assert (
            loss < loss_per_position("cross_entropy", (other / other.sum(-1, keepdim=True)).log(), batch.targets).mean()
        )


def test_uniform_tokens_can_be_few():
    task = NoisyRecall(source="uniform", tokens=4, length=10)
    assert task.shape.input_size == 5
    assert int(task.sample("train", 100, seed=0).inputs.max()) == 4


def test_a_token_outside_the_vocabulary_has_no_law():
    task = NoisyRecall(source="uniform", tokens=TOKENS, length=LENGTH, alpha=ALPHA)
    inputs = task.sample("train", 2, 0).inputs
    inputs[1, 0] = task.shape.input_size
    with pytest.raises(SpecError, match=r"^inputs: hold a token outside the vocabulary; give tokens from 0 to 3$"):
        task.ideal(inputs)
