"""Parse a server's reply defensively: any field may be missing or of another type."""

import json
from dataclasses import dataclass, replace
from typing import Any

from anchorlab.language.asking.request import Request, Said
from anchorlab.language.endpoint.secret import Secret
from anchorlab.plain import parse_json
from anchorlab.printable import printable

_MOST_TOKENS = 10**9  # no request has more; a larger count is not believed
_LONGEST_NAME = 200  # characters


@dataclass(frozen=True)
class Answer:
    """An answer, and the name under which the model answered; None if the server gives no name."""

    said: Said
    model: str | None


class MalformedError(Exception):
    """A reply that is not an answer; the message says what is wrong with it."""


def read_answer(text: str, request: Request, messages: bool, secret: Secret) -> Answer:
    """Parse the body of the reply to `request`; `messages` tells a chat completion from a text completion.

    A message without content is an empty answer: a reasoning model, for example, may use up its tokens on thinking. If
    the server repeats the beginning of the answer, it is removed.

    Errors: `MalformedError` for a body that is not JSON, or without an answer.
    """
    try:
        data = parse_json(text)
    except ValueError:
        raise MalformedError("the reply is not JSON") from None
    if not isinstance(data, dict):
        raise MalformedError("the reply is not an object")
    choices = data.get("choices")
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        raise MalformedError(f"the reply holds no answer but {secret.hide(json.dumps(data.get('error')))[:200]}")
    said = _said(choices[0], messages)
    if messages and request.begun:
        said = replace(said, text=said.text.removeprefix(request.begun))
    if request.stop and request.stop in said.text:  # some servers leave it in
        said = replace(said, text=said.text.split(request.stop)[0], finish="stop")
    usage, model = data.get("usage"), data.get("model")
    read, written = (_count(usage, f"{kind}_tokens") for kind in ("prompt", "completion"))
    return Answer(
        replace(said, text=secret.hide(said.text), read=read, written=written),
        printable(secret.hide(model))[:_LONGEST_NAME] if isinstance(model, str) and model else None,
    )


def _said(choice: dict[str, Any], messages: bool) -> Said:
    reason = choice.get("finish_reason")
    if messages:
        message = choice.get("message")
        if not isinstance(message, dict):
            raise MalformedError("the reply holds no message")
        if isinstance(refusal := message.get("refusal"), str) and refusal:
            return Said(refusal, "refusal")
        text = "" if message.get("content") is None else message["content"]
    else:
        text = choice.get("text")
    if not isinstance(text, str):
        raise MalformedError("the reply holds no text")
    return Said(text, "length" if reason == "length" else "refusal" if reason == "content_filter" else "stop")


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None
