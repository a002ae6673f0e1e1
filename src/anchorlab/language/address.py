"""Addresses of models behind servers, `http://127.0.0.1:8000/v1#NAME`, which can replace any model's name."""

import re
from urllib.parse import unquote

from anchorlab.errors import SpecError

_URL = r"https?://([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/[^?#\s]*)?"
_WRITTEN = str.maketrans({"%": "%25", "@": "%40", ",": "%2C"})  # signs that separate models and revisions


def address_of(url: str, model: str) -> str:
    """Return the address of a model: the server's URL up to and including `/v1`, `#`, and the model's name there.

    Errors: `SpecError` for an invalid URL, which is not shown since it may hold a password, and for an empty name.
    """
    if not re.fullmatch(_URL, url.strip()):
        raise SpecError("endpoint", "is not an address", "write http://HOST:PORT/v1, and the key in the environment")
    if not model:
        raise SpecError("model", "the address names no model", "write http://HOST:PORT/v1#NAME")
    place = url.strip().rstrip("/").replace("@", "%40").replace(",", "%2C")
    return f"{place}#{model.translate(_WRITTEN)}"


def is_address(model: str) -> bool:
    """Return whether a model name is the address of a model behind a server."""
    return "://" in model


def read_address(address: str) -> tuple[str, str]:
    """Return the URL and the model's name in an address. Errors: as `address_of`."""
    url, _, name = address.partition("#")
    return address_of(url, unquote(name)).partition("#")[0], unquote(name)
