"""Sweeps: how a score on a task depends on one or two quantities of its training.

Source: the open questions of anchor functions, Table 1: heads, layers, width, learning rate, initialisation and more.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import product
from typing import Any

import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.findings import Figure, LineFigure, Map, MapFigure, Table, grid, line
from anchorlab.models import ModelSpec
from anchorlab.studies.anchor.settings import quick_model, quick_recipe
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, at_end, mean_and_range
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.tasks import Task
from anchorlab.tasks import task as make_task
from anchorlab.training import Experiment, Members, Recipe, TrainedRun
from anchorlab.training.paths import quantity, with_values

Value = str | int | float | bool
Vary = Mapping[str, Sequence[Value]]

_LOG_FROM = 20.0  # an axis whose ends are this many times apart is logarithmic


def sweep_study(
    task: Task | str,
    vary: Vary,
    model: ModelSpec | None = None,
    recipe: Recipe | None = None,
    seeds: Iterable[int] = range(3),
    metric: str = "accuracy",
    name: str | None = None,
) -> Study[None]:
    """A study of how `metric` depends on one or two quantities, each named by its path in an experiment.

    >>> sweep_study("anchor/identity", {"model.layers": (1, 2, 4)})
    >>> sweep_study("anchor/composite", {"model.width": (32, 64), "recipe.optimiser.learning_rate": (1e-3, 3e-3)})

    Paths begin with `task`, `model`, `recipe` or `members`; what lies below `members` (`members.gamma.all`,
    `members.initialisation_scale`) is given to every member alike. All else stays as it is: `model` and `recipe` are
    small ones unless given, the seeds the same at every point. The findings are kept under `name`, by default one such
    as `sweep/layers-1f0a9c` with digits that stand for every setting of the sweep, so that only the same sweep replaces
    them. One quantity of numbers makes curves, one per split;
    two, or one of words, maps. The study has the profile `quick` alone and no claims.
    Errors: `SpecError` for no or more than two quantities, an empty one, or one that does not exist.
    """
    if not 1 <= len(vary) <= 2:
        raise SpecError("vary", f"holds {len(vary)} quantities", "give one or two")
    for path, values in vary.items():
        if isinstance(values, str) or not values:
            raise SpecError(f"vary.{path}", "holds no values", "give a few, such as (1, 2, 4)")
        if len(set(values)) < len(values):
            raise SpecError(f"vary.{path}", "holds a value twice", "give each once")
    chosen = make_task(task) if isinstance(task, str) else task
    base = Experiment(chosen, model or quick_model(), recipe or quick_recipe(1000), Members(seeds=tuple(seeds)))
    experiments = [_at_point(base, dict(zip(vary, point, strict=True))) for point in product(*vary.values())]
    title = f"{chosen.name or chosen.family}: {metric} against {' and '.join(map(quantity, vary))}"

    def analyse(runs: Sequence[TrainedRun], setting: object) -> Analysis:
        scores = {split: torch.stack([at_end(run, split, metric) for run in runs]) for split in _splits(runs[0])}
        return Analysis(None, figures=[_figure(title, vary, scores, metric)], tables=[_table(vary, scores, metric)])

    name = _name(vary, metric, experiments) if name is None else name
    note = f"{len(experiments)} settings, {len(base.members)} seeds each; nothing else differs between them."
    profiles = {"quick": Profile(None, note)}
    return Study(name, title, claims=(), analyse=analyse, profiles=profiles, experiments=lambda setting: experiments)


def _name(vary: Vary, metric: str, experiments: Sequence[Experiment]) -> str:
    """A name that no other sweep has: of another task, model, recipe, seeds, values or metric."""
    settings = "".join((metric, *vary, *(one.cell.address for one in experiments)))
    words = "-by-".join(re.sub(r"\W+", "-", quantity(path)) for path in vary)
    return f"sweep/{words}-{sha256(settings.encode()).hexdigest()[:6]}"


def _at_point(base: Experiment, point: Mapping[str, Value]) -> Experiment:
    """The experiment with the values of one point of the sweep."""
    label = ", ".join(f"{quantity(path)} {value}" for path, value in point.items())
    return with_values(base, point, label, at="vary.")


def _splits(run: TrainedRun) -> tuple[str, ...]:
    return run.experiment.recipe.evaluation.splits or run.experiment.task.splits


def _figure(title: str, vary: Vary, scores: Mapping[str, Tensor], metric: str) -> Figure:
    """Curves of `[point member]` over one quantity of numbers, else maps."""
    paths, values = list(vary), list(vary.values())
    if len(paths) == 1 and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values[0]):
        x = [float(value) for value in values[0]]
        return LineFigure(
            title=title,
            caption=MEAN_AND_RANGE,
            x_label=quantity(paths[0]),
            y_label=metric,
            lines=tuple(_sorted_line(split, x, score) for split, score in scores.items()),
            log_x=min(x) > 0 and max(x) / min(x) >= _LOG_FROM,
            y_range=ACCURACY if metric == "accuracy" else (None, None),
        )
    rows, columns = (values[0], values[1]) if len(paths) == 2 else ((metric,), values[0])
    up, across = (tuple(map(str, side)) for side in (rows, columns))
    return MapFigure(
        title=title,
        caption="Mean over seeds.",
        maps=(
            tuple(
                Map(split, grid(score.mean(dim=1).reshape(len(rows), len(columns))), up, across)
                for split, score in scores.items()
            ),
        ),
        x_label=quantity(paths[-1]),
        y_label=quantity(paths[0]) if len(paths) == 2 else "",
        value_label=metric,
        value_range=(0.0, 1.0) if metric == "accuracy" else (None, None),
    )


def _sorted_line(label: str, x: Sequence[float], score: Tensor) -> Any:
    order = torch.tensor(x).argsort()
    return line(label, [x[at] for at in order.tolist()], score[order].T)


def _table(vary: Vary, scores: Mapping[str, Tensor], metric: str) -> Table:
    rows = [
        (
            *(
                value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
                for value in point
            ),
            *(number for score in scores.values() for number in mean_and_range(score[index])),
        )
        for index, point in enumerate(product(*vary.values()))
    ]
    return Table(
        title="Setting by setting",
        caption=f"{metric}: mean, lowest and highest over seeds.",
        columns=(
            *map(quantity, vary),
            *(f"{split}, {which}" for split in scores for which in ("mean", "lowest", "highest")),
        ),
        rows=tuple(rows),
    )
