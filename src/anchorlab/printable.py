"""Make foreign text safe to print, so that it cannot move the cursor, colour the screen or reverse the writing."""

import unicodedata
from collections.abc import Sequence

_FEW = 5
_JOINERS = "\u200c\u200d"  # needed inside Persian words and emoji


def printable(text: str, *, lines: bool = False) -> str:
    """Return text with every invisible character escaped, such as `\\x1b` for ESC.

    Escapes control characters, format characters (which are invisible or reverse the direction of writing) and lone
    surrogates. With `lines`, line ends and tabs remain.
    """
    if (text.replace("\n", "").replace("\t", "") if lines else text).isprintable():
        return text
    kept = _JOINERS + ("\n\t" if lines else "")
    seen = (one in kept or one.isprintable() or unicodedata.category(one) == "Zs" for one in text)  # Zs: spaces
    return "".join(
        one if is_seen else one.encode("unicode_escape").decode() for one, is_seen in zip(text, seen, strict=True)
    )


def first_few(words: Sequence[str], between: str = ", ", most: int = _FEW) -> str:
    """Join the first `most` words and count the rest: `a, b and 3 more`."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return between.join(words[:most]) + more
