"""Patterns of dotted names, of sites and weights: `*` stays within one part of a name, `**` crosses dots."""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from anchorlab.errors import SpecError
from anchorlab.spec import unknown_name

_ELEMENT = re.compile(r"\[(\d+)\]$")


def matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern.

    They are compared part by part, split at the dots. In a part `*` means any text, `?` any character, `[13]` 1 or 3;
    the part `**` means any number of parts, or none. At the end of a pattern, `[13]` is instead an element's index.

    >>> matches("blocks.*.hook_resid_post", "blocks.0.hook_resid_post"), matches("blocks.*", "blocks.0.hook_resid_post")
    (True, False)
    """
    return _fits(_ELEMENT.sub(r"[[]\1]", pattern).split("."), name.split("."))


def matching(pattern: str, names: Iterable[str], field: str, what: str) -> list[str]:
    """Return the names that match a pattern.

    Errors: `SpecError` at `field` if there are none, with the pattern that crosses dots if that one has matches. `what`
    is the kind of name, such as `site`.
    """
    known = list(names)
    if found := [name for name in known if matches(pattern, name)]:
        return found
    for wider in _wider(pattern):
        if any(matches(wider, name) for name in known):
            raise SpecError(field, f"{pattern!r} matches no {what}, since * does not cross dots", f"write {wider!r}")
    raise unknown_name(field, pattern, known, what)


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fits(pattern[1:], parts[at:]) for at in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _fits(pattern[1:], parts[1:])


def _wider(pattern: str) -> Iterator[str]:
    """Yield patterns that match more: one `*` that crosses dots, then all of them, then more parts at the ends."""
    if "*" not in pattern:
        return
    parts = pattern.split(".")
    for at, part in enumerate(parts):
        if part == "*":
            yield ".".join((*parts[:at], "**", *parts[at + 1 :]))
    yield ".".join("**" if part == "*" else part for part in parts)
    yield from (f"**.{pattern}", f"{pattern}.**")
