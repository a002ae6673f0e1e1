import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import distinct_counts, mapping_sequences

INPUTS = torch.tensor(
    [
        [30, 3, 4, 50, 60],  # key 30 at the start
        [50, 60, 30, 3, 4],  # the same key, read late
        [60, 40, 3, 4, 50],
    ]
)
KEYS = torch.tensor([0, 2, 1])


def test_moves_by_hand():
    outputs = torch.tensor([[1, 26, 20, 20, 20], [1, 2, 7, 26, 20], [9, 9, 45, 38, 30]])
    expected = [[-4, -6, 0, 0], [-4, -6, 0, 0], [5, -7, -8, 0]]
    assert mapping_sequences(INPUTS, outputs, KEYS).tolist() == expected


def test_a_late_change_makes_another_sequence():
    outputs = torch.tensor([[0, 26, 20, 20, 20], [0, 0, 0, 26, 20], [0, 0, 36, 30, 30]])
    later = outputs.clone()
    later[0, 4] = 21
    assert distinct_counts(mapping_sequences(INPUTS, outputs, KEYS)).tolist() == [3]
    assert mapping_sequences(INPUTS, later, KEYS)[0].tolist() == [-4, -6, 0, 1]
    assert distinct_counts(mapping_sequences(INPUTS, later, KEYS)).tolist() == [2, 1]


def test_what_stands_before_the_key_does_not_count():
    outputs = torch.randint(0, 201, (3, 5), generator=torch.Generator().manual_seed(0))
    other = outputs.clone()
    for row, key in enumerate(KEYS.tolist()):
        other[row, : key + 1] = 7
    assert torch.equal(mapping_sequences(INPUTS, outputs, KEYS), mapping_sequences(INPUTS, other, KEYS))


def test_moves_add_up_to_the_last_output():
    outputs = torch.randint(0, 201, (4, 3, 5), generator=torch.Generator().manual_seed(1))  # four members
    moves = mapping_sequences(INPUTS, outputs, KEYS)
    assert moves.shape == (4, 3, 4)
    assert torch.equal(moves.sum(dim=-1) + torch.tensor([30, 30, 40]), outputs[:, :, -1])


def test_no_inputs_have_no_sequences():
    assert distinct_counts(torch.zeros(0, 4, dtype=torch.int64)).tolist() == []


def test_a_key_at_the_end_is_refused():
    with pytest.raises(SpecError, match=r"^key_positions: .*keep them within 0\.\.3"):
        mapping_sequences(INPUTS, INPUTS, torch.tensor([0, 4, 1]))
