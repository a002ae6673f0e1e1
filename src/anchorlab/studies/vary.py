"""Vary a study: its experiments and its analysis with other values, under a name of its own."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.studies.paths import Value, quantity, value_at, with_values
from anchorlab.studies.study import Profile, Study
from anchorlab.training import Experiment, Members

_LONGEST = 60  # signs of a name


def varied(
    study: Study[Any],
    values: Mapping[str, Value] | None = None,
    seeds: int | Iterable[int] | None = None,
    name: str | None = None,
) -> Study[Any]:
    """Return a study with other values in all its experiments, and with other seeds.

    >>> al.study("anchor/identity").vary({"model.heads": 3}, seeds=range(3))

    A value is named by its path in an experiment, such as `model.heads`, `recipe.optimiser.learning_rate` or
    `task.placement.length`; one below `members` is given to every member. What the study itself compares, such as its
    sizes of training data, cannot be changed so.

    The varied study has every profile of the study, and says in its title and notes what was changed. Its findings are
    kept under `name`, by default the study's with the changes, such as `anchor/identity-heads-3`. With other seeds
    alone the claims remain the paper's; otherwise they are hypotheses of your own, `supported` or `not supported`.

    Args:
        study: from `al.study(name)`, or your own
        values: new values by path
        seeds: new seeds of all members, or their number
        name: of the new study

    Errors: `SpecError` for no change; when its experiments are made, for a path that names nothing, a value that its
    field refuses, and a quantity that differs between the study's experiments.
    """
    changes = dict(values or {})
    chosen = None if seeds is None else Members(seeds=seeds if isinstance(seeds, int) else tuple(seeds)).seeds
    if not changes and chosen is None:
        raise SpecError("values", "change nothing", "give a value, such as {'model.heads': 3}, or seeds")
    if study.observe is not None:
        raise SpecError("values", f"{study.name} trains nothing", "give another model or profile")

    def experiments(setting: Any) -> Sequence[Experiment]:
        own = list(study.experiments(setting))
        for path in changes:
            _check_shared(study.name, own, path)
        return [_changed(one, changes, chosen) for one in own]

    words = _words(changes, chosen)
    title, _, rest = (study.doc or "").strip().partition("\n")
    note = f"Changed from {study.name}: {words}."
    return replace(
        study,
        name=name or _name(study.name, changes, chosen),
        doc=f"{title.strip().removesuffix('.')}, with {words}.\n{rest}",
        experiments=experiments,
        profiles={
            key: Profile(one.setting, f"{one.note} {note}".strip(), one.paper if not changes else False)
            for key, one in study.profiles.items()
        },
        smoke=None,
        own=True if changes else study.own,
    )


def _changed(experiment: Experiment, values: Mapping[str, Value], seeds: Sequence[int] | None) -> Experiment:
    start = experiment.start
    if start is not None:  # it has the same model on a task of the same size, and as many members
        start = _changed(
            start, {path: value for path, value in values.items() if not path.startswith("recipe.")}, seeds
        )
    found = replace(experiment, start=None)
    if seeds is not None:
        found = replace(found, members=found.members.replace(seeds=tuple(seeds)))
    if values:
        found = with_values(found, values, found.label)
    return replace(found, start=start)


def _check_shared(study: str, experiments: Sequence[Experiment], path: str) -> None:
    """Raise `SpecError` for a quantity that the study compares."""
    found = list(dict.fromkeys(str(value_at(one, path)) for one in experiments))
    if len(found) > 1:
        some = ", ".join(found[:4]) + (", ..." if len(found) > 4 else "")
        raise SpecError(path, f"is what {study} compares: {some}", "vary something else, or sweep it on its task")


def _words(values: Mapping[str, Value], seeds: Sequence[int] | None) -> str:
    changed = [f"{path} = {_text(value)}" for path, value in values.items()]
    return " and ".join([*changed, *([] if seeds is None else [f"seeds {_range(seeds)}"])])


def _name(study: str, values: Mapping[str, Value], seeds: Sequence[int] | None) -> str:
    parts = [f"{quantity(path)} {_text(value)}" for path, value in values.items()]
    parts += [] if seeds is None else [f"seeds {_range(seeds)}"]
    written = "-".join([study, *(re.sub(r"\W+", "-", part).strip("-") for part in parts)])
    if len(written) <= _LONGEST:
        return written
    return f"{study}-{sha256(written.encode()).hexdigest()[:8]}"


def _text(value: Value) -> str:
    return ",".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)


def _range(seeds: Sequence[int]) -> str:
    first, last = seeds[0], seeds[-1]
    whole = len(seeds) > 2 and list(seeds) == list(range(first, last + 1))
    return f"{first} to {last}" if whole else ", ".join(map(str, seeds))
