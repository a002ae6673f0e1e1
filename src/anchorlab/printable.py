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
    return "".join(one if one in kept or _is_seen(one) else _written(one) for one in text)


def first_few(words: Sequence[str], between: str = ", ", most: int = _FEW) -> str:
    """Join the first `most` words and count the rest: `a, b and 3 more`."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return between.join(words[:most]) + more


def _is_seen(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"  # spaces, such as the no-break space


def _written(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
