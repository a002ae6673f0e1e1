import math

import pytest
import torch

from anchorlab.studies.anchor.composite import quick_experiments
from anchorlab.studies.anchor.composite_outputs import first_reached, read_outputs
from anchorlab.tasks import Batch

# Two pairs of anchors, 1: +5 and 2: -2; keys 40 and 50 at positions 0 and 1 of five.
INPUTS = torch.tensor([[40, 1, 2, 60, 61], [50, 1, 2, 60, 61], [70, 40, 2, 1, 61], [71, 50, 2, 1, 61]])
ANSWERS = torch.tensor([43, 53, 43, 53])
BATCH = Batch(
    inputs=INPUTS,
    targets=ANSWERS[:, None],
    answers=ANSWERS[:, None],
    positions=torch.tensor([4]),
    split="test on data",
    group=torch.tensor([0, 0, 1, 1]),
    groups=("1,2", "2,1"),
    latents={
        "anchors": torch.tensor([[1, 2], [1, 2], [2, 1], [2, 1]]),
        "anchor_positions": torch.tensor([[1, 2], [1, 2], [2, 3], [2, 3]]),
        "key_positions": torch.tensor([[0], [0], [1], [1]]),
    },
)
TIDY = torch.tensor([[0, 50, 43, 43, 43], [0, 60, 53, 53, 53], [9, 0, 36, 43, 43], [0, 9, 46, 53, 53]])


def changed(row: int, position: int, token: int) -> torch.Tensor:
    outputs = TIDY.clone()
    outputs[row, position] = token
    return outputs


def test_a_tidy_model_has_one_sequence_per_pair():
    seen = read_outputs([BATCH], TIDY[None])
    assert seen.sequences[0].tolist() == [[10, -7, 0, 0], [10, -7, 0, 0], [-4, 7, 0, 0], [-4, 7, 0, 0]]
    assert seen.counts().tolist() == [[1, 1]] and seen.most_common().tolist() == [[1, 1]]
    assert seen.first.tolist() == [[10, 10, -4, -4]]  # both operations doubled, as Figure 6 has it
    assert seen.second.tolist() == [[3, 3, 3, 3]]
    assert seen.right.all() and seen.kept.all()


def test_an_unsteady_input_adds_a_sequence():
    seen = read_outputs([BATCH], torch.stack([TIDY, changed(1, 3, 99)]))
    assert seen.counts().tolist() == [[1, 1], [2, 1]]
    assert seen.most_common().tolist() == [[1, 1], [0.5, 1]]
    assert seen.kept.tolist() == [[True] * 4, [True, False, True, True]]
    assert seen.right.all()


def test_wrong_answers_do_not_count():
    seen = read_outputs([BATCH], changed(0, 4, 44)[None])
    assert seen.right.tolist() == [[False, True, True, True]]
    assert seen.counts().tolist() == [[1, 1]]
    nothing = read_outputs([BATCH], torch.zeros(1, 4, 5, dtype=torch.int64))
    assert nothing.counts().isnan().all()


def test_batches_stand_one_after_the_other():
    both = read_outputs([BATCH, BATCH], torch.cat([TIDY, TIDY])[None])
    assert len(both.batch) == 8 and both.counts().tolist() == [[1, 1]]


def test_first_step_above_the_level():
    values = torch.tensor([[0.1, 0.95, 0.8, 0.99], [0.0, 0.5, 0.9, 0.9]])
    assert first_reached([0, 10, 20, 30], values).tolist() == [10, math.inf]  # 0.9 itself is not above 0.9


@pytest.mark.parametrize("depth", [2, 10])
def test_one_depth_is_the_same_cell_as_in_the_sweep(depth):
    alone = quick_experiments(depths=(depth,))[0].cell.address
    assert alone in {experiment.cell.address for experiment in quick_experiments()}
