"""Splits by range and by residue, on accuracies and answers made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor import identity, range_split
from anchorlab.papers.anchor.range_split import RANGE, RESIDUE, STUDY, Seen, answers_in_range, experiments
from tests.papers.hand_made_runs import judged, seen_by_hand, values_of

SETTING = replace(identity.TWO_LAYERS, seeds=2)


def seen(test, train=((1.0, 0.96), (1.0, 1.0)), in_range=(0.0, 0.02)):
    both = {name: dict(zip((RANGE, RESIDUE), map(torch.tensor, rows), strict=True)) for name, rows in test.items()}
    trained = dict(zip((RANGE, RESIDUE), map(torch.tensor, train), strict=True))
    answers = {RANGE: torch.tensor(in_range), RESIDUE: torch.full((2,), 9.0)}
    return seen_by_hand(Seen, train=trained, test=both["test"], in_range=answers)


def test_values_of_accuracies_made_by_hand():
    values = values_of(STUDY, seen({"test": ((0.0, 0.1), (1.0, 0.9))}))
    assert values == pytest.approx({"fits": 0.98, "range-fails": 0.05, "residue-works": 0.9, "never-said": 0.01})
    unfit = judged(STUDY, seen({"test": ((0.0, 0.1), (1.0, 0.9))}, train=((1.0, 1.0), (0.9, 0.94))))
    assert unfit == {"fits": pytest.approx(0.92), "range-fails": None, "residue-works": None, "never-said": None}


def test_the_splits_hold_out_a_range_at_every_place_or_one_residue_of_eight_and_the_second_is_the_identity_study_s():
    by_range, by_residue = experiments(SETTING).values()
    assert by_residue.cell == identity.experiment(SETTING).cell
    for split, inside in (("train", False), ("test", True)):
        batch = by_range.task.sample(split, 500, seed=0)
        keys = batch.inputs.gather(1, batch.latents["key_positions"][:, :1])
        assert ((keys >= 91) & (keys <= 100)).all() if inside else (keys <= 90).all()
        assert len(batch.latents["key_positions"][:, 0].unique()) == 8


def test_answers_are_counted_at_the_last_position_of_the_test_of_each_member(monkeypatch):
    said = torch.tensor([[91, 100, 90, 101], [5, 95, 20, 99]])  # [member sequence]
    output = torch.zeros(2, 4, 9, 201)
    output[:, :, :-1, 95] = 2.0  # before the last position, which is not scored
    output[:, :, -1].scatter_(-1, said.unsqueeze(-1), 1.0)
    monkeypatch.setattr(range_split, "look", lambda ensemble, inputs: {"output": output})

    class Run:
        experiment = experiments(SETTING)[RANGE]

        def ensemble(self):
            return None

    assert answers_in_range(Run()).tolist() == [0.5, 0.5]
