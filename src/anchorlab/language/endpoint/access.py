"""The settings for requests to a server."""

import re
from collections.abc import Mapping

from pydantic import Field, JsonValue, model_validator

from anchorlab.errors import SpecError
from anchorlab.spec import Spec


class Access(Spec):
    """How a server is asked.

    Fields
        key_variable: the environment variable with the API key; if it is not set, requests carry no key
        answers_as: the name under which answers come back, if it differs from the model's name
        continues: whether the server continues a given beginning of the answer in a chat; None to find out
        tokenizer: the model's tokenizer on this machine: a folder, a name in the hub's cache, or `smollm2`. With it,
            every request is sent as the text that a local model reads; the server need not support beginnings then
        extra: further fields of every request, such as `{"top_p": 0.9}`; None removes a field
        concurrent: the maximum number of requests in flight
        requests_a_minute: the maximum number of requests per minute, without retries; None for no limit
        timeout: the seconds to wait for a reply
        tries: the maximum number of tries for one request
    """

    key_variable: str = "OPENAI_API_KEY"
    answers_as: str | None = None
    continues: bool | None = None
    tokenizer: str | None = None
    extra: Mapping[str, JsonValue] = {}
    concurrent: int = Field(default=8, ge=1, le=1000)
    requests_a_minute: float | None = Field(default=None, gt=0)
    timeout: float = Field(default=120.0, gt=0)
    tries: int = Field(default=12, ge=1)  # the waits between them add up to a minute, the period of most limits

    @model_validator(mode="after")
    def _names_a_variable(self) -> "Access":
        if not re.fullmatch(r"[A-Za-z_]\w*", self.key_variable):  # not shown: it may be the key
            raise SpecError("key_variable", "is not the name of a variable", "give the name, and the key as its value")
        return self
