"""Add a checksum as the last field of a JSON object; it reveals any change of another byte."""

import hashlib
import re

from anchorlab.errors import SpecError

_SEAL = re.compile(rb',\n "checksum": "([0-9a-f]{64})"\n}\s*\Z')


def seal(text: str) -> str:
    """Return the text of an indented JSON object with its own SHA-256 added as a last field, `checksum`."""
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return text.removesuffix("\n}") + f',\n "checksum": "{checksum}"\n}}\n'


def unseal(text: str | bytes, at: str) -> bytes:
    """Return the text that was given to `seal`; text without a checksum is returned unchanged.

    Errors: `SpecError` at `<at>.checksum` if a byte has changed.
    """
    content = text.encode() if isinstance(text, str) else text
    found = _SEAL.search(content)
    if found is None:
        return content
    whole = content[: found.start()] + b"\n}"
    if hashlib.sha256(whole).hexdigest().encode() != found[1]:
        raise SpecError(f"{at}.checksum", "differs from its content, which was altered", "run the study again")
    return whole
