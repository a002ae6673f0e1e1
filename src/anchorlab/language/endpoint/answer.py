"""What a server replies, read with care: any field may be missing or of another type."""

import json
from dataclasses import dataclass, replace
from typing import Any

from anchorlab.language.asking.request import Request, Said
from anchorlab.language.endpoint.secret import Secret
from anchorlab.plain import parse_json
from anchorlab.printable import printable

_MOST_TOKENS = 10**9  # of one request, by far; a count above it is none
_LONGEST_NAME = 200  # characters


@dataclass(frozen=True)
class Answer:
    """An answer and the name of the model that the server gives with it; None where it gives none."""

    said: Said
    model: str | None


class MalformedError(Exception):
    """A reply that is no answer; says what is wrong with it."""


def read_answer(text: str, request: Request, messages: bool, secret: Secret) -> Answer:
    """Read the body of a reply to `request`, which was put as `messages` or as one text.

    A message without content, as of a model that thought until its tokens were used up, is an empty answer. A server
    that repeats the beginning of the answer has it taken off.

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
    said = _chat(choices[0]) if messages else _completion(choices[0])
    if messages and request.begun:
        said = replace(said, text=said.text.removeprefix(request.begun))
    if request.stop and request.stop in said.text:  # some servers leave it in
        said = replace(said, text=said.text.split(request.stop)[0], finish="stop")
    usage = data.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    model = data.get("model")
    return Answer(
        replace(
            said,
            text=secret.hide(said.text),
            read=_count(usage.get("prompt_tokens")),
            written=_count(usage.get("completion_tokens")),
        ),
        printable(secret.hide(model))[:_LONGEST_NAME] if isinstance(model, str) and model else None,
    )


def _chat(choice: dict[str, Any]) -> Said:
    message = choice.get("message")
    if not isinstance(message, dict):
        raise MalformedError("the reply holds no message")
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(refusal, str) and refusal:
        return Said(refusal, "refusal")
    if not isinstance(content, str | None):
        raise MalformedError("the message is not a text")
    return _said(content or "", choice)


def _completion(choice: dict[str, Any]) -> Said:
    text = choice.get("text")
    if not isinstance(text, str):
        raise MalformedError("the reply holds no text")
    return _said(text, choice)


def _said(text: str, choice: dict[str, Any]) -> Said:
    reason = choice.get("finish_reason")
    return Said(text, "length" if reason == "length" else "refusal" if reason == "content_filter" else "stop")


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None
