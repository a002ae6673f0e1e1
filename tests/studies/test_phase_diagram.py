import pytest
import torch

from anchorlab.studies.anchor.phase_diagram import Cells, measure, members, mislabelled

GAMMAS = (0.5, 0.8)


def cells(composed: list[list[float]], symmetric: list[list[float]], data: list[list[float]]) -> Cells:
    """Of one depth per list, two γ and one seed."""
    shape = [torch.tensor(values).unsqueeze(-1) for values in (composed, symmetric, data)]
    return Cells(tuple(range(2, 2 + len(composed))), GAMMAS, *shape)


def test_a_clear_diagram():
    seen = cells([[0.1, 0.9], [0.0, 1.0]], [[0.8, 0.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]])
    measured = {name: float(values.mean()) for name, values in measure(seen).items()}
    expected = {"small-composes": 0.95, "large-symmetric": 0.9, "initialisation-decides": 0.9, "learned": 1.0}
    assert measured == pytest.approx(expected)
    assert [seen.answered_by(0, 0), seen.answered_by(0, 1)] == ["symmetric", "composed"]


def test_members_that_did_not_learn_are_left_out():
    seen = cells([[0.1, 0.2], [0.3, 1.0]], [[0.8, 0.0], [0.4, 0.0]], [[1.0, 0.5], [1.0, 0.95]])
    measured = measure(seen)
    assert measured["small-composes"].tolist() == [1.0]
    assert measured["initialisation-decides"].tolist() == pytest.approx([0.7])  # depth 3 alone
    assert measured["learned"].tolist() == [1, 0, 1, 1]
    assert seen.answered_by(0, 1) == "not learned"
    assert seen.answered_by(1, 0) == "symmetric"  # 0.4 against 0.3 and 0.3 otherwise


def test_nothing_learned_is_nothing_measured():
    measured = measure(cells([[0.0, 0.0]], [[0.0, 0.0]], [[0.1, 0.1]]))
    assert [name for name, values in measured.items() if values is None] == [
        "small-composes",
        "large-symmetric",
        "initialisation-decides",
    ]
    assert measured["learned"].tolist() == [0, 0]


def test_other_answers_than_both():
    assert cells([[0.2, 0.0]], [[0.2, 0.0]], [[1.0, 1.0]]).answered_by(0, 0) == "otherwise"


def test_every_seed_stands_at_every_rate():
    grown = members((0.5, 0.8), 2)
    assert list(zip(grown.seeds, grown.gamma.all, strict=True)) == [(0, 0.5), (1, 0.5), (0, 0.8), (1, 0.8)]


def test_what_the_rivals_answer():
    batch = mislabelled().sample("test on task", 50, seed=0)
    keys = batch.latents["keys"][:, 0]
    assert torch.equal(batch.answers[:, 0], keys - 10)
    assert torch.equal(batch.rivals["composed"][:, 0], keys - 10)
    assert torch.equal(batch.rivals["symmetric"][:, 0], keys - 6)
    trained = mislabelled().sample("train", 2000, seed=0)
    turned = (trained.latents["anchors"] == torch.tensor([4, 3])).all(dim=1)
    assert torch.equal(trained.answers[turned, 0], trained.latents["keys"][turned, 0] - 6)
