import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks import task
from anchorlab.theory.uniform_recall import UniformRecall
from tests.theory.enumerated_recall import enumerate_recall

TOKENS, LENGTH, ALPHA = 5, 5, 0.3
LAW = UniformRecall(TOKENS, LENGTH, ALPHA)
EVERYTHING = enumerate_recall(TOKENS, LENGTH, ALPHA)
PLACES = {"noise": TOKENS, "trigger": 0, "output": 1, "other": 2}  # where y is token 1, for each kind in order
OTHER = 3


@pytest.mark.parametrize("output", [0, 1])
def test_moments_given_the_output(output):
    given, found = EVERYTHING.outputs == output, LAW.given(output == 0)
    places = list(PLACES.values()) if output else [TOKENS, 0, 0, 2]
    counts = EVERYTHING.counts
    assert found.mean.tolist() == pytest.approx(EVERYTHING.mean(counts[:, places], given))
    assert found.square.tolist() == pytest.approx(EVERYTHING.mean(counts[:, places] ** 2, given))
    for row, one in enumerate(places):
        for column, other in enumerate(places):
            if row == column == 3:
                other = OTHER
            if one != other:
                truth = EVERYTHING.mean(counts[:, one] * counts[:, other], given)
                assert found.product[row, column] == pytest.approx(truth)


def test_moments_over_all_outputs():
    assert EVERYTHING.chance.sum() == pytest.approx(1)
    assert EVERYTHING.mean(EVERYTHING.targets == TOKENS) == pytest.approx(ALPHA)
    found, counts = LAW.moments, EVERYTHING.counts
    places = [TOKENS, 0, 2]
    assert found.mean[[0, 1, 3]].tolist() == pytest.approx(EVERYTHING.mean(counts[:, places]))
    assert found.square[[0, 1, 3]].tolist() == pytest.approx(EVERYTHING.mean(counts[:, places] ** 2))
    for (row, one), (column, other) in [
        ((0, TOKENS), (1, 0)), ((1, 0), (0, TOKENS)), ((0, TOKENS), (3, 2)), ((1, 0), (3, 2)), ((3, 2), (3, OTHER)),
    ]:  # fmt: skip
        assert found.product[row, column] == pytest.approx(EVERYTHING.mean(counts[:, one] * counts[:, other]))


@pytest.mark.parametrize("length", [3, 4, 5, 6])
@pytest.mark.parametrize("output", [0, 1])
def test_the_most_that_a_token_can_stand(length, output):
    law, all_of = UniformRecall(4, length, ALPHA), enumerate_recall(4, length, ALPHA)
    places = [4, 0, output, 2]
    largest = all_of.counts[all_of.outputs == output].max(axis=0)
    assert [law.most(kind, output == 0) for kind in range(4)] == [largest[place] for place in places]


def test_draws_follow_the_law():
    samples = 200_000
    law, all_of = UniformRecall(4, 4, ALPHA), enumerate_recall(4, 4, ALPHA)
    drawn = law.draw(generator(0, "law"), samples)

    def keys(tokens, outputs, targets):
        return np.ravel_multi_index((*tokens, outputs, targets), (5, 5, 5, 5, 4, 5))

    names = keys(all_of.tokens.T, all_of.outputs, all_of.targets)
    found = keys(drawn.tokens, drawn.outputs, drawn.targets)
    assert set(found) <= set(names)
    seen = np.bincount(found, minlength=names.max() + 1)[names]
    expected = all_of.chance * samples
    surplus = ((seen - expected) ** 2 / expected).sum() - (len(names) - 1)
    assert abs(surplus) < 5 * np.sqrt(2 * (len(names) - 1) + (1 / expected).sum())


def test_counts_are_those_of_the_tokens_and_blocks_hold_every_sequence(monkeypatch):
    drawn = LAW.draw(generator(0, "counts"), 50)
    assert (drawn.counts(TOKENS) == (drawn.tokens[:, :, None] == np.arange(TOKENS + 1)).sum(axis=0)).all()
    monkeypatch.setattr("anchorlab.theory.uniform_recall._BLOCK_TOKENS", 37)
    assert [block.targets.size for block in LAW.blocks(generator(0, "blocks"), 20)] == [7, 7, 6]


def test_the_task_has_this_law():
    noisy = task("recall/noisy", source="uniform", length=40, alpha=ALPHA, triggers=(0,))
    batch = noisy.sample("train", 40_000, seed=0)
    counts = (batch.inputs.numpy()[:, :, None] == np.arange(66)).sum(axis=1)
    law = UniformRecall(65, 40, ALPHA)
    own = np.take_along_axis(counts, batch.latents["output"].numpy(), axis=1)[:, 0]
    plain = batch.latents["output"].numpy()[:, 0] != 0
    measured = [
        (counts[:, 65], law.moments.mean[0]), (counts[:, 0], law.moments.mean[1]),
        (counts[:, 65] ** 2, law.moments.square[0]), (counts[:, 0] ** 2, law.moments.square[1]),
        (counts[:, 65] * counts[:, 0], law.moments.product[0, 1]), (own[plain], law.given(False).mean[2]),
        (own[~plain], law.given(True).mean[1]), (batch.targets.numpy()[:, 0] == 65, ALPHA),
    ]  # fmt: skip
    for values, truth in measured:
        assert abs(values.mean() - truth) < 5 * values.std() / np.sqrt(len(values))
    assert (batch.inputs[:, -1] == 0).all()


@pytest.mark.parametrize(
    ("field", "values"), [("tokens", (3, 5, 0.5)), ("length", (5, 2, 0.5)), ("alpha", (5, 5, 1.0))]
)
def test_laws_that_cannot_be(field, values):
    with pytest.raises(SpecError, match=f"^{field}: "):
        UniformRecall(*values)
