"""A request in the server's format: its body, its key in the journal, and bounds on its tokens."""

import hashlib
import json
from dataclasses import asdict, replace
from typing import Any

from anchorlab.language.asking.request import Request
from anchorlab.language.endpoint.chat_template import Writer
from anchorlab.language.endpoint.server import Server

_SEEDS = 2**31  # servers differ in how large a seed they take
_TURN = 16  # tokens that a chat template adds to each turn
_TEMPLATE = 128  # tokens that a chat template adds once, such as a system prompt
_BYTES = 4  # bytes of text per token, for pacing


def body(request: Request, server: Server, text: str | None, cap: str) -> dict[str, Any]:
    """Return the body of a request: a text completion if `text` is given, else a chat completion.

    `cap` is the server's name for the maximum number of output tokens, `max_tokens` or `max_completion_tokens`. The
    beginning of an answer is sent as a last message to continue, as vLLM, SGLang and llama.cpp expect.
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
    """Return a request that a server answers only if it ignores `continue_final_message`.

    The request asks both to continue the last message and to begin a new one. Servers that support both fields reject
    this before they compute anything.
    """
    return asked | {"continue_final_message": True, "add_generation_prompt": True, cap: 1}


def identity(request: Request, server: Server, text: str | None) -> str:
    """Return a digest of all that the answer depends on: server, model, extra fields, the request and its text."""
    drawn = request if request.temperature > 0 else replace(request, seed=0)  # the likeliest text needs no seed
    parts: dict[str, Any] = {"url": server.url, "model": server.model, "extra": dict(server.extra)}
    parts |= {"request": asdict(drawn), "text": text}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def text_of(request: Request, writer: Writer | None) -> str | None:
    """Return the prompt of a text completion; None for a request that is sent as chat messages."""
    return writer.text(request) if writer is not None else None if request.chat else request.text


def most_read(request: Request) -> int:
    """Return an upper bound on the input tokens of a request: one per byte, plus those that a chat template adds."""
    return len(request.text.encode(errors="replace")) + (_TEMPLATE + _TURN * (len(request.turns) + 1)) * request.chat


def likely(request: Request) -> float:
    """Estimate the tokens of a request, for pacing: a quarter of its bytes plus the maximum of output tokens."""
    return len(request.text.encode(errors="replace")) / _BYTES + request.tokens
