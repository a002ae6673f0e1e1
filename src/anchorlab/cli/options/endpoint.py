"""The options of a command for models behind servers."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from anchorlab.cli.options import shared
from anchorlab.cli.options.fields import as_written, read_value
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.language.endpoint import Access

_PATHS = {
    "tokenizer": "tokenizer",
    "key_variable": "key_variable",
    "answers_as": "answers_as",
    "continues": "continues",
    "extra": "extra",
    "concurrent": "pace.concurrent",
    "requests_a_minute": "pace.requests",
    "tokens_a_minute": "pace.tokens",
    "timeout": "patience.timeout",
    "max_cost": "budget.max_cost",
    "price_read": "budget.price_read",
    "price_written": "budget.price_written",
}
"""The field of `Access` that each option sets."""


@dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    """The server of a model, and how to send requests to it.

    Parameters
    ----------
    endpoint
        OpenAI-compatible server, such as `http://127.0.0.1:8000/v1`; `--model` is then the model's name there.
    tokenizer
        The model's tokenizer (folder, hub name, `smollm2`): the server then reads questions as a local model does.
    key_variable
        Environment variable with the server's key; by default OPENAI_API_KEY.
    max_cost
        Most to spend on each model in this run, given the prices; nothing is sent if the questions can cost more.
    price_read
        Price of a million tokens that the model reads.
    price_written
        Price of a million tokens that the model writes.
    requests_a_minute
        Most requests per minute; by default unlimited.
    tokens_a_minute
        Most tokens per minute, read and written; by default unlimited.
    concurrent
        Number of requests at once; by default 8.
    timeout
        Seconds to wait for one answer; by default 120.
    answers_as
        Name under which the server's answers come back, if it differs from the model's.
    continues
        The server continues a given beginning of an answer, even if it does not report this ability (SGLang).
    extra
        Further fields of every request as JSON, such as `{"top_p": 0.9}`.
    """

    endpoint: str | None = None
    tokenizer: str | None = None
    key_variable: str | None = None
    max_cost: float | None = None
    price_read: float | None = None
    price_written: float | None = None
    requests_a_minute: float | None = None
    tokens_a_minute: float | None = None
    concurrent: int | None = None
    timeout: float | None = None
    answers_as: str | None = None
    continues: shared.Flag = False
    extra: str | None = None

    def address(self, model: str | None, download: bool) -> str | None:
        """Return the address of the model at the endpoint; without an endpoint, the model itself.

        Errors: `SpecError` without a model's name, for a download, and for an invalid address.
        """
        from anchorlab.language.endpoint import address_of, is_address

        if self.endpoint is None:
            return model
        if not model:
            raise SpecError("model", "is missing with --endpoint", "give its name at the server, --model NAME")
        if is_address(model):
            raise SpecError("model", "has an address of its own", "leave out --endpoint, or give the name alone")
        if download:
            raise SpecError("download", "is for models on the hub, not for one at a server", "leave it out")
        return ",".join(address_of(self.endpoint, one) for one in model.split(","))

    def access(self) -> "Access | None":
        """Return the settings for requests to servers; None if no option sets any.

        Errors: `SpecError` that names the option, for a value out of range.
        """
        given = self._given()
        if not given:
            return None
        from anchorlab.language.endpoint import Access

        found: dict[str, Any] = {}
        for option, value in given.items():
            part, _, name = _PATHS[option].rpartition(".")
            (found.setdefault(part, {}) if part else found)[name] = value
        with as_written((option.replace("_", "-") for option in _PATHS), _PATHS):
            return Access.parse(found)

    def check_used(self, models: str) -> None:
        """Raise `SpecError` for options that no model among `models` needs."""
        from anchorlab.language.endpoint import is_address

        if self._given() and not is_address(models):
            option = next(iter(self._given())).replace("_", "-")
            raise SpecError(option, "is for models behind servers", "give --endpoint URL and --model NAME too")

    def _given(self) -> dict[str, Any]:
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "endpoint"}
        given = {name: value for name, value in given.items() if value is not None and value is not False}
        return given | ({"extra": read_value(self.extra, "extra")} if self.extra is not None else {})
