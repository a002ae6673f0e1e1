"""Sweeps: how a score on a task depends on training choices.

Source: the open questions of anchor functions, Table 1: heads, layers, width, learning rate, initialisation and more.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import product
from math import prod
from typing import TypeGuard

import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.findings import Figure, LineFigure, Map, MapFigure, Table, grid
from anchorlab.models import ModelSpec
from anchorlab.spec import check_known
from anchorlab.studies.in_words import joined
from anchorlab.studies.kit import ACCURACY, at_end, curves_against, mean_and_range
from anchorlab.studies.profile import Profile
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.studies.readings import Reading
from anchorlab.studies.study import Study
from anchorlab.tasks import Task
from anchorlab.tasks import task as make_task
from anchorlab.training import Experiment, Members, Recipe
from anchorlab.training.field_paths import Value, quantity, with_values

Vary = Mapping[str, Sequence[Value]]

_LOG_FROM = 20.0  # an axis whose ends are this many times apart is logarithmic
_MOST_CELLS = 10_000
_MOST_ROWS = 12  # of maps in a figure


def sweep_study(
    task: Task | str,
    vary: Vary,
    model: ModelSpec | None = None,
    recipe: Recipe | None = None,
    seeds: int | str | Iterable[int] | Members = range(3),
    metric: str = "accuracy",
    name: str | None = None,
) -> Study[None]:
    """Return a study of how `metric` depends on training choices, each named by its path in an experiment.

    >>> sweep_study("anchor/identity", {"model.layers": (1, 2, 4)})
    >>> sweep_study("anchor/composite", {"model.width": (32, 64), "recipe.optimiser.learning_rate": (1e-3, 3e-3)})

    Paths begin with `task`, `model`, `recipe` or `members`; values under `members` (`members.gamma.all`,
    `members.initialisation_scale`) apply to every member. All else stays the same: by default `model` and `recipe` are
    small, and the seeds are equal at every point. The findings are kept under `name`, by default one such as
    `sweep/layers-1f0a9c` with a digest of all settings, so that only the same sweep replaces them. A single numeric
    quantity makes curves, one per split; one of words, or two quantities, make a map per split; with more, each
    combination of all but the last two makes a row of maps. The study has only the profile `quick` and no claims.

    `seeds` may be members with settings of their own.

    Errors: `SpecError` for no quantity, for an unknown quantity or one without values, and for an unknown metric.
    """
    _check(vary)
    chosen = make_task(task) if isinstance(task, str) else task
    base = Experiment(chosen, model or quick_model(), recipe or quick_recipe(1000), Members.of(seeds))
    check_known("metric", metric, base.metrics, "metric")
    experiments = [
        with_values(base, dict(zip(vary, point, strict=True)), ", ".join(_words(list(vary), point)), at="vary.")
        for point in product(*vary.values())
    ]
    title = f"{chosen.name or chosen.family}: {metric} against {joined([*map(quantity, vary)])}"

    def drawn(seen: Reading) -> list[Figure | Table]:
        scores = {
            split: torch.stack([at_end(run, split, metric) for run in seen.runs.values()]) for split in base.splits
        }
        return [*_figures(title, vary, scores, metric), _table(vary, scores, metric)]

    name = _name(vary, metric, experiments) if name is None else name
    note = f"{len(experiments)} settings; nothing else differs between them."
    profiles = {"quick": Profile(None, note)}
    trained = dict(enumerate(experiments))
    return Study(name, title, (), profiles, trains=lambda setting: trained, reads=Reading, draws=[drawn])


def _check(vary: Vary) -> None:
    """Raise `SpecError` for quantities that make no sweep."""
    if not vary:
        raise SpecError("vary", "holds no quantity", "give one or more, such as {'model.layers': (1, 2, 4)}")
    for path, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise SpecError(f"vary.{path}", "holds no values", "give a few, such as (1, 2, 4)")
        if any(value in values[:at] for at, value in enumerate(values)):
            raise SpecError(f"vary.{path}", "holds a value twice", "give each once")
    cells = prod(map(len, vary.values()))
    if cells > _MOST_CELLS:
        raise SpecError("vary", f"makes {cells} cells", f"list fewer values, for at most {_MOST_CELLS}")


def _name(vary: Vary, metric: str, experiments: Sequence[Experiment]) -> str:
    """Return a name that changes with the task, the model, the recipe, the seeds, the values and the metric."""
    settings = "".join((metric, *vary, *(one.cell.address for one in experiments)))
    words = "-by-".join(re.sub(r"\W+", "-", quantity(path)) for path in vary)
    return f"sweep/{words}-{sha256(settings.encode()).hexdigest()[:6]}"


def _figures(title: str, vary: Vary, scores: Mapping[str, Tensor], metric: str) -> list[Figure]:
    """Return curves of scores `[point member]` over one numeric quantity, else maps; none if there are too many."""
    paths, values = list(vary), list(vary.values())
    numbers = [float(value) for value in values[0] if _is_number(value)]
    if len(paths) == 1 and len(numbers) == len(values[0]):
        return [_curves(title, paths[0], numbers, scores, metric)]
    outer = list(product(*values[:-2]))  # one row of maps for each
    if len(outer) > _MOST_ROWS:
        return []
    rows, columns = (values[-2], values[-1]) if len(paths) > 1 else ((metric,), values[0])
    up, across = (tuple(map(str, side)) for side in (rows, columns))
    means = {split: score.mean(dim=1).reshape(len(outer), len(rows), len(columns)) for split, score in scores.items()}
    found = MapFigure(
        title=title,
        caption="Mean over seeds.",
        maps=tuple(
            tuple(
                Map(", ".join((split, *_words(paths, point))), grid(mean[index]), up, across)
                for split, mean in means.items()
            )
            for index, point in enumerate(outer)
        ),
        x_label=quantity(paths[-1]),
        y_label=quantity(paths[-2]) if len(paths) > 1 else "",
        value_label=metric,
        value_range=(0.0, 1.0) if metric == "accuracy" else (None, None),
    )
    return [found]


def _curves(title: str, path: str, x: Sequence[float], scores: Mapping[str, Tensor], metric: str) -> LineFigure:
    rising = sorted(range(len(x)), key=x.__getitem__)
    return curves_against(
        title,
        [x[at] for at in rising],
        {split: score[rising].T for split, score in scores.items()},
        x_label=quantity(path),
        y_label=metric,
        log_x=min(x) > 0 and max(x) / min(x) >= _LOG_FROM,
        y_range=ACCURACY if metric == "accuracy" else (None, None),
    )


def _words(paths: Sequence[str], point: Sequence[Value]) -> list[str]:
    return [f"{quantity(path)} {value}" for path, value in zip(paths, point, strict=False)]


def _table(vary: Vary, scores: Mapping[str, Tensor], metric: str) -> Table:
    rows = [
        (
            *(value if _is_number(value) else str(value) for value in point),
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


def _is_number(value: Value) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
