"""The models that are handed out, and their ids."""

import pytest

from anchorlab.errors import SpecError
from anchorlab.rankings.models import MODELS, chosen, handed_out


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("identity/backup", ("identity/backup",)),
        ("identity", ("identity/backup", "identity/distractor", "identity/cancelling")),
        ("r*/backup", ("reading-comprehension/backup", "recall/backup", "retrieval/backup")),
        ("*", MODELS),
    ],
)
def test_patterns(pattern, found):
    assert chosen(pattern) == found


def test_there_are_three_of_each_of_nine():
    assert len(MODELS) == 27


@pytest.mark.parametrize(
    ("pattern", "told"),
    [("identiy", "did you mean 'identity'"), ("identity/plain", "plain ones need all of their units; choose among")],
)
def test_no_such_model(pattern, told):
    """A plain model needs every unit, so that no ranking of its units is wrong."""
    with pytest.raises(SpecError, match=told):
        chosen(pattern)


def test_an_id_is_the_same_whatever_the_pattern():
    every = {made.variant: name for name, made in handed_out("identity", seed=4)}
    assert sorted(every.values()) == ["identity-1", "identity-2", "identity-3"]
    for variant, name in every.items():
        ((again, _),) = handed_out(f"identity/{variant}", seed=4)
        assert again == name


def test_the_number_does_not_show_the_variant():
    first = {next(handed_out("identity", seed=seed))[1].variant for seed in range(12)}
    assert first == {"backup", "distractor", "cancelling"}
