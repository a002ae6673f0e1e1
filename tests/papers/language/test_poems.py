"""Poems put to speakers that know both directions, one, or neither."""

from itertools import pairwise

import pytest
import torch

from anchorlab.language.asking import LocalSpeaker, Manner, Said
from anchorlab.language.sample_text import poems
from anchorlab.papers.language import poems as study
from anchorlab.papers.pretrained.tiny import tiny_model
from tests.papers.hand_made_runs import judgements_of

SETTING = study.Setting("none", manner=Manner(chat=False, begun=True, tokens=24))
AFTER = {first: second for poem in poems() for first, second in pairwise(poem.lines)}
BEFORE = {second: first for first, second in AFTER.items()}


class Speaker:
    """Says the line that a function makes of the given line and of whether the next one is asked for."""

    name = "made"

    def __init__(self, says):
        self.says = says

    def say(self, requests, progress=None):
        texts = [request.turns[-1].text.split("\n") for request in requests]
        return [Said(f" {self.says(line, 'right after' in asked)}\nMore") for _, line, asked in texts]


def recited(says):
    return study.recite(Speaker(says), SETTING, lambda status: None)


def test_twenty_poems_of_eight_different_lines_from_before_1928():
    assert len(poems()) == len({poem.title for poem in poems()}) == 20
    for poem in poems():
        assert poem.year < 1928
        bare = [line.strip(study._AROUND).casefold() for line in poem.lines]
        assert len(set(bare)) == 8
        # no line begins another, so that a text begins with one of them at most
        assert not any(one != other and one.startswith(other) for one in bare for other in bare)


def test_a_question_has_the_other_lines_of_its_poem_as_candidates():
    tyger = poems()[0]
    forward, backward = (study.question(tyger, 1, name) for name in study.DIRECTIONS)
    assert (forward.answer, backward.answer) == ("What immortal hand or eye", "Tyger Tyger, burning bright")
    assert forward.candidates == backward.candidates
    assert len(forward.candidates) == 7 and "In the forests of the night" not in forward.candidates
    assert forward.text.split("\n")[1] == backward.text.split("\n")[1] == "In the forests of the night;"


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (
            lambda line, after: AFTER[line] if after else "I do not know",  # as the paper says of GPT-4
            {"forward-recited": (1, "agrees"), "backward-not-recited": (0, "agrees"), "forward-easier": (1, "agrees")},
        ),
        (
            lambda line, after: AFTER[line] if after else BEFORE[line],
            {
                "forward-recited": (1, "agrees"),
                "backward-not-recited": (1, "differs"),
                "forward-easier": (0, "differs"),
            },
        ),
        (
            lambda line, after: BEFORE[line],
            {
                "forward-recited": (0, "differs"),
                "backward-not-recited": (None, "not measured"),  # it may not know the poems
                "forward-easier": (None, "not measured"),
            },
        ),
    ],
)
def test_directions_are_told_apart(says, expected):
    found = judgements_of(study.STUDY, recited(says))
    for name, (value, verdict) in expected.items():
        assert found[name][0] == value
        assert found[name][1].startswith(verdict)


def test_lines_are_scored_against_their_prior_on_this_machine(monkeypatch):
    """A model that scores by nothing but the order of candidates is right where the right line comes first."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(study, "put", lambda speaker, questions, *rest, told, **more: [
        type("Answer", (), {
            "asked": type("Asked", (), {"right": False}),
            "likely": {"sum": True, study.SCORED: one.candidates[0] == one.answer},
        })
        for one in questions
    ])  # fmt: skip
    seen = study.recite(LocalSpeaker(tiny_model()), SETTING, lambda status: None)
    # of lines 2 to 7, the first line of the poem is right for the line before the second alone
    assert torch.equal(seen.told["backward"], torch.eye(6).bool()[0].expand(20, 6))
    assert not seen.told["forward"].any()
    assert study.forward_easier(seen).value == pytest.approx(-1 / 6)


def test_the_table_and_the_bars_show_both_directions():
    seen = recited(lambda line, after: AFTER[line] if after else "")
    analysis = study.STUDY.analysis(study.Observed(seen, None, "made"), SETTING)
    (bars,), (table,) = analysis.figures, analysis.tables
    assert bars.bars[0].values == (1.0, 0.0)
    assert bars.dashed == ()  # a server gives no likelihoods
    assert table.columns == ("poem", "forward, recited", "backward, recited")
    assert table.rows[0] == ("William Blake: The Tyger (1794)", 1.0, 0.0)
