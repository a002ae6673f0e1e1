import re

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.theory.one_step import (
    ENTRIES,
    TABLE_2,
    Moments,
    feedforward_gradient,
    feedforward_moments,
    value_gradient,
    value_moments,
    weighted_geometric_sum,
)
from anchorlab.theory.uniform_recall import UniformRecall
from tests.theory.enumerated_recall import enumerate_recall
from tests.theory.one_layer_model import OneLayer

TOKENS, LENGTH, ALPHA = 4, 6, 0.3
LAW = UniformRecall(TOKENS, LENGTH, ALPHA)
EVERYTHING = enumerate_recall(TOKENS, LENGTH, ALPHA)
ROWS = {"noise": TOKENS, "trigger": 0, "other": 1}
COLUMNS = {"noise": TOKENS, "trigger": 0, "other": 2, "same": 1}


def test_gradients_by_counting_are_those_of_autograd():
    sample = UniformRecall(6, 9, ALPHA).draw(generator(0, "sample"), 40)
    model = OneLayer(outputs=7, width=11)
    model.loss(sample).backward()
    feedforward = model.projected(model.feedforward.grad)
    assert feedforward[:, 0].tolist() == pytest.approx(feedforward_gradient(sample, 6))
    assert feedforward[:, 1:].abs().max() < 1e-12
    assert model.projected(model.value.grad).numpy() == pytest.approx(value_gradient(sample, 6), abs=1e-12)
    assert model.key_query.grad.abs().max() < 1e-12


def contributions(output: int, token: int) -> np.ndarray:
    error = 1 / (TOKENS + 1) - (EVERYTHING.targets == output)
    return error * EVERYTHING.counts[:, token] / LENGTH


def check_moments(found: Moments, values: np.ndarray) -> None:
    mean = EVERYTHING.mean(values)
    assert found.mean == pytest.approx(mean)
    assert found.variance == pytest.approx(EVERYTHING.mean((values - mean) ** 2))
    assert found.reach == pytest.approx(np.abs(values - mean).max())


@pytest.mark.parametrize("entry", ENTRIES, ids="-".join)
def test_exact_moments_of_table_2_by_enumeration(entry):
    check_moments(value_moments(LAW, entry), contributions(ROWS[entry[0]], COLUMNS[entry[1]]))


@pytest.mark.parametrize(("name", "output"), [("noise", TOKENS), ("other", 1), ("other", 0)])
def test_exact_moments_of_lemma_d1_by_enumeration(name, output):
    check_moments(feedforward_moments(LAW, name), 1 / (TOKENS + 1) - (EVERYTHING.targets == output))


@pytest.mark.parametrize(
    ("tokens", "length", "near"), [(256, 4096, 0.05), (1024, 1024, 0.02), (8192, 256, 0.04)], ids=str
)
@pytest.mark.parametrize("entry", ENTRIES, ids="-".join)
def test_closed_forms_are_the_leading_order(entry, tokens, length, near):
    exact, closed = value_moments(UniformRecall(tokens, length, ALPHA), entry), TABLE_2[entry]
    assert closed.mean(tokens, length, ALPHA) == pytest.approx(exact.mean, rel=near)
    assert closed.variance(tokens, length, ALPHA) == pytest.approx(exact.variance, rel=near)
    assert closed.reach == pytest.approx(exact.reach, rel=near)


@pytest.mark.parametrize("entry", ENTRIES, ids="-".join)
def test_what_is_written_is_what_is_computed(entry):
    closed, values = TABLE_2[entry], {"α": 0.3, "T": 50.0, "N": 7.0}

    def value(text: str) -> float:
        text = text.translate(str.maketrans({"²": "**2", "³": "**3", "⁴": "**4", "[": "(", "]": ")"}))
        return float(eval(re.sub(r"(?<=[\dαTN)])(?=[αTN(])", "*", text), {}, values))

    assert value(closed.mean_text) == pytest.approx(closed.mean(7, 50, 0.3))
    assert value(closed.variance_text) == pytest.approx(closed.variance(7, 50, 0.3))


def test_an_average_over_draws_has_the_exact_mean():
    law = UniformRecall(8, 20, ALPHA)
    drawn = np.stack([value_gradient(law.draw(generator(0, "draw", draw), 500), 8) for draw in range(100)])
    error = drawn.std(axis=0) / 10
    for entry, places in {
        ("noise", "other"): (8, 3),
        ("trigger", "trigger"): (0, 0),
        ("other", "same"): (2, 2),
    }.items():
        assert abs(drawn.mean(axis=0)[places] - value_moments(law, entry).mean) < 5 * error[places]


@pytest.mark.parametrize(("base", "terms", "total"), [(2.0, 3, 2 + 8 + 24), (-1.0, 4, -1 + 2 - 3 + 4), (0.5, 2, 1.0)])
def test_weighted_geometric_sums_by_hand(base, terms, total):
    assert weighted_geometric_sum(base, terms) == pytest.approx(total)


def test_what_has_no_sum_is_refused():
    with pytest.raises(SpecError, match="base: 1 has no closed form"):
        weighted_geometric_sum(1, 3)
    with pytest.raises(SpecError, match="terms: 0 terms"):
        weighted_geometric_sum(2.0, 0)
