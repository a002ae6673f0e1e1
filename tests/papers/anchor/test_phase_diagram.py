"""What an unseen pair is answered by, over depth and initialisation, on grids made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor.phase_diagram import QUICK, STUDY, Cells, experiments, mislabelled
from anchorlab.papers.anchor.settings import at_every_gamma
from tests.papers.hand_made_runs import HandMadeRun, results_of, seen_by_hand, values_of

GAMMAS = (0.5, 0.8)


def cells(composed: list[list[float]], symmetric: list[list[float]], data: list[list[float]]) -> Cells:
    """Of one depth per list, two γ and one seed."""
    shares = {"composed": composed, "symmetric": symmetric, "data": data}
    shape = {name: torch.tensor(values).unsqueeze(-1) for name, values in shares.items()}
    return seen_by_hand(Cells, depths=tuple(range(2, 2 + len(composed))), gammas=GAMMAS, **shape)


def test_a_clear_diagram_of_members_that_learned():
    seen = cells([[0.1, 0.9], [0.0, 1.0]], [[0.8, 0.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]])
    expected = {"small-composes": 0.95, "large-symmetric": 0.9, "initialisation-decides": 0.9, "learned": 1.0}
    assert values_of(STUDY, seen) == pytest.approx(expected)
    assert [seen.answered_by(0, 0), seen.answered_by(0, 1)] == ["symmetric", "composed"]
    assert cells([[0.2, 0.0]], [[0.2, 0.0]], [[1.0, 1.0]]).answered_by(0, 0) == "otherwise"
    seen = cells([[0.1, 0.2], [0.3, 1.0]], [[0.8, 0.0], [0.4, 0.0]], [[1.0, 0.5], [1.0, 0.95]])
    # initialisation at depth 3 alone
    expected = {"small-composes": 1.0, "large-symmetric": 0.6, "initialisation-decides": 0.7, "learned": 0.75}
    assert values_of(STUDY, seen) == pytest.approx(expected)
    assert seen.answered_by(0, 1) == "not learned"
    assert seen.answered_by(1, 0) == "symmetric"  # 0.4 against 0.3 and 0.3 otherwise
    assert values_of(STUDY, cells([[0.0, 0.0]], [[0.0, 0.0]], [[0.1, 0.1]])) == {
        "small-composes": None, "large-symmetric": None, "initialisation-decides": None, "learned": 0.0,
    }  # fmt: skip


def test_a_seed_is_one_unit_of_all_depths():
    """Two depths, two γ and two seeds, of which the second learns at the greater depth alone."""
    composed = torch.tensor([[[0.1, 0.0], [0.9, 0.0]], [[0.3, 0.2], [0.5, 0.4]]])
    data = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]])
    seen = seen_by_hand(Cells, depths=(2, 3), gammas=GAMMAS, composed=composed, symmetric=1 - composed, data=data)
    found = results_of(STUDY, seen)
    assert found["small-composes"].units == pytest.approx((0.7, 0.4))
    assert found["small-composes"].value == pytest.approx(0.55)  # and not 0.6, of three runs
    assert found["initialisation-decides"].units == pytest.approx(((0.8 + 0.2) / 2, 0.2))
    assert found["initialisation-decides"].value == pytest.approx((0.8 + (0.45 - 0.25)) / 2)
    assert found["learned"].units == (1.0, 0.5)


def test_the_grid_is_read_by_depth_rate_and_seed():
    grown = at_every_gamma((0.5, 0.8), 2)
    assert list(zip(grown.seeds, grown.gamma.all, strict=True)) == [(1000, 0.5), (1001, 0.5), (1000, 0.8), (1001, 0.8)]
    setting = replace(QUICK, gammas=GAMMAS)
    runs = []
    for experiment, tens in zip(experiments(setting).values(), (0.1, 0.5), strict=True):
        ends = [[0.0, tens + member / 100] for member in range(4)]
        values = {
            ("test on task", "agrees: composed"): ends,
            ("test on task", "agrees: symmetric"): [[0.0, 1 - end] for _, end in ends],
            ("test on data", "accuracy"): [[0.0, 0.9], [0.0, 0.89], [0.0, 1.0], [1.0, 0.2]],
        }
        runs.append(HandMadeRun(experiment, [0, 2200], values))
    seen = STUDY.see(runs, setting)
    expected = torch.tensor([[[0.1, 0.11], [0.12, 0.13]], [[0.5, 0.51], [0.52, 0.53]]])  # [depth gamma seed]
    torch.testing.assert_close(seen.composed, expected)
    torch.testing.assert_close(seen.symmetric, 1 - expected)
    assert seen.learned.tolist() == [[[True, False], [True, False]]] * 2
    assert seen.at(seen.composed, 0.8)[:, 0].tolist() == pytest.approx([0.12, 0.52])


def test_what_the_rivals_answer():
    batch = mislabelled().sample("test on task", 50, seed=0)
    keys = batch.latents["keys"][:, 0]
    assert torch.equal(batch.answers[:, 0], keys - 10)
    assert torch.equal(batch.rivals["composed"][:, 0], keys - 10)
    assert torch.equal(batch.rivals["symmetric"][:, 0], keys - 6)
    trained = mislabelled().sample("train", 2000, seed=0)
    turned = (trained.latents["anchors"] == torch.tensor([4, 3])).all(dim=1)
    assert torch.equal(trained.answers[turned, 0], trained.latents["keys"][turned, 0] - 6)
