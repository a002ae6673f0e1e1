"""Parse seeds as users write them: `0:10`, `0,3,5`, a list, or their number."""

import re
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.training.members import Members

_MOST_SEEDS = 100_000


def seeds_of(value: Any) -> tuple[int, ...]:
    """Return the seeds in a text, in a list, or from 0 up to a given number. Errors: `SpecError`."""
    return read_seeds(value) if isinstance(value, str) else Members.of(value).seeds


def read_seeds(text: str) -> tuple[int, ...]:
    """Parse the seeds in a text: `0:10` means 0 to 9, `0,3,5` these three. Errors: `SpecError` at `seeds`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*(?::\s*([0-9]{1,18})\s*)?", part)
        if match is None:
            raise SpecError("seeds", f"{text!r:.60} is not a list of seeds", "write 0:10 for ten seeds, or 0,3,5")
        first = int(match[1])
        span = range(first, int(match[2]) if match[2] else first + 1)
        if not span:
            raise SpecError("seeds", f"{part.strip()} is an empty range", "write 0:10 for ten seeds")
        if len(seeds) + len(span) > _MOST_SEEDS:
            raise SpecError("seeds", f"{text!r:.60} has more than {_MOST_SEEDS} seeds", "train fewer at once")
        seeds += span
    return tuple(seeds)
