"""Noisy associative memory, against its law written out."""

import math

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import NoisyAssociative, loss_per_position, task

ONE = NoisyAssociative(inputs=3, alpha=0.25)
LAW = torch.tensor([[0.75, 0.0, 0.0, 0.25], [0.0, 0.75, 0.0, 0.25], [0.0, 0.0, 0.75, 0.25]])


def test_targets_are_the_law_of_each_input():
    for split, law in (("train", LAW), ("clean", torch.eye(3, 4))):
        batch = ONE.sample(split, 60, 0)
        assert torch.equal(batch.targets[:, 0], law[batch.inputs[:, 0]])
        assert torch.equal(batch.answers[:, 0], torch.eye(3, 4)[batch.inputs[:, 0]])
        assert batch.positions.tolist() == [0]
    always = NoisyAssociative(inputs=2, alpha=1.0).sample("train", 2, 0)
    assert always.targets[:, 0].tolist() == [[0.0, 0.0, 1.0]] * 2
    never = NoisyAssociative(inputs=2, alpha=0.0).sample("train", 2, 0)
    assert torch.equal(never.targets, never.answers)


def test_every_n_sequences_are_the_population():
    inputs = task("associative/noisy", inputs=5).sample("train", 5 * 40 + 3, 1).inputs[:, 0]
    rows = inputs[:200].reshape(40, 5)
    assert (rows.sort(dim=1).values == torch.arange(5)).all()
    assert len({tuple(row) for row in rows.tolist()}) > 20  # of 120 orders
    assert len(set(inputs[200:].tolist())) == 3


def test_loss_of_a_batch_is_the_loss_of_the_population():
    """(1 / n) sum over x and y of -p(y | x) log q(y | x), for predictions q by hand."""
    q = torch.tensor([[0.5, 0.2, 0.2, 0.1], [0.1, 0.6, 0.1, 0.2], [0.25, 0.25, 0.25, 0.25]])
    expected = -sum(float(LAW[x, y]) * math.log(float(q[x, y])) for x in range(3) for y in range(4)) / 3
    batch = ONE.sample("train", 3, 7)
    losses = loss_per_position("cross_entropy", q.log()[batch.inputs], batch.targets)
    assert float(losses.mean()) == pytest.approx(expected, rel=1e-6)
    clean = ONE.sample("clean", 3, 7)
    losses = loss_per_position("cross_entropy", q.log()[clean.inputs], clean.targets)
    assert float(losses.mean()) == pytest.approx(-(math.log(0.5) + math.log(0.6) + math.log(0.25)) / 3, rel=1e-6)


def test_oracle_and_ideal_predictor():
    inputs = torch.tensor([[2], [0]])
    answer = ONE.oracle(inputs)
    assert answer.answers[:, 0].tolist() == [[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    assert answer.known.tolist() == [[True], [True]]
    assert torch.equal(ONE.ideal(inputs)[:, 0], LAW[[2, 0]])
    batch = ONE.sample("train", 30, 0)
    assert torch.equal(ONE.ideal(batch.inputs), batch.targets)  # nothing else could have been drawn
    assert ONE.render(inputs)[0].trace == ("output 2 with probability 0.75, noise with probability 0.25",)


def test_metrics_by_hand():
    batch = ONE.sample("train", 3, 0)
    q = torch.tensor([[0.5, 0.2, 0.2, 0.1], [0.1, 0.3, 0.2, 0.4], [0.25, 0.25, 0.3, 0.2]])
    found = ONE.metrics(q.log()[batch.inputs], batch)
    order = batch.inputs[:, 0].argsort()
    assert found["right"][order, 0].tolist() == pytest.approx([0.5, 0.3, 0.3])
    assert found["noise"][order, 0].tolist() == pytest.approx([0.1, 0.4, 0.2])
    assert found["accuracy"][order, 0].tolist() == [1.0, 0.0, 1.0]


def test_what_is_no_input_belongs_nowhere():
    assert ONE.split_of(torch.tensor([[0], [2], [3], [-1]])).tolist() == [0, 0, -1, -1]
    assert ONE.split_of(torch.zeros(2, 2, dtype=torch.int64)).tolist() == [-1, -1]
    answer = ONE.oracle(torch.tensor([[2], [3], [-1]]))
    assert answer.known.tolist() == [[True], [False], [False]] and answer.answers[0, 0].tolist() == [0, 0, 1, 0]
    assert answer.trace[0].position.tolist() == [0, -1, -1]
    for ask in (ONE.ideal, ONE.render):
        with pytest.raises(SpecError, match=r"^inputs: .*not single tokens below n.*from 0 to 2"):
            ask(torch.tensor([[0], [3]]))


@pytest.mark.parametrize(("field", "value"), [("inputs", 1), ("alpha", 1.5), ("alpha", -0.1), ("alpha", float("nan"))])
def test_impossible_specs(field, value):
    with pytest.raises(SpecError, match=f"^{field}:"):
        NoisyAssociative(**{field: value})
