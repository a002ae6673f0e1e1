"""Reading runs, and what recurs in figures and tables."""

import polars as pl
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.findings import Line, Reference
from anchorlab.models import DecoderSpec
from anchorlab.studies import kit
from anchorlab.studies.claim import spread
from anchorlab.tasks import task
from anchorlab.training import Experiment, FixedSample, Members, Recipe, TrainedRun
from tests.papers.hand_made_runs import HandMadeRun


@pytest.mark.parametrize(("values", "words"), [([0.5], "one value"), ([0.25, 0.5, 0.125], "0.125 to 0.5 over 3 seeds")])
def test_spread_in_words(values, words):
    assert spread(torch.tensor(values)) == words


class Measured(TrainedRun):
    """A run whose second member stopped early."""

    def __init__(self):
        rows = [(0, 0, 0.1), (1, 0, 0.2), (1, 5, 0.6), (0, 10, 0.9)]
        more = [("7", 0, 0.3), ("7", 1, 0.3), ("8", 1, 0.4)]  # groups of the sequences, read only by name
        self.metrics = pl.DataFrame(
            [(member, step, "test", "all", "none", "accuracy", value) for member, step, value in rows]
            + [(member, 20, "test", group, "none", "accuracy", value) for group, member, value in more],
            schema=["member", "step", "split", "group", "edit", "metric", "value"], orient="row",
        )  # fmt: skip
        self.experiment = Experiment(
            task("anchor/identity"), DecoderSpec(layers=1, width=4), Recipe(), Members(seeds=(0, 1))
        )

    def __repr__(self):
        return "a run"


def test_at_end():
    run = Measured()
    assert kit.at_end(run, "test", "accuracy").tolist() == pytest.approx([0.9, 0.6])
    with pytest.raises(SpecError, match=r"^metric: unknown metric 'loss'"):
        kit.at_end(run, "test", "loss")
    with pytest.raises(SpecError, match=r"^split: unknown split 'train'"):
        kit.at_end(Measured(), "train", "accuracy", group="7")
    with pytest.raises(SpecError, match=r"^accuracy: was measured for 1 of 2 members on test, edit none, group 8"):
        kit.at_end(run, "test", "accuracy", group="8")
    assert kit.at_end(run, "test", "accuracy", group="7").tolist() == pytest.approx([0.3, 0.3])


def test_curves_along_training_and_in_the_recipes_own_unit():
    steps, values = kit.along(Measured(), "test", "accuracy")
    assert steps == [0, 5, 10]
    assert values[:, 0].tolist() == pytest.approx([0.1, 0.2])
    assert values[1, 1] == pytest.approx(0.6)
    assert values[0, 1].isnan()
    steps, values = kit.along(Measured(), "test", "accuracy", group="8")
    assert steps == [20] and values[0].isnan().all()  # measured for the second member alone
    assert values[1].tolist() == pytest.approx([0.4])
    epochs, values = kit.along_units(epochs_run("a", [[0.0, 0.5, 1.0], [0.2, 0.5, 0.8]]), "test", "accuracy")
    assert epochs == [0, 2, 4]
    assert values[1].tolist() == pytest.approx([0.2, 0.5, 0.8])


def epochs_run(label: str, values) -> HandMadeRun:
    """Two seeds on 100 sequences in batches of 50: an epoch is two steps."""
    recipe = Recipe(data=FixedSample(size=100), batch=50, unit="epochs", duration=4)
    made = Experiment(task("anchor/identity"), DecoderSpec(layers=1, width=4), recipe, Members(seeds=(0, 1)), label)
    return HandMadeRun(made, (0, 4, 8), {("test", "accuracy"): values, ("train", "loss"): values})


def test_training_curves_of_one_or_several_splits():
    run = epochs_run("a", [[0.0, 0.5, 1.0], [0.2, 0.5, 0.8]])
    made = kit.training_curves("t", {"one": run}, "test", references=[Reference("r", 0.3)])
    assert made.lines == (Line("one", (0, 2, 4), (0.1, 0.5, 0.9), (0, 0.5, 0.8), (0.2, 0.5, 1.0)),)
    assert (made.x_label, made.y_label, made.y_range) == ("epochs", "test accuracy", (0.0, 1.02))
    assert made.references == (Reference("r", 0.3),)
    loss = kit.training_curves("t", {"one": run}, "train", "loss", y_label="loss", log_y=True)
    assert (loss.y_range, loss.log_y) == ((None, None), True)
    run = epochs_run("a", [[0.0, 0.5, 1.0], [0.2, 0.5, 0.8]])
    run._values["train", "accuracy"] = [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    made = kit.split_curves("t", run, {"train": "training", "test": "unseen"})
    assert made.lines == (
        Line("training", (0, 2, 4), (0.5, 0.5, 0.5), (0, 0, 0), (1, 1, 1)),
        Line("unseen", (0, 2, 4), (0.1, 0.5, 0.9), (0, 0.5, 0.8), (0.2, 0.5, 1.0)),
    )
    assert (made.x_label, made.y_label, made.y_range) == ("epochs", "accuracy", (0.0, 1.02))


def test_curves_against_a_quantity_and_attention_maps():
    values = torch.tensor([[0.0, 1.0], [0.5, 2.0]])  # [member x]
    made = kit.curves_against("t", [1, 10], {"a": values}, x_label="x", y_label="y", log_x=True)
    assert made.lines == (Line("a", (1, 10), (0.25, 1.5), (0, 1), (0.5, 2)),)
    assert (made.log_x, made.log_y, made.y_range) == (True, False, (None, None))
    pattern = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    made = kit.attention_maps("t", {"layer 1": pattern}, ["a", "b"], caption="c", seed=7)
    assert made.seeds == "7"
    assert made.maps[0][0].values == ((1.0, 0.0), (0.25, 0.75))
    assert made.maps[0][0].row_ticks == made.maps[0][0].column_ticks == ("a", "b")
    assert made.value_range == (0.0, 1.0)


def test_tables_by_seed_and_from_columns():
    made = kit.seed_table("t", "c", (3, 7), {"head": torch.tensor([1, 2]), "mass": torch.tensor([0.5, torch.nan])})
    assert made.columns == ("seed", "head", "mass")
    assert made.rows == ((3, 1, 0.5), (7, 2, None))
    assert isinstance(made.rows[0][1], int)
    with pytest.raises(ValueError):
        kit.seed_table("t", "c", (3,), {"head": torch.tensor([1, 2])})
    made = kit.column_table("t", "c", {"name": ["a", "b"], "value": torch.tensor([0.5, torch.inf]), "count": (1, None)})
    assert made.columns == ("name", "value", "count")
    assert made.rows == (("a", 0.5, 1), ("b", None, None))
