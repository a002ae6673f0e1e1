"""The classic tasks, against sequences answered by hand, counts and closed forms."""

from itertools import product

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import Task, task


def answers_to(one: Task, *sequences: list[int]) -> list[list[int | None]]:
    """The oracle's answers to token sequences; None where it knows none."""
    found = one.oracle(torch.tensor(sequences))
    return [
        [answer if known else None for answer, known in zip(*row, strict=True)]
        for row in zip(found.answers.tolist(), found.known.tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("operation", "result"), [("+", 2), ("-", 4), ("*", 2), ("/", 2), ("x2+y2", 0), ("x2+xy+y2", 2)]
)
def test_modular_arithmetic_by_hand(operation, result):
    """3 and 4 modulo 5: 7, -1, 12, 3 times 4 (its own inverse), 25 and 37."""
    one = task("classics/modular-arithmetic", prime=5, operation=operation)
    assert answers_to(one, [3, 5, 4, 6]) == [[result]]
    assert answers_to(one, [3, 5, 5, 6], [3, 6, 4, 5]) == [[None], [None]]


def test_division_times_the_divisor_is_the_dividend():
    one = task("classics/modular-arithmetic", prime=7, operation="/", fraction=0.5)
    batch = one.sample("train", 21, 0)
    x, y = batch.inputs[:, 0], batch.inputs[:, 2]
    assert (batch.answers[:, 0] * y % 7 == x).all() and (y > 0).all()
    assert answers_to(one, [3, 7, 0, 8]) == [[None]]


def test_every_pair_is_in_one_split_and_a_run_holds_each_once():
    one = task("classics/modular-arithmetic", prime=7, fraction=0.3)
    train, test = (one.sample(split, n, 0).inputs[:, [0, 2]].tolist() for split, n in (("train", 15), ("test", 34)))
    assert sorted(map(tuple, train + test)) == sorted(product(range(7), repeat=2))
    assert one.training_pairs == 15
    again = one.sample("train", 30, 1).inputs[:, [0, 2]].tolist()
    assert sorted(again[:15]) == sorted(again[15:]) == sorted(train) and again[:15] != again[15:]
    other = task("classics/modular-arithmetic", prime=7, fraction=0.3, pairs_seed=1)
    assert sorted(other.sample("train", 15, 0).inputs[:, [0, 2]].tolist()) != sorted(train)


@pytest.mark.parametrize(("operation", "count"), [("+", 7), ("-", 7), ("*", 6), ("/", 6)])
def test_in_cyclic_order_the_answer_depends_on_the_sum_of_the_indices_alone(operation, count):
    one = task("classics/modular-arithmetic", prime=7, operation=operation)
    pairs = one.cyclic_pairs()
    found = one.oracle(pairs.flatten(0, 1))
    assert found.known.all() and pairs.shape == (count, count, 4)
    answers, numbers = found.answers.view(count, count), torch.arange(count)
    assert (answers == answers[0][(numbers.unsqueeze(1) + numbers) % count]).all()
    assert len({*answers[0].tolist()}) == len({*pairs[:, 0, 0].tolist()}) == len({*pairs[0, :, 2].tolist()}) == count
    assert one.replace(operation="x2+y2").cyclic_pairs() is None


def test_tricks_score_what_the_docstrings_say():
    one = task("classics/brackets")
    batch = one.sample("test", 50_000, 1)
    opens, kind, places = batch.inputs < 2, batch.inputs % 2, torch.arange(32)
    by_last_token = torch.where(opens, 2 + kind, 4)
    opened_last = torch.where(opens, places, -1).cummax(dim=1).values  # a word begins with an opening bracket
    by_last_opened = 2 + batch.inputs.gather(1, opened_last)
    scores = [float((said == batch.answers).float().mean()) for said in (by_last_token, by_last_opened)]
    assert scores == pytest.approx([0.695, 0.653], abs=0.001)
    one = task("classics/modular-arithmetic", operation="*", fraction=0.4)
    train, test = (
        {*map(tuple, one.sample(split, n, 0).inputs[:, [0, 2]].tolist())}
        for split, n in (("train", one.training_pairs), ("test", 97**2 - one.training_pairs))
    )
    assert len({(y, x) for x, y in train} & test) / len(test) == pytest.approx(0.4, abs=0.01)


def test_sparse_parity_by_hand_and_no_bit_alone_tells_it():
    one = task("classics/sparse-parity", length=5, relevant=(1, 4))
    assert answers_to(one, [1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [2, 1, 0, 0, 0]) == [
        [0], [1], [0], [1], [None],
    ]  # fmt: skip
    batch = task("classics/sparse-parity", length=8, relevant=(1, 4, 6)).sample("train", 20_000, 0)
    signs = 2.0 * batch.inputs.double() - 1
    correlations = (signs * (2 * batch.answers - 1)).mean(dim=0)
    assert correlations.abs().max() < 0.05  # one in five sequences is left out, by a hash of eight bits
    assert (signs[:, [1, 4, 6]].prod(dim=1) * (2 * batch.answers[:, 0] - 1)).mean() == 1
    one = task("classics/sparse-parity", length=16)
    bits = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (20_000, 16)))
    assert abs(one.split_of(bits).double().mean() - 0.2) < 0.015


BRACKETS = task("classics/brackets", kinds=2, length=6, depth=1, deeper=3)


def test_brackets_by_hand_their_splits_and_every_short_word():
    """( and [ are 0 and 1, ) and ] are 2 and 3, and 4 says that none is open."""
    assert answers_to(BRACKETS, [0, 1, 3, 2, 1, 3], [0, 3, 0, 2, 0, 2], [0, 1, 2, 3, 0, 2], [0, 0, 0, 2, 2, 0]) == [
        [2, 3, 2, 4, 3, 4], [None] * 6, [None] * 6, [None] * 6,
    ]  # fmt: skip
    flat, deep, too_deep, open_ended = [0, 2, 1, 3, 0, 2], [0, 1, 3, 2, 0, 2], [0] * 3 + [2] * 3, [0, 0, 2, 2, 0, 0]
    assert BRACKETS.split_of(torch.tensor([flat, deep, too_deep, open_ended])).tolist()[1:] == [2, 2, -1]
    assert BRACKETS.split_of(torch.tensor([flat])).item() in (0, 1)
    deeper = task("classics/brackets", kinds=1, length=6, depth=1, deeper=2)
    assert deeper.split_of(torch.tensor([[0, 0, 0, 1, 1, 1]])).tolist() == [-1]
    # Words of 6 brackets of one kind: 5 by Catalan's numbers, one of depth 1, three of depth 2, one of depth 3.
    one = task("classics/brackets", kinds=1, length=6, depth=1, deeper=3)
    deep = {tuple(row) for row in one.sample("deep", 500, 0).inputs.tolist()}
    assert len(deep) == 4 and all(sum(row) == 3 for row in deep)


def test_a_rare_word_is_found_also_if_it_is_not_among_the_first_drawn():
    """A word of 16 brackets is 8 deep if it opens at each of 7 fair coins: one in 128, and 64 are drawn at first."""
    rare = task("classics/brackets", length=16, depth=7, deeper=8)
    words = torch.cat([rare.sample("deep", 1, seed).inputs for seed in range(12)])
    assert (words[:, :8] < 2).all() and (words[:, 8:] >= 2).all()


@pytest.mark.parametrize(
    ("name", "arguments", "splits"),
    [
        ("classics/brackets", {"kinds": 1, "length": 4, "depth": 1, "deeper": 2}, ("train", "test")),  # one flat word
        ("classics/brackets", {"length": 1024, "depth": 256, "deeper": 512}, ("deep",)),
        ("classics/repeated-sequence", {"vocabulary": 2, "length": 3, "periods": (1, 1)}, ("train", "test")),
    ],
)
def test_a_split_that_is_nearly_empty_is_refused(name, arguments, splits):
    one, refused = task(name, **arguments), []
    for split in splits:
        try:
            one.sample(split, 3, 0)
        except SpecError as error:
            refused.append(error.problem)
    assert len(refused) == 1 and "belong to the split" in refused[0]


def test_recall_by_hand():
    """Keys 1 to 3, values 4 to 6, blanks 0."""
    one = task("classics/associative-recall", pairs=2, length=8, vocabulary=3)
    assert answers_to(one, [3, 4, 1, 6, 0, 1, 0, 3], [3, 4, 1, 6, 3, 0, 1, 0]) == [[6, 4], [4, 6]]
    no_key_twice, no_value, same_key = [3, 4, 1, 6, 0, 1, 0, 1], [3, 1, 1, 6, 0, 1, 0, 3], [3, 4, 3, 6, 0, 3, 0, 3]
    assert answers_to(one, no_key_twice, no_value, same_key) == [[None, None]] * 3
    found = one.oracle(torch.tensor([[3, 4, 1, 6, 0, 1, 0, 3]]))
    assert [step.position.tolist() for step in found.trace] == [[3], [1]]


@pytest.mark.parametrize(("power", "low", "high"), [(0.01, 0.3, 0.5), (1.0, 0.08, 0.12)])
def test_how_soon_a_key_comes_again(power, low, high):
    """Of ten places weighted d^(power - 1) the first has 0.34 if the weights are nearly 1 / d, 0.1 if even."""
    one = task("classics/associative-recall", pairs=1, length=12, vocabulary=5, power=power)
    first = (one.sample("train", 20_000, 0).positions[:, 0] == 2).double().mean()
    assert low < first < high


def test_repeated_sequences_by_hand_of_every_period():
    one = task("classics/repeated-sequence", vocabulary=9, length=8, periods=(2, 3))
    assert answers_to(one, [7, 2, 5, 7, 2, 5, 7, 2], [1, 4] * 4, [7, 2, 5, 7, 2, 5, 7, 3], [1, 1] * 4) == [
        [2, 5, 7, 2], [1, 4, 1, 4], [None] * 4, [None] * 4,
    ]  # fmt: skip
    one = task("classics/repeated-sequence", vocabulary=20, length=16, periods=(3, 6))
    inputs = one.sample("train", 4000, 0).inputs
    shares = [float((inputs[:, period:] == inputs[:, :-period]).all(dim=1).double().mean()) for period in (3, 4, 5, 6)]
    assert abs(shares[1] - 0.25) < 0.03 and abs(shares[2] - 0.25) < 0.03
    assert abs(shares[3] - 0.5) < 0.03  # a period of 3 repeats after 6 too


def regression_sequence(points: list[list[float]], values: list[float]) -> torch.Tensor:
    d, length = len(points[0]), 2 * len(points)
    inputs = torch.zeros(1, length, d + 1 + length)
    inputs[0, 0::2, :d], inputs[0, 1::2, d] = torch.tensor(points), torch.tensor(values)
    inputs[0, :, d + 1 :] = torch.eye(length)
    return inputs


def test_regression_by_hand_and_its_ideal_with_noise_which_is_ridge_regression():
    """w = (2, -1): the first two pairs show it."""
    one = task("classics/linear-regression", dimension=2, examples=3)
    inputs = regression_sequence([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]], [2.0, -1.0, 2.0])
    found = one.oracle(inputs)
    torch.testing.assert_close(found.answers[0, :, 0], torch.tensor([2.0, -1.0, 2.0]), rtol=0, atol=1e-5)
    torch.testing.assert_close(one.ideal(inputs)[0, :, 0], torch.tensor([0.0, 0.0, 2.0]), rtol=0, atol=1e-5)
    assert found.known.all()
    bent = one.oracle(regression_sequence([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]], [2.0, -1.0, 5.0]))
    assert not bent.known.any()
    # One coordinate, noise variance 1/4, prior variance 1: after x = 2, y = 3 the mean of w is 6 / (4 + 1/4).
    one = task("classics/linear-regression", dimension=1, examples=2, noise=0.5)
    found = one.ideal(regression_sequence([[2.0], [1.0]], [3.0, 0.0]))
    torch.testing.assert_close(found[0, :, 0], torch.tensor([0.0, 6 / 4.25]), rtol=0, atol=1e-5)
    # Some w fits any two points in the plane exactly, whether or not it is the one drawn; a third tests it.
    for examples, known in ((2, False), (3, True)):
        one = task("classics/linear-regression", dimension=2, examples=examples)
        inputs = torch.zeros(1, 2 * examples, one.shape.input_size)
        inputs[0, :, 3:] = torch.eye(2 * examples)
        points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])[:examples]
        inputs[0, 0::2, :2], inputs[0, 1::2, 2] = points, points @ torch.tensor([2.0, 3.0])
        assert one.oracle(inputs).known.unique().tolist() == [known]
    one = task("classics/linear-regression")
    inputs = one.sample("train", 2, 0).inputs
    inputs[1, 0, 0] = float("nan")
    with pytest.raises(SpecError, match=r"^inputs: are not finite"):
        one.ideal(inputs)


def test_moments_of_regression():
    """Values have variance 1; the least-norm fit of m of d pairs leaves 1 - m/d of it (Garg et al., Figure 2)."""
    one = task("classics/linear-regression", dimension=4, examples=6, noise=0.0)
    batch = one.sample("train", 20_000, 0)
    assert abs(float(batch.targets.var()) - 1) < 0.03
    errors = (one.ideal(batch.inputs) - batch.targets).square().mean(dim=(0, 2))
    np.testing.assert_allclose(errors, [1.0, 0.75, 0.5, 0.25, 0.0, 0.0], atol=0.03)
    noisy = task("classics/linear-regression", dimension=4, examples=6, noise=0.5).sample("train", 20_000, 0)
    assert abs(float((noisy.targets - noisy.answers).std()) - 0.5) < 0.01


def test_superposed_features_are_sparse():
    batch = task("classics/superposition", features=10, density=0.2).sample("train", 20_000, 0)
    shown = batch.inputs[batch.inputs > 0]
    assert abs(len(shown) / batch.inputs.numel() - 0.2) < 0.01
    assert abs(float(shown.mean()) - 0.5) < 0.01 and float(shown.max()) < 1
    assert torch.equal(batch.answers, batch.inputs)


def test_errors_count_by_importance_in_the_loss_alone():
    """The mean over the features of I_i (x_i - x'_i)², I_i = 0.7^i (Elhage et al.)."""
    one = task("classics/superposition", features=4, importance=0.7)
    batch, random = one.sample("train", 50, 0), np.random.default_rng(1)
    outputs = random.random((50, 1, 4))
    squares = (outputs - batch.targets.numpy()) ** 2
    weighted = squares @ np.array([1, 0.7, 0.49, 0.343]) / 4
    np.testing.assert_allclose(one.losses(torch.from_numpy(outputs), batch.targets), weighted, rtol=1e-12)
    np.testing.assert_allclose(one.metrics(torch.from_numpy(outputs), batch)["error"], squares.mean(2), rtol=1e-12)
    equal = one.replace(importance=1)
    np.testing.assert_allclose(equal.losses(torch.from_numpy(outputs), batch.targets), squares.mean(2), rtol=1e-12)
    assert torch.equal(equal.sample("train", 50, 0).inputs, batch.inputs)
    assert set(one.model_dump()) - set(equal.model_dump()) == {"importance"}


def test_one_neuron_learns_the_most_important_feature(tmp_path):
    """The least weighted error of rank one: w = ±e_0, whose loss is the others' variance 1/12, by importance."""
    import anchorlab as al
    from anchorlab.models import SuperpositionSpec

    dense = task("classics/superposition", features=3, density=1, importance=0.2)
    recipe = al.Recipe(data=al.Stream(), optimiser=al.AdamW(0.02), batch=256, duration=400)
    run = al.train(dense, SuperpositionSpec(hidden=1, activation="none"), recipe, seeds=3, store=tmp_path)
    weight, last = run.ensemble().weights["W"][:, :, 0].abs(), run.metric("loss").filter(step=400)["value"]
    torch.testing.assert_close(weight, torch.eye(3)[:1].expand(3, -1), atol=0.05, rtol=0)
    np.testing.assert_allclose(last, (0.2 + 0.04) / 12 / 3, rtol=0.1)


def test_an_autoencoder_gives_back_what_its_weights_hold():
    from anchorlab.models import SuperpositionSpec

    one = task("classics/superposition", features=3)
    model = SuperpositionSpec(hidden=2).build(one.shape)
    with torch.no_grad():
        model.W.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))  # features 0 and 2 share a neuron
        model.b.zero_()
    outputs = model(torch.tensor([[[0.5, 0.25, 0.0]], [[0.0, 0.0, 0.75]], [[0.5, 0.0, 0.75]]]))
    assert outputs[:, 0].tolist() == [[0.5, 0.25, 0.0], [0.0, 0.0, 0.75], [0.0, 0.0, 0.25]]
    with pytest.raises(SpecError, match="autoencoder"):
        SuperpositionSpec().build(task("retrieval/minimal").shape)


def test_a_strange_token_beside_balanced_and_repeated_sequences():
    brackets = task("classics/brackets", kinds=2, length=4, depth=1, deeper=2)
    words = [[0, 2, 1, 3], [0, 2, 1, 4], [0, -1, 1, 3]]  # ()[], and two with a token that is no bracket
    assert answers_to(brackets, *words) == [[2, 4, 3, 4], [None] * 4, [None] * 4]
    assert (brackets.split_of(torch.tensor(words)) >= 0).tolist() == [True, False, False]
    repeated = task("classics/repeated-sequence", vocabulary=5, length=6, periods=(2, 2))
    sequences = [[1, 2, 1, 2, 1, 2], [1, 5, 1, 5, 1, 5], [-1, 2, -1, 2, -1, 2]]
    assert answers_to(repeated, *sequences) == [[2, 1, 2], [None] * 3, [None] * 3]
    assert (repeated.split_of(torch.tensor(sequences)) >= 0).tolist() == [True, False, False]
    assert [one.split for one in repeated.render(torch.tensor(sequences))][1:] == ["nowhere", "nowhere"]


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("modular-arithmetic", {"prime": 9}, "prime: 9 is not a prime"),
        ("modular-arithmetic", {"prime": 3, "fraction": 0.01}, "fraction"),
        *(("sparse-parity", {"length": 5, "relevant": places}, "relevant") for places in ((), (1, 1), (9,))),
        ("associative-recall", {"pairs": 4, "length": 11}, "length"),
        ("associative-recall", {"pairs": 4, "vocabulary": 3}, "vocabulary"),
        *(("superposition", {"importance": wrong}, "importance") for wrong in (0, 1.5)),
    ],
)
def test_classics_that_cannot_be(name, arguments, problem):
    with pytest.raises(SpecError, match=problem):
        task(f"classics/{name}", **arguments)
