"""Address, model and peculiarities of an OpenAI-compatible server."""

import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from pydantic import Field, JsonValue, field_validator

from anchorlab.errors import SpecError
from anchorlab.spec import Spec

# servers say which dated version of a model answered: gpt-4o-2024-08-06, claude-3-5-haiku-20241022, gpt-4-0613
_DATED = r"-(\d{4}-\d{2}-\d{2}|\d{8}|\d{4})"
_SIGN = "#"  # between the URL and the model's name in an address
_WRITTEN = str.maketrans({"%": "%25", "@": "%40", ",": "%2C"})  # signs that separate models and revisions


class Dialect(Spec):
    """The peculiarities of a server.

    Fields
        key_variable: the environment variable with the API key; if it is not set, requests carry no key
        answers_as: the name under which answers come back, if it differs from the model's name
        continues: whether the server continues a given beginning of the answer in a conversation; None to find out
        tokenizer: the model's tokenizer on this machine: a folder, a name in the hub's cache, or `smollm2`. With it,
            every request is sent as the text that a local model would read, including chat template and beginning of
            the answer, so that the server need not support beginnings
        extra: further fields of every request, such as `{"chat_template_kwargs": {"enable_thinking": False}}`
    """

    key_variable: str = "OPENAI_API_KEY"
    answers_as: str | None = None
    continues: bool | None = None
    tokenizer: str | None = None
    extra: Mapping[str, JsonValue] = {}

    @field_validator("key_variable")
    @classmethod
    def _variable(cls, name: str) -> str:
        # the message does not show what may be the key itself
        if not re.fullmatch("[A-Z_][A-Z0-9_]*", name):
            raise SpecError("", "is not the name of an environment variable", "write it in capitals, as OPENAI_API_KEY")
        return name

    @field_validator("extra")
    @classmethod
    def _further(cls, extra: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        for name in ("model", "messages", "prompt", "stream", "n"):
            if name in extra:
                raise SpecError(name, "is set by the request itself", "remove it")
        return extra


class Server(Dialect):
    """An OpenAI-compatible server and one of its models.

    Fields, in addition to `Dialect`
        url: the server's address up to and including `/v1`, such as `http://127.0.0.1:8000/v1`
        model: the model's name at the server
    """

    url: str
    model: str = Field(min_length=1)

    @field_validator("url")
    @classmethod
    def _plain(cls, url: str) -> str:
        # the messages do not show the address, which may hold a password
        try:
            parts = urlsplit(url.strip())
            _ = parts.port
        except ValueError:
            raise SpecError("", "is not an address", "write http://HOST:PORT/v1") from None
        if "@" in parts.netloc:
            raise SpecError("", "holds a user or a password", "give the key in the environment")
        if parts.query or parts.fragment:
            raise SpecError("", "has something behind ? or #", "write http://HOST:PORT/v1, and keys in the environment")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError("", "is not an address", "write http://HOST:PORT/v1")
        return parts.geturl().rstrip("/")

    def is_model(self, name: str | None) -> bool:
        """Whether an answer under `name` comes from this model.

        Accepted are the model's own name, `answers_as`, the model's name followed by `@` and a revision (as
        transformers' server writes it) or by the date of a version, and no name.
        """
        if not name or name in (self.model, self.answers_as) or name.partition("@")[0] == self.model:
            return True
        return bool(re.fullmatch(re.escape(self.model.removesuffix("-latest")) + _DATED, name))


def address_of(url: str, model: str) -> str:
    """Return the address of a model, such as `http://127.0.0.1:8000/v1#NAME`, which can replace any model name.

    `@`, `,` and `%` in the model's name are percent-encoded.

    Errors: `SpecError` for an invalid URL or name; the message does not show the URL, which may hold a password.
    """
    try:
        server = Server(url=url, model=model)
    except SpecError as error:
        raise SpecError("endpoint" if error.field == "url" else error.field, error.problem, error.remedy) from None
    place = server.url.replace("@", "%40").replace(",", "%2C")
    return place + _SIGN + server.model.translate(_WRITTEN)


def is_address(model: str) -> bool:
    """Return whether a model name is the address of a model behind a server."""
    return "://" in model


def read_address(address: str) -> tuple[str, str]:
    """Return the URL and the model's name in an address. Errors: `SpecError` for an address without a name."""
    url, _, written = address.partition(_SIGN)
    if not written:
        raise SpecError("model", "the address names no model", "write http://HOST:PORT/v1#NAME")
    return url, unquote(written)
