import importlib.util
import re
from pathlib import Path

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.findings import LineFigure, MapFigure
from anchorlab.models import DecoderSpec
from anchorlab.runs import Store
from anchorlab.studies import kept_findings, quick_recipe, run_study, sweep_study
from anchorlab.studies.kit import at_end
from anchorlab.studies.training_sweep import quantity
from anchorlab.training import Evaluation, FixedSample, Members, Recipe, TrainedRun

MODEL = DecoderSpec(layers=1, heads=1, width=4, head_width=4)
RECIPE = Recipe(data=FixedSample(size=20), batch=10, duration=2, evaluation=Evaluation(size=20))


def grid(**changes):
    arguments = {"task": "anchor/identity", "model": MODEL, "recipe": RECIPE, "seeds": (0, 1), **changes}
    return list(sweep_study(**arguments).experiments_of("quick"))


@pytest.mark.parametrize("name", ["evaluations", "checkpoints"])
def test_a_quick_recipe_without_evaluations_or_checkpoints_is_refused(name):
    with pytest.raises(SpecError, match=f"^{name}: 0 is not a number along training; give 1 or more$"):
        quick_recipe(100, **{name: 0})


def test_paths_make_a_grid_and_what_members_have_is_given_to_each():
    one, two = grid(vary={"model.layers": (1, 2)})
    assert (one.model, two.model) == (MODEL, MODEL.replace(layers=2))
    assert one.task == two.task and one.recipe == two.recipe and one.members == two.members
    (one,) = grid(vary={"members.initialisation_scale": (0.5,)})
    assert one.members.initialisation_scale == (0.5, 0.5)
    (drawn,) = grid(vary={"members.gamma.all": (0.8,)}, model=MODEL.replace(initialisation="gamma"))
    assert drawn.members.gamma.all == (0.8, 0.8)
    points = grid(vary={"model.layers": (1, 2), "model.heads": (1, 2, 3)})
    assert [(one.model.layers, one.model.heads) for one in points] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    members = Members(seeds=(3, 4), learning_rate=(0.1, 0.2))
    assert all(one.members == members for one in grid(vary={"model.layers": (1, 2)}, seeds=members))
    assert quantity("recipe.optimiser.learning_rate") == "learning rate"
    assert quantity("members.gamma.all") == "gamma"
    with pytest.raises(SpecError, match="metric: unknown metric 'acuracy'; did you mean 'accuracy'"):
        grid(vary={"model.layers": (1, 2)}, metric="acuracy")


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("model.heads", 2, lambda one: one.model.heads),
        ("recipe.batch", 5, lambda one: one.recipe.batch),
        ("recipe.data.size", 30, lambda one: one.recipe.data.size),
        ("recipe.optimiser.weight_decay", 0.5, lambda one: one.recipe.optimiser.weight_decay),
        ("model.initialisation", "gamma", lambda one: one.model.initialisation),
        ("task.placement.length", 7, lambda one: one.task.placement.length),
    ],
)
def test_paths_reach_every_part(path, value, read):
    assert [read(one) for one in grid(vary={path: (value,)})] == [value]


@pytest.mark.parametrize(
    ("vary", "field"),
    [
        ({}, "vary"),
        ({"model.width": range(1, 102), "recipe.batch": range(1, 101)}, "vary: makes 10100 cells"),
        ({"model.layers": ()}, r"vary\.model\.layers"),
        ({"model.layers": (1, 1)}, r"vary\.model\.layers"),
        ({"model.layers": (1, 2, 1.0)}, r"vary\.model\.layers: holds a value twice; give each once"),
        ({"members.gamma": ([1], [1.0])}, r"vary\.members\.gamma: holds a value twice"),
        ({"model.layers": 3}, r"vary\.model\.layers: holds no values; give a few, such as \(1, 2, 4\)"),
        ({"model.layers": torch.tensor([1, 2])}, r"vary\.model\.layers: holds no values; give a few"),
        ({"layers": (1,)}, r"vary\.layers"),
        ({"model": (1,)}, r"vary\.model"),
        ({"model.layer": (1,)}, r"vary\.model\.layer: unknown field 'layer'"),
        ({"recipe.optimizer.learning_rate": (1e-3,)}, r"vary\.recipe\.optimizer"),
        ({"model.heads": (0,)}, r"vary\.model\.heads"),
    ],
)
def test_quantities_that_make_no_sweep_are_named(vary, field):
    with pytest.raises(SpecError, match=f"^{field}"):
        grid(vary=vary)


@pytest.mark.parametrize(
    ("path", "values", "members"),
    [
        ("recipe.optimiser.learning_rate", (0.1, 0.2), {"learning_rate": (0.3, 0.4)}),
        ("recipe.optimiser.weight_decay", (0.1, 0.2), {"weight_decay": (0.3, 0.4)}),
        ("recipe.clip", (1.0, 2.0), {"clip": (3.0, 4.0)}),
        ("recipe.data.size", (20, 30), {"data_size": (10, 20)}),
    ],
)
def test_a_quantity_that_members_override_is_refused(path, values, members):
    (own,) = members
    message = f"vary.{path}: has no effect, as members.{own} overrides it; change members.{own}"
    with pytest.raises(SpecError, match=f"^{re.escape(message)}$"):
        grid(vary={path: values}, seeds=Members(seeds=(0, 1), **members))
    assert len(grid(vary={path: values})) == 2


def test_a_sweep_runs_to_a_figure(tmp_path):
    # The larger value first: curves go from left to right all the same.
    study = sweep_study("anchor/identity", {"recipe.batch": (10, 5)}, MODEL, RECIPE, seeds=(0, 1), metric="loss")
    findings = run_study(study, "quick", Store(tmp_path), workers=1)
    (figure,) = findings.figures
    assert isinstance(figure, LineFigure) and (figure.x_label, figure.y_label) == ("batch", "loss")
    assert [one.label for one in figure.lines] == ["train", "test"] and figure.lines[0].x == (5, 10)
    run = TrainedRun(Store(tmp_path).open(study.experiments_of("quick")[1].cell))
    assert figure.lines[1].mean[0] == pytest.approx(float(at_end(run, "test", "loss").mean()))
    assert [row[0] for row in findings.tables[0].rows] == [10, 5]
    assert findings.tables[0].rows[1][4] == pytest.approx(figure.lines[1].mean[0])


def test_words_and_two_quantities_make_maps(tmp_path):
    words = sweep_study("anchor/identity", {"model.initialisation": ("torch", "gamma")}, MODEL, RECIPE, seeds=(0,))
    (figure,) = run_study(words, "quick", Store(tmp_path), workers=1).figures
    assert isinstance(figure, MapFigure) and figure.maps[0][0].column_ticks == ("torch", "gamma")
    both = sweep_study("anchor/identity", {"model.layers": (1, 2), "recipe.batch": (5, 10)}, MODEL, RECIPE, seeds=(0,))
    findings = run_study(both, "quick", Store(tmp_path), workers=1)
    (figure,) = findings.figures
    assert isinstance(figure, MapFigure) and [one.title for one in figure.maps[0]] == ["train", "test"]
    assert (figure.maps[0][1].row_ticks, figure.maps[0][1].column_ticks) == (("1", "2"), ("5", "10"))
    flat = [value for row in figure.maps[0][1].values for value in row]
    assert flat == pytest.approx([row[5] for row in findings.tables[0].rows])


def test_of_three_quantities_the_first_makes_rows_of_maps(tmp_path):
    vary = {"model.width": (4, 8), "model.layers": (1, 2), "recipe.batch": (5, 10)}
    study = sweep_study("anchor/identity", vary, MODEL, RECIPE, seeds=(0, 1), metric="loss")
    assert study.title == "anchor/identity: loss against width, layers and batch"
    findings = run_study(study, "quick", Store(tmp_path), workers=1)
    (figure,) = findings.figures
    assert [[one.title for one in row] for row in figure.maps] == [
        [f"{split}, width {width}" for split in ("train", "test")] for width in (4, 8)
    ]
    for index, cell in enumerate(study.experiments_of("quick")):
        mean = float(at_end(TrainedRun(Store(tmp_path).open(cell.cell)), "test", "loss").mean())
        row, up, across = index // 4, index // 2 % 2, index % 2
        assert figure.maps[row][1].values[up][across] == pytest.approx(mean)
        assert (cell.model.width, cell.model.layers, cell.recipe.batch) == (
            int(figure.maps[row][1].title.split()[-1]),
            int(figure.maps[row][1].row_ticks[up]),
            int(figure.maps[row][1].column_ticks[across]),
        )
        assert findings.tables[0].rows[index][6] == pytest.approx(mean)


def test_sweeps_are_kept_side_by_side(tmp_path):
    """Only the same sweep has the same name: any other quantity, value, seed, model, recipe, task or metric differs."""
    base = {
        "task": "anchor/identity", "vary": {"recipe.batch": (5, 10)}, "model": MODEL, "recipe": RECIPE, "seeds": [0],
    }  # fmt: skip
    others = (
        {}, {"vary": {"recipe.batch": (5,)}}, {"vary": {"model.layers": (1, 2)}}, {"seeds": [1]},
        {"model": MODEL.replace(width=8)}, {"recipe": RECIPE.replace(duration=3)}, {"task": "anchor/composite"},
        {"metric": "loss"},
    )  # fmt: skip
    names = [sweep_study(**{**base, **other}).name for other in others]
    assert len(set(names)) == len(names) and names[0] == sweep_study(**base).name
    assert names[0].startswith("sweep/batch-") and sweep_study(**base, name="own/batches").name == "own/batches"
    store = Store(tmp_path)
    for other in ({}, {"seeds": [1]}):
        run_study(sweep_study(**{**base, **other}), "quick", store, workers=1)
    assert {kept.study for kept in kept_findings(store)} == {names[0], names[3]}


def test_the_sweeps_of_the_example_hold():
    path = Path(__file__).parents[2] / "examples" / "sweep.py"
    spec = importlib.util.spec_from_file_location("sweep_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for vary in module.SWEEPS.values():
        points = 1
        for values in vary.values():
            points *= len(values)
        assert len(sweep_study("anchor/identity", vary).experiments_of("quick")) == points
