import torch

from anchorlab.studies.anchor.working_memory import around, first_stretch, possible_answers, read_held
from anchorlab.tasks import Batch, task

# Eight tokens: the key 30 and anchor 1 at 1 and 2, anchor 4 at 5; then the key 40, anchor 2 at 1 and anchor 3 at 2.
INPUTS = torch.tensor([[50, 30, 1, 51, 52, 4, 53, 54], [40, 2, 3, 60, 61, 62, 63, 64]])
ANSWERS = torch.tensor([[29], [40]])  # 30 + 1 - 2, and 40 as it is
POSSIBLE = torch.tensor([[31, 40], [29, 38]])  # under 3, which changes nothing, and under 4, which takes 2 away
WORKING_MEMORY = task("anchor/working-memory", length=8)


def batch() -> Batch:
    return Batch(
        inputs=INPUTS,
        targets=ANSWERS,
        answers=ANSWERS,
        positions=torch.tensor([7]),
        split="test",
        latents={
            "anchors": torch.tensor([[1, 4], [2, 3]]),
            "anchor_positions": torch.tensor([[2, 5], [1, 2]]),
            "key_positions": torch.tensor([[1], [0]]),
        },
    )


def test_the_hand_made_sequences_are_of_the_task():
    answer = WORKING_MEMORY.oracle(INPUTS)
    assert answer.answers.tolist() == ANSWERS.tolist()
    assert possible_answers(WORKING_MEMORY, batch()).tolist() == POSSIBLE.tolist()


def test_the_first_stretch_ends_before_the_second_anchor():
    assert first_stretch(batch()).int().tolist() == [[0, 0, 1, 1, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]]


def test_a_model_that_holds_the_intermediate_result_and_then_the_answer():
    outputs = torch.tensor([[[9, 9, 31, 31, 31, 29, 29, 29], [9, 40, 40, 40, 40, 40, 40, 40]]])
    held = read_held(outputs, batch(), (1,), POSSIBLE)
    assert held.constant.tolist() == [1.0] and held.whole.tolist() == [1.0]
    assert held.offsets.tolist() == [[1]] and held.intermediate.tolist() == [1.0]
    assert held.answered.tolist() == [1.0]


def test_members_that_hold_another_value_or_waver():
    other = [[9, 9, 37, 37, 37, 29, 29, 29], [9, 9, 40, 40, 40, 40, 40, 40]]  # the key moved by 7: one value, not ours
    wavering = [[9, 9, 31, 29, 31, 31, 29, 29], [9, 9, 7, 7, 7, 40, 40, 40]]
    held = read_held(torch.tensor([other, wavering]), batch(), (1,), POSSIBLE)
    # The second sequence's stretch, of a single position, is too short to count.
    torch.testing.assert_close(held.constant, torch.tensor([1.0, 2 / 3]))
    assert held.whole.tolist() == [1.0, 0.0]
    assert held.offsets.tolist() == [[7], [1]]
    torch.testing.assert_close(held.intermediate, torch.tensor([1.0, 2 / 3]))
    assert held.possible.tolist() == [0.0, 1.0]
    torch.testing.assert_close(held.answered, torch.tensor([1.0, 5 / 9]))  # of 3 and 6 positions


def test_values_are_aligned_at_the_second_anchor():
    values = torch.tensor([[[1, 1, 0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 0, 1, 1, 1]]])
    means = around(values, batch(), torch.tensor([True, True]), 3)
    # Before: the first sequence from its first anchor on, the second at one place alone.
    torch.testing.assert_close(means, torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0, 0.5, 1.0]]))
    nothing = around(values, batch(), torch.tensor([False, True]), 3)
    assert nothing.isnan().tolist() == [[True, True, False, False, False, False, False]]
