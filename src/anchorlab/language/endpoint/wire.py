"""Requests and replies in the server's format."""

import hashlib
import json
import re
from dataclasses import asdict, replace
from typing import Any

from pydantic import TypeAdapter

from anchorlab.language.asking.chat import text_for_server
from anchorlab.language.asking.request import Request, Said
from anchorlab.language.endpoint.access import Access
from anchorlab.language.tokenizer import open_tokenizer

SAID = TypeAdapter(Said)  # checks an answer that comes from elsewhere
_SEEDS = 2**31  # servers differ in how large a seed they take
# servers say which dated version of a model answered: gpt-4o-2024-08-06, claude-3-5-haiku-20241022, gpt-4-0613
_DATED = r"-(\d{4}-\d{2}-\d{2}|\d{8}|\d{4})"


class Writer:
    """Writes requests to a model at a server. Errors: `SpecError` as `open_tokenizer`."""

    def __init__(self, url: str, model: str, access: Access) -> None:
        self._to: dict[str, Any] = {"url": url, "model": model, "extra": dict(access.extra)}
        self._tokenizer = None if access.tokenizer is None else open_tokenizer(access.tokenizer)

    def _text(self, request: Request) -> str | None:
        plain = None if request.chat else request.text
        return plain if self._tokenizer is None else text_for_server(self._tokenizer, request, self._to["model"])

    def key(self, request: Request) -> str:
        """Return a digest of all that the answer depends on: server, model, extra fields, the request and its text."""
        drawn = request if request.temperature > 0 else replace(request, seed=0)  # the likeliest text needs no seed
        parts = json.dumps(self._to | {"request": asdict(drawn), "text": self._text(request)}, sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()[:32]

    def body(self, request: Request) -> dict[str, Any]:
        """Return the body of a request; the beginning of an answer is a last message to continue, as vLLM expects."""
        body = {"model": self._to["model"], "temperature": request.temperature, "max_tokens": request.tokens}
        body |= {"seed": request.seed % _SEEDS} if request.temperature > 0 else {}
        body |= {"stop": [request.stop]} if request.stop else {}
        if (text := self._text(request)) is not None:
            body["prompt"] = text
        else:
            body["messages"] = [{"role": turn.role, "content": turn.text} for turn in request.turns]
            if request.begun:
                body["messages"].append({"role": "assistant", "content": request.begun})
                body |= {"continue_final_message": True, "add_generation_prompt": False}
        return {name: value for name, value in (body | self._to["extra"]).items() if value is not None}


def read_reply(reply: Any, request: Request) -> Said:
    """Return the answer in a reply. Errors: `LookupError`, `TypeError`, `AttributeError`, `ValueError` without one."""
    choice, usage = reply["choices"][0], reply.get("usage") or {}
    message, reason = choice.get("message"), choice.get("finish_reason")
    refusal = message and message.get("refusal")
    # the content is None if the model used up its tokens on thinking; some servers repeat the beginning
    text = choice["text"] if message is None else refusal or (message["content"] or "").removeprefix(request.begun)
    if request.stop and request.stop in text:  # some servers leave the stop text in
        text, reason = text.split(request.stop)[0], "stop"
    finish = "refusal" if refusal or reason == "content_filter" else "length" if reason == "length" else "stop"
    counts = {"read": usage.get("prompt_tokens"), "written": usage.get("completion_tokens")}
    return SAID.validate_python({"text": text, "finish": finish, **counts})


def is_of_model(name: str, model: str) -> bool:
    """Return whether `name` names `model`, also with `@` and a revision or with a date; an empty name counts too."""
    dated = re.escape(model.removesuffix("-latest")) + _DATED
    return not name or name == model or name.partition("@")[0] == model or bool(re.fullmatch(dated, name))
