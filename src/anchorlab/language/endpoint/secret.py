"""A server's API key: read from the environment, and kept out of files and messages."""

import json
import os
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

from anchorlab.errors import SpecError

_SHORTEST = 8  # characters; a shorter key is a placeholder such as EMPTY, and hiding it would spoil ordinary text
_HIDDEN = "***"


class Secret:
    """The API key from an environment variable, or no key. Only the client that sends it may read `value`."""

    def __init__(self, value: str | None) -> None:
        self.value = value
        self._forms = sorted(_forms(value), key=len, reverse=True) if value and len(value) >= _SHORTEST else []

    def hide(self, text: str) -> str:
        """Return `text` with every occurrence of the key masked, also as encoded in JSON, URLs, base64 or hex."""
        for form in self._forms:
            text = text.replace(form, _HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"Secret({_HIDDEN if self.value else None})"

    def __reduce__(self) -> str:
        raise TypeError("a key is not written anywhere")


def read_secret(variable: str) -> Secret:
    """Return the key in an environment variable; none if it is not set or empty.

    Errors: `SpecError` if no HTTP header can carry the key; the message does not show it.
    """
    value = os.environ.get(variable, "").strip()
    if value and not (value.isascii() and value.isprintable() and " " not in value):
        raise SpecError("key", f"${variable} holds characters that no key has", "set it to the key alone")
    return Secret(value or None)


def _forms(value: str) -> set[str]:
    plain = value.encode()
    forms = {value, json.dumps(value)[1:-1], quote(value), quote(value, safe=""), plain.hex(), plain.hex().upper()}
    for before in range(3):  # bytes before the key, such as `Bearer `, shift its base64 form
        bits = 8 * before, 8 * (before + len(plain))
        own = slice(-(-bits[0] // 6), bits[1] // 6)  # the characters that encode nothing but the key
        forms |= {write(bytes(before) + plain).decode()[own] for write in (b64encode, urlsafe_b64encode)}
    return forms
