"""Frequencies and losses of logits that are written as waves, against closed forms."""

import math

import pytest
import torch

from anchorlab import lens
from anchorlab.errors import SpecError

PRIME = 7
NUMBERS = torch.arange(PRIME)
FIRST, SECOND, OUTPUT = torch.meshgrid(NUMBERS, NUMBERS, NUMBERS, indexing="ij")
ANSWERS = (NUMBERS.unsqueeze(1) + NUMBERS) % PRIME


def wave(frequency, of, count=PRIME):
    return torch.cos(2 * math.pi * frequency * of.double() / count)


def right(frequency):
    """Logits that are highest at the sum, by one wave."""
    return wave(frequency, FIRST + SECOND - OUTPUT)


def only(*frequencies):
    return torch.isin(torch.arange(PRIME // 2 + 1), torch.tensor(frequencies))


@pytest.mark.parametrize("count", [7, 8])
def test_squared_norms_sum_to_the_squared_norm(count):
    values = torch.randn(2, count, 3, generator=torch.Generator().manual_seed(0))
    norms = lens.frequency_norms(values)
    assert norms.shape == (2, count // 2 + 1)
    torch.testing.assert_close(norms.square().sum(-1), values.double().square().sum((-2, -1)))


@pytest.mark.parametrize("count", [7, 8])
def test_a_wave_has_one_frequency_whatever_its_phase(count):
    # cos(w n) and cos(w n - 1) each have the squared norm p / 2, the constant and the alternating wave p
    numbers = torch.arange(count)
    phases = torch.stack([2 * math.pi * 2 * numbers / count, 2 * math.pi * 2 * numbers / count - 1], dim=1).cos()
    assert lens.frequency_norms(phases).tolist() == pytest.approx(
        [0, 0, math.sqrt(count), *[0] * (count // 2 - 2)], abs=1e-6
    )
    assert lens.frequency_norms(torch.ones(count, 1))[0] == pytest.approx(math.sqrt(count))
    if count == 8:
        assert lens.frequency_norms((-1.0) ** numbers.unsqueeze(1))[4] == pytest.approx(math.sqrt(8))


def test_the_mean_by_sum_keeps_waves_of_the_sum_and_nothing_of_the_difference():
    logits = right(2) + 3 * wave(2, FIRST - SECOND)
    sums, outputs = NUMBERS.unsqueeze(1), NUMBERS
    torch.testing.assert_close(lens.mean_by_sum(logits), wave(2, sums - outputs))
    assert lens.frequency_norms(lens.mean_by_sum(logits)).tolist() == pytest.approx([0, 0, PRIME / math.sqrt(2), 0])


def test_of_one_wave_the_restricted_loss_is_its_own_and_the_excluded_loss_that_of_a_guess():
    logits = 4 * right(2)
    own = math.log(sum(math.exp(4 * math.cos(2 * math.pi * 2 * n / PRIME)) for n in range(PRIME))) - 4
    assert lens.restricted_loss(logits, ANSWERS, only(2)).item() == pytest.approx(own)
    assert lens.excluded_loss(logits, ANSWERS, only(2)).item() == pytest.approx(math.log(PRIME))
    # and the other way round for a frequency that the logits do not have
    assert lens.restricted_loss(logits, ANSWERS, only(1, 3)).item() == pytest.approx(math.log(PRIME))
    assert lens.excluded_loss(logits, ANSWERS, only(1, 3)).item() == pytest.approx(own)


def test_the_constant_is_kept_in_both_and_everything_else_only_in_the_excluded_loss():
    constant = torch.tensor([0.0, 1, 2, 0, -1, 0, 3], dtype=torch.float64).expand(PRIME, PRIME, PRIME)
    others = wave(2, FIRST - SECOND + OUTPUT) + 2 * wave(1, FIRST + SECOND - OUTPUT) + wave(3, FIRST + 2 * OUTPUT)
    members = torch.stack([right(3) + constant + others, right(2) + constant])
    keys = torch.stack([only(3), only(0, 2)])

    def loss(logits):
        return torch.nn.functional.cross_entropy(logits.reshape(-1, PRIME), ANSWERS.flatten()).item()

    found = lens.restricted_loss(members, ANSWERS, keys)
    assert found.tolist() == pytest.approx([loss(right(3) + constant), loss(right(2) + constant)])
    found = lens.excluded_loss(members, ANSWERS, keys)
    assert found.tolist() == pytest.approx([loss(constant + others), loss(constant)])


def test_only_scored_pairs_count():
    """A model that has memorised some pairs and knows no wave: no frequency matters for these."""
    known = (FIRST[..., 0] == SECOND[..., 0]) & (FIRST[..., 0] < 3)
    table = 1e4 * torch.nn.functional.one_hot(ANSWERS, PRIME) * known.unsqueeze(-1)
    logits, spread = table.float(), torch.nn.functional.cross_entropy
    assert lens.excluded_loss(logits, ANSWERS, only(), known).item() == pytest.approx(0, abs=1e-6)
    assert lens.excluded_loss(logits, ANSWERS, only(), ~known).item() == pytest.approx(math.log(PRIME))
    # its mean by sum is 1e4 / 7 at the sums 0, 2 and 4 and 0 elsewhere, and with all frequencies that is what is left
    by_sum = torch.diag(torch.tensor([1e4 / 7, 0, 1e4 / 7, 0, 1e4 / 7, 0, 0]))
    found = lens.restricted_loss(logits, ANSWERS, only(1, 2, 3), known).item()
    assert found == pytest.approx(spread(by_sum[[0, 2, 4]], torch.tensor([0, 2, 4])).item(), abs=1e-6)
    assert lens.restricted_loss(logits, ANSWERS, only(1, 2, 3), ANSWERS == 1).item() == pytest.approx(math.log(PRIME))


def test_key_frequencies_are_the_fewest_that_reach_the_share():
    norms = torch.tensor([[9.0, 3.0, 0.0, 4.0], [0.0, 1.0, 2.0, 2.0]])  # 16 of 25 is 0.64, 8 of 9 is 0.89
    assert lens.key_frequencies(norms, 0.6).tolist() == [[False, False, False, True], [False, False, True, True]]
    assert lens.key_frequencies(norms, 0.9).tolist() == [[False, True, False, True], [False, True, True, True]]
    assert lens.key_frequencies(norms, 1).tolist() == [[False, True, False, True], [False, True, True, True]]
    assert not lens.key_frequencies(torch.tensor([[5.0, 0, 0], [1.0, 1, math.nan], [1.0, math.inf, 1]])).any()


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lens.key_frequencies(torch.ones(3), 0), "share: 0 is not a share"),
        (lambda: lens.mean_by_sum(torch.zeros(3, 4, 3)), r"logits: have shape \(3, 4, 3\)"),
        (lambda: lens.restricted_loss(right(1), ANSWERS, only(1)[1:]), "keys: .*4 frequencies"),
        (lambda: lens.excluded_loss(right(1), ANSWERS, only(1).long()), "keys: are torch.int64"),
        (lambda: lens.excluded_loss(right(1), ANSWERS[:5], only(1)), r"answers: have shape \(5, 7\); .*\(7, 7\)"),
        (lambda: lens.excluded_loss(right(1), ANSWERS, only(1), ANSWERS[:1] == 1), "scored: have shape"),
        (lambda: lens.excluded_loss(right(1), ANSWERS, only(1), ANSWERS == 9), "scored: names no pair"),
        (lambda: lens.excluded_loss(right(1), ANSWERS, only(1), 1 * (ANSWERS == 1)), r"scored: are torch\.int64"),
    ],
)
def test_one_line_errors(call, message):
    with pytest.raises(SpecError, match=message):
        call()
