"""Change values in all experiments of a study, and describe and name the changes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from anchorlab.errors import SpecError
from anchorlab.training import Experiment
from anchorlab.training.field_paths import Value, value_at, with_values

_LONGEST = 80  # characters of a name


def changed(
    study: str, experiments: Sequence[Experiment], values: Mapping[str, Value], seeds: Sequence[int] | None
) -> list[Experiment]:
    """Return a study's experiments with other values by path, and other seeds.

    Errors: `SpecError` for a path that does not exist, a value that its field refuses, and a quantity that differs
    between the experiments, or from their starts.
    """
    for path in values:  # a start keeps its own recipe
        starts = () if path.startswith("recipe.") else [one.start for one in experiments if one.start is not None]
        found = list(dict.fromkeys(str(value_at(one, path)) for one in (*experiments, *starts)))
        if len(found) > 1:
            some = ", ".join(found[:4]) + (", ..." if len(found) > 4 else "")
            raise SpecError(path, f"is what {study} compares: {some}", "vary something else, or sweep it on its task")
    return [_changed(one, values, seeds) for one in experiments]


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


def words_of(values: Mapping[str, Value], seeds: Sequence[int] | None) -> str:
    """Describe the changes in words, such as `model.heads = 3 and seeds 0 to 2`."""
    found = [f"{path} = {_text(value)}" for path, value in values.items()]
    return " and ".join([*found, *([] if seeds is None else [f"seeds {_range(seeds)}"])])


def name_of(study: str, values: Mapping[str, Value], seeds: Sequence[int] | None) -> str:
    """Return a name such as `anchor/identity-heads-3`; a long name ends in a digest of the changes."""
    parts = [f"{path.partition('.')[2].replace('_', '-')} {_text(value)}" for path, value in values.items()]
    parts += [] if seeds is None else [f"seeds {_range(seeds)}"]
    parts = [re.sub(r"(?<!\w)-(?=[\d.])", "minus ", part) for part in parts]  # other signs are lost below
    written = "-".join([study, *(re.sub(r"\W+", "-", part).strip("-") for part in parts)])
    if len(written) <= _LONGEST:
        return written
    return f"{study}-{sha256(words_of(values, seeds).encode()).hexdigest()[:8]}"


def _text(value: Value) -> str:
    return ",".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)


def _range(seeds: Sequence[int]) -> str:
    first, last = seeds[0], seeds[-1]
    whole = len(seeds) > 2 and list(seeds) == list(range(first, last + 1))
    return f"{first} to {last}" if whole else ", ".join(map(str, seeds))
