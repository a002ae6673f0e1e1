"""The options of a command for pretrained models, behind servers too."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anchorlab.cli.options import shared
from anchorlab.cli.options.fields import as_written, read_value
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.language.endpoint import Access

_PLACE = ("model", "revision", "download", "endpoint")  # which model; the other options are about asking it


@dataclass(frozen=True, kw_only=True)
class PretrainedOptions:
    """The pretrained model, and how to send requests to it if it is behind a server.

    Parameters
    ----------
    model
        Pretrained model to measure in place of the profile's: a name on Hugging Face's hub, a local folder, a `.gguf`
        file, `smollm2` or `gemma3`; with `--endpoint`, a model's name at the server. Studies that only ask
        questions also take `http://HOST:PORT/v1#NAME`.
    endpoint
        OpenAI-compatible server, such as `http://127.0.0.1:8000/v1`; `--model` is then the model's name there.
    tokenizer
        The model's tokenizer (folder, hub name, `smollm2`): the server then reads questions as a local model does.
    key_variable
        Environment variable with the server's key; by default OPENAI_API_KEY.
    requests_a_minute
        Maximum number of requests per minute; by default unlimited.
    concurrent
        Number of requests at once; by default 8.
    timeout
        Seconds to wait for one answer; by default 120.
    answers_as
        Name of the model in the server's answers, if it differs from `--model`.
    continues
        Assume that the server continues a given beginning of an answer, even if it does not report this (SGLang).
    extra
        Further fields of every request as JSON, such as `{"top_p": 0.9}`.
    """

    model: str | None = None
    revision: shared.Revision = None
    download: shared.Download = False
    endpoint: str | None = None
    tokenizer: str | None = None
    key_variable: str | None = None
    requests_a_minute: float | None = None
    concurrent: int | None = None
    timeout: float | None = None
    answers_as: str | None = None
    continues: Annotated[bool | None, Parameter(negative="", show_default=False)] = None
    extra: str | None = None

    def address(self) -> str | None:
        """Return the model's address at the given endpoint, else its name. Errors: as `address_of`; for a download."""
        from anchorlab.language.endpoint import address_of

        if self.endpoint is None:
            return self.model
        if self.download:
            raise SpecError("download", "is for models on the hub, not for one at a server", "leave it out")
        return ",".join(address_of(self.endpoint, one) for one in (self.model or "").split(","))

    def access(self, models: str) -> "Access | None":
        """Return the settings given, or None. Errors: `SpecError`, also if no model in `models` is at a server."""
        from anchorlab.language.endpoint import Access, is_address

        given = {name: value for name, value in vars(self).items() if name not in _PLACE and value is not None}
        if given and not is_address(models):
            option = next(iter(given)).replace("_", "-")
            raise SpecError(option, "is for models behind servers", "give --endpoint URL and --model NAME too")
        given |= {} if self.extra is None else {"extra": read_value(self.extra, "extra")}
        with as_written((name.replace("_", "-") for name in given), {}):
            return Access.parse(given) if given else None
