"""A request as the server takes it: its body, what it is known by, and how many tokens it can take."""

import hashlib
import json
from dataclasses import asdict, replace
from typing import Any

from anchorlab.language.asking.request import Request
from anchorlab.language.endpoint.server import Server
from anchorlab.language.endpoint.writer import Writer

_SEEDS = 2**31  # servers differ in how large a seed they take
_TURN = 16  # tokens that a template writes around a turn
_TEMPLATE = 128  # tokens that a template writes by itself, such as what it says to the system
_BYTES = 4  # of text in a token, for pacing


def body(request: Request, server: Server, text: str | None, cap: str) -> dict[str, Any]:
    """Return the body of a request: of a completion where it is one `text`, else of a chat completion.

    `cap` is the server's word for the most tokens of a message, `max_tokens` or `max_completion_tokens`. The beginning
    of an answer is a last message to be continued, as vLLM, SGLang and llama.cpp take it.
    """
    made: dict[str, Any] = {"model": server.model, "temperature": request.temperature}
    if request.temperature > 0:
        made["seed"] = request.seed % _SEEDS
    if request.stop:
        made["stop"] = [request.stop]
    if text is not None:
        return made | {"prompt": text, "max_tokens": request.tokens} | dict(server.extra)
    made["messages"] = [{"role": turn.role, "content": turn.text} for turn in request.turns]
    if request.begun:
        made["messages"].append({"role": "assistant", "content": request.begun})
        made |= {"continue_final_message": True, "add_generation_prompt": False}
    return made | {cap: request.tokens} | dict(server.extra)


def contradiction(asked: dict[str, Any], cap: str) -> dict[str, Any]:
    """Return a request that a server can only answer if it ignores `continue_final_message`.

    The last message is to be continued and a new one to be begun. Servers that know both fields refuse this before
    they compute anything.
    """
    return asked | {"continue_final_message": True, "add_generation_prompt": True, cap: 1}


def identity(request: Request, server: Server, text: str | None) -> str:
    """Return what the answer depends on in short: server, model, further fields, the whole request and its text."""
    drawn = request if request.temperature > 0 else replace(request, seed=0)  # the likeliest text is not drawn
    parts: dict[str, Any] = {"url": server.url, "model": server.model, "extra": dict(server.extra)}
    parts |= {"request": asdict(drawn), "text": text}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def text_of(request: Request, writer: Writer | None) -> str | None:
    """Return the text that a request is put as; None where it is put as messages."""
    return writer.text(request) if writer is not None else None if request.chat else request.text


def most_read(request: Request) -> int:
    """Return a number of tokens that the request will not exceed: one for every byte, and the template's own."""
    return len(request.text.encode(errors="replace")) + (_TEMPLATE + _TURN * (len(request.turns) + 1)) * request.chat


def likely(request: Request) -> float:
    """Return the tokens that a request is likely to take, for pacing: a quarter of its bytes, and the cap."""
    return len(request.text.encode(errors="replace")) / _BYTES + request.tokens
