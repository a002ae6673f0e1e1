import torch

from anchorlab.studies.anchor.recitation import compare


def test_sizes_are_compared_where_neither_nothing_nor_all_is_learned():
    # Three sizes of two members: at chance, in between with forward ahead, both solved.
    forward = torch.tensor([[0.02, 0.04], [0.5, 0.9], [1.0, 1.0]])
    backward = torch.tensor([[0.06, 0.02], [0.3, 0.7], [0.99, 0.99]])
    found = compare(forward, backward)
    assert found.judged.tolist() == [False, True, False]
    assert found.wins.tolist() == [1.0]
    torch.testing.assert_close(found.difference, torch.tensor([0.2, 0.2]))


def test_a_size_is_won_by_the_mean_over_seeds_and_a_tie_is_no_win():
    forward = torch.tensor([[0.5, 0.5], [0.2, 0.9], [0.9, 0.2]])
    backward = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.6, 0.6]])
    found = compare(forward, backward)
    assert found.wins.tolist() == [0.0, 1.0, 0.0]
    torch.testing.assert_close(found.difference, torch.tensor([0.0, 0.0]))  # (0 - 0.3 + 0.3) and (0 + 0.4 - 0.4) by 3


def test_nothing_is_judged_where_nothing_is_learned():
    found = compare(torch.zeros(4, 3), torch.zeros(4, 3))
    assert not found.judged.any() and len(found.wins) == 0
