"""The scored positions, and what training scores beside the answer, by hand."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import Batch, Scoring


def scored_batch(targets, answers, positions) -> Batch:
    rivals = {"other": torch.tensor([[5], [6]]).expand(2, len(positions))}
    inputs = torch.tensor([[20, 21, 22, 23], [30, 31, 32, 33]])
    return Batch(inputs, targets, answers, positions, "train", rivals=rivals)


def test_positions_count_from_either_end():
    assert Scoring(positions=(0, -1, -2)).within(9) == (0, 8, 7)


@pytest.mark.parametrize("positions", [(9,), (-10,), (0, -9), (1, 1), ()])
def test_impossible_positions(positions):
    with pytest.raises(SpecError, match="positions"):
        Scoring(positions=positions).within(9)


def test_every_token_is_written_only_where_it_is_chosen():
    """Runs of the answer alone keep their addresses."""
    assert Scoring().model_dump(mode="json") == {"positions": [-1]}
    chosen = Scoring(every_token=True)
    assert chosen.model_dump(mode="json") == {"positions": [-1], "every_token": True}
    assert Scoring.parse(chosen.model_dump(mode="json")) == chosen != Scoring()


def test_training_scores_the_following_tokens_beside_the_answer():
    batch = scored_batch(torch.tensor([[70], [80]]), torch.tensor([[71], [80]]), torch.tensor([3]))
    trained = Scoring(every_token=True).for_training(batch, 100)
    assert trained.positions.tolist() == [0, 1, 2, 3]
    assert trained.targets.tolist() == [[21, 22, 23, 70], [31, 32, 33, 80]]
    assert trained.answers.tolist() == [[21, 22, 23, 71], [31, 32, 33, 80]]
    assert trained.rivals["other"].tolist() == [[-1, -1, -1, 5], [-1, -1, -1, 6]]
    assert trained.inputs is batch.inputs and trained.weights is None
    assert Scoring().for_training(batch, 100) is batch


def test_an_answer_takes_the_place_of_a_following_token():
    answers = torch.tensor([[70, 70], [80, 80]])
    trained = Scoring(positions=(-1, 1), every_token=True).for_training(
        scored_batch(answers, answers, torch.tensor([3, 1])), 100
    )
    assert trained.positions.tolist() == [0, 2, 3, 1]
    assert trained.targets.tolist() == [[21, 23, 70, 70], [31, 33, 80, 80]]
    first = Scoring(positions=(0,), every_token=True).for_training(
        scored_batch(answers[:, :1], answers[:, :1], torch.tensor([0])), 100
    )
    assert first.positions.tolist() == [1, 2, 0]  # nothing follows the last token
    assert first.targets.tolist() == [[22, 23, 70], [32, 33, 80]]


def test_following_tokens_are_certain_where_targets_are_distributions():
    soft = torch.full((2, 1, 40), 1 / 40)
    trained = Scoring(every_token=True).for_training(scored_batch(soft, soft, torch.tensor([3])), 40)
    assert trained.targets.shape == (2, 4, 40) and trained.targets.dtype == soft.dtype
    assert trained.targets[:, :3].argmax(dim=-1).tolist() == [[21, 22, 23], [31, 32, 33]]
    assert trained.targets[:, :3].amax(dim=-1).eq(1).all() and torch.equal(trained.targets[:, 3:], soft)
