"""What outputs hold between the anchors and after them, on outputs written by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor import working_memory
from anchorlab.tasks import Batch, task
from tests.papers.hand_made_outputs import hand_made_ensemble
from tests.papers.hand_made_runs import run_ending, seen_by_hand, values_of

# Eight tokens each. The key 30, anchor 2 at 2 and 4 at 5; 40, 1 at 1 and 3 at 2; 70, 1 at 1 and 3 at 5.
INPUTS = torch.tensor([[50, 30, 2, 51, 52, 4, 53, 54], [40, 1, 3, 60, 61, 62, 63, 64], [70, 1, 60, 61, 62, 3, 63, 64]])
ANSWERS = torch.tensor([[29], [40], [70]])  # 30 + 1 - 2, and the others as they are
BATCH = Batch(
    inputs=INPUTS,
    targets=ANSWERS,
    answers=ANSWERS,
    positions=torch.tensor([7]),
    split="test",
    latents={
        "anchors": torch.tensor([[2, 4], [1, 3], [1, 3]]),
        "anchor_positions": torch.tensor([[2, 5], [1, 2], [1, 5]]),
        "key_positions": torch.tensor([[1], [0], [0]]),
    },
)
HOLDS = [[9, 9, 31, 31, 31, 29, 29, 29], [9, 40, 40, 40, 40, 40, 40, 40], [9, 70, 70, 70, 70, 70, 70, 70]]
# the first key moved by 7: one value, but not ours
OTHER = [[9, 9, 37, 37, 37, 29, 29, 29], [9, 9, 40, 40, 40, 40, 40, 40], [9, 70, 70, 70, 70, 70, 70, 70]]
WAVERS = [[9, 9, 31, 29, 31, 31, 29, 29], [9, 9, 7, 7, 7, 40, 40, 40], [9, 71, 70, 71, 71, 70, 70, 70]]
HELD = ("one-value", "function-of-key", "own-operation", "answer-kept")


def seen(outputs, accuracy, batch=BATCH):
    return seen_by_hand(
        working_memory.Seen, outputs=torch.as_tensor(outputs), batch=batch, accuracy=torch.tensor(accuracy)
    )


def share(where, of):
    return where[:, of].float().mean(dim=1)


def test_the_anchors_and_the_papers_three_examples_are_of_the_task():
    of = task("anchor/working-memory", length=8)
    assert of.oracle(INPUTS).answers.tolist() == ANSWERS.tolist()
    assert (of.placement.choices["A"], of.placement.choices["B"]) == (working_memory.FIRST, working_memory.SECOND)
    keys = torch.arange(30, 40)
    for anchor, added in working_memory.ADDS.items():
        assert of.operations[anchor](keys.numpy()).tolist() == (keys + added).tolist()
    printed = {
        "43 67 99 90 63 46 2 94 23 21 50 54 69 55 64 56 32 4 89 94": 45,
        "70 61 92 27 78 66 43 63 33 36 85 62 50 1 59 32 79 79 4 33": 48,
        "76 37 40 2 23 47 92 43 70 77 95 72 38 20 51 3 62 40 60 38": 41,
    }
    inputs = torch.tensor([[int(token) for token in one.split()] for one in printed])
    assert task("anchor/working-memory").oracle(inputs).answers[:, 0].tolist() == list(printed.values())


def test_the_first_stretch_and_values_aligned_at_the_second_anchor():
    assert working_memory.first_stretch(BATCH, 1)[:2].int().tolist() == [
        [0, 0, 1, 1, 1, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0, 0],
    ]
    assert working_memory.first_stretch(BATCH, 3).sum(dim=1).tolist() == [3, 0, 4]
    values = torch.tensor([[[1, 1, 0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 0, 1, 1, 1], [1] * 8]]).bool()
    means = working_memory.around(values, BATCH, torch.tensor([[True, True, False]]), 3)
    # Before: the first sequence from its first anchor on, the second at one place alone.
    torch.testing.assert_close(means, torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0, 0.5, 1.0]]))
    nothing = working_memory.around(values, BATCH, torch.tensor([[False, True, False]]), 3)
    assert nothing.isnan().tolist() == [[True, True, False, False, False, False, False]]


def test_members_that_hold_the_result_another_value_or_waver():
    held = seen([HOLDS], [1.0])
    assert held.common.tolist() == [1.0] and held.whole.tolist() == [1.0]
    assert held.constants.tolist() == [[0, 1]] and share(held.moved, held.stretch).tolist() == [1.0]
    assert held.answered.tolist() == [1.0]
    assert values_of(working_memory.STUDY, held) == dict.fromkeys(HELD, 1.0)
    held = seen([OTHER, WAVERS], [0.92, 1.0])
    # The second sequence's stretch, of a single position, is too short to count.
    torch.testing.assert_close(held.common, torch.tensor([1.0, 5 / 7]))
    assert held.whole.tolist() == [1.0, 0.0]
    assert held.constants.tolist() == [[0, 7], [1, 1]]
    torch.testing.assert_close(share(held.moved, held.stretch), torch.tensor([1.0, 5 / 7]))
    torch.testing.assert_close(share(held.possible, held.stretch), torch.tensor([4 / 7, 4 / 7]))
    torch.testing.assert_close(held.answered, torch.tensor([1.0, 8 / 12]))  # of 3, 6 and 3 positions
    assert values_of(working_memory.STUDY, held) == {
        "one-value": pytest.approx(6 / 7), "function-of-key": pytest.approx(6 / 7),
        "own-operation": 0.5, "answer-kept": pytest.approx(10 / 12),
    }  # fmt: skip
    one = values_of(working_memory.STUDY, seen([HOLDS, WAVERS], [0.9, 0.89]))
    assert [one[name] for name in HELD] == [1, 1, 1, 1]
    none = values_of(working_memory.STUDY, seen([HOLDS, WAVERS], [0.8, 0.5]))
    assert none == dict.fromkeys(HELD)


def holding(inputs):
    """The key under the first anchor from there on, and the answer from the second on."""
    position = torch.arange(inputs.shape[1])
    first, second = (torch.isin(inputs, torch.tensor(anchors)).int().argmax(dim=1) for anchors in ((1, 2), (3, 4)))
    rows = torch.arange(len(inputs))
    held = inputs[rows, first - 1] + (inputs[rows, first] == 2).int()
    answer = held - 2 * (inputs[rows, second] == 4).int()
    return torch.where(position < second[:, None], held[:, None], answer[:, None])


def test_outputs_and_accuracy_are_read_from_the_test_split():
    (experiment,) = working_memory.experiments(replace(working_memory.QUICK, seeds=2)).values()
    ensemble = hand_made_ensemble([holding, lambda inputs: inputs])
    run = run_ending(experiment, (0.97, 0.6), (0.1, 1.0), {1800: ensemble})
    read_off = working_memory.STUDY.see([run], working_memory.QUICK)
    assert read_off.batch.split == "test"
    assert read_off.accuracy.tolist() == pytest.approx([0.97, 0.6])
    assert read_off.learned.tolist() == [True, False]
    assert read_off.common[0] == 1 and read_off.common[1] < 0.5
    assert read_off.constants[0].tolist() == [0, 1]
    assert read_off.answered[0] == 1 and values_of(working_memory.STUDY, read_off)["function-of-key"] == 1


def test_the_intermediate_result_and_the_answer_are_drawn_where_they_differ():
    """A member may learn to subtract 2 at the first anchor, as if anchor 4 were sure to come: only after anchor 3 the
    answer is another number then. One curve would lie over the other on the sequences with anchor 4."""
    of = task("anchor/working-memory")
    batch = of.sample("test", 400, seed=0)
    answers, position = batch.answers[:, :1], torch.arange(batch.inputs.shape[1])
    first, second = (batch.latents["anchor_positions"][:, [place]] for place in (0, 1))
    guessed = holding(batch.inputs).gather(1, first) - 2
    early = torch.where((position >= first) & (position < second), guessed, answers)
    read_off = seen(torch.stack([early, holding(batch.inputs)]), [1.0, 1.0], batch)
    assert read_off.constants.tolist() == [[-2, -1], [0, 1]]
    with_anchor_3 = batch.latents["anchors"][:, 1] == 3
    assert read_off.changing.tolist() == [with_anchor_3.tolist(), (~with_anchor_3).tolist()]
    moved, answered = (
        working_memory.around(one, batch, read_off.changing, 2) for one in (read_off.moved, read_off.right)
    )
    assert moved.tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0]] * 2
    assert answered.tolist() == [[0.0, 0.0, 1.0, 1.0, 1.0]] * 2
