"""Studies with other values, as the options of `anchorlab study` give them."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

from anchorlab.cli.experiment import SHORT_PATHS, read_seeds
from anchorlab.cli.fields import Fields, as_written, nested, written
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.studies import Study


def varied(study: "Study[Any]", profile: str, parts: Mapping[str, Fields], seeds: str | None) -> "list[Study[Any]]":
    """Return the study with the values of the options, one for each combination where several are listed.

    A list is one value where the field itself holds a list. Without options, the study itself.
    Errors: `SpecError` that names the field as it was written.
    """
    with as_written([*written(parts), "seeds"], SHORT_PATHS):
        values = {SHORT_PATHS.get(path, path): value for path, value in _paths(parts)}
        chosen = None if seeds is None else read_seeds(seeds)
        if not values and chosen is None:
            return [study]
        listed = [_choices(study, profile, path, value) for path, value in values.items()]
        found = [study.vary(dict(zip(values, point, strict=True)), chosen) for point in product(*listed)]
        for one in found:
            one.experiments_of(profile)  # mistakes show before anything is trained
        return found


def _paths(parts: Mapping[str, Fields]) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of every option."""
    waiting = [(part, nested(fields, part)) for part, fields in parts.items()]
    while waiting:
        at, fields = waiting.pop(0)
        for name, value in fields.items():
            if isinstance(value, dict):
                waiting.append((f"{at}.{name}", value))
            else:
                yield f"{at}.{name}", value


def _choices(study: "Study[Any]", profile: str, path: str, value: Any) -> list[Any]:
    """Return the values to take one after the other."""
    from anchorlab.studies.paths import value_at

    experiments = study.experiments_of(profile)
    if not experiments:
        raise SpecError(path, f"{study.name} trains nothing", "leave it out")
    whole = not isinstance(value, list) or isinstance(value_at(experiments[0], path), list)
    return [value] if whole else value
