"""Studies with other values, as the options of `anchorlab study` give them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anchorlab.cli.fields import Fields, as_written, nested, written

if TYPE_CHECKING:
    from anchorlab.studies import Study
    from anchorlab.studies.selection import Chosen


def varied(chosen: "Chosen", profile: str, parts: Mapping[str, Fields], seeds: str | None) -> "list[Study[Any]]":
    """Return a study with the values of the options, one for each combination where several are listed.

    A list is one value where the field itself holds a list. Without options, the study itself.
    Errors: `SpecError` that names the field as it was written.
    """
    from anchorlab.training.field_paths import SHORT_PATHS, values_by_path
    from anchorlab.training.members import read_seeds

    with as_written([*written(parts), "seeds"], SHORT_PATHS):
        values = values_by_path({part: nested(fields, part) for part, fields in parts.items()})
        return chosen.studies(profile, values, None if seeds is None else read_seeds(seeds))
