"""The address of a model behind a server, `http://127.0.0.1:8000/v1#NAME`, which can replace any model name."""

from urllib.parse import unquote

from anchorlab.errors import SpecError
from anchorlab.language.endpoint.server import Server

_SIGN = "#"
_WRITTEN = {"%": "%25", "@": "%40", ",": "%2C"}  # signs that separate models and revisions


def address_of(url: str, model: str) -> str:
    """Return the address of a model; `@`, `,` and `%` in its name are percent-encoded.

    Errors: `SpecError` for an invalid URL or name; the message does not show the URL, which may hold a password.
    """
    try:
        server = Server(url=url, model=model)
    except SpecError as error:
        raise SpecError("endpoint" if error.field == "url" else error.field, error.problem, error.remedy) from None
    place = server.url.replace("@", "%40").replace(",", "%2C")
    return place + _SIGN + "".join(_WRITTEN.get(sign, sign) for sign in server.model)


def is_address(model: str) -> bool:
    """Return whether a model name is the address of a model behind a server."""
    return "://" in model


def read_address(address: str) -> tuple[str, str]:
    """Return the URL and the model's name in an address. Errors: `SpecError` for an address without a name."""
    url, _, written = address.partition(_SIGN)
    if not written:
        raise SpecError("model", "the address names no model", "write http://HOST:PORT/v1#NAME")
    return url, unquote(written)
