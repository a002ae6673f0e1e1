"""A request in the server's format: its text, its body and its key in the journal."""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import SpecError
from anchorlab.language.asking.chat import chat_text
from anchorlab.language.asking.request import Request
from anchorlab.language.endpoint.server import Server
from anchorlab.language.model_folder import check_files
from anchorlab.language.packaged import PACKAGED, packaged_folder
from anchorlab.language.start import added_before, start_token

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SEEDS = 2**31  # servers differ in how large a seed they take


class Writer:
    """Writes requests for a server; if its tokenizer is given, as the text that a local model reads.

    A special token that the tokenizer puts before every text is left out, because the server's tokenizer adds it again.

    Errors: `SpecError` as `open_tokenizer`.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._tokenizer = None if server.tokenizer is None else open_tokenizer(server.tokenizer)
        self._start = self._added = ""
        if self._tokenizer is not None:
            self._added = self._tokenizer.decode(added_before(self._tokenizer))
            start = start_token(self._tokenizer)
            self._start = "" if start is None else self._tokenizer.convert_ids_to_tokens(start)

    def text(self, request: Request) -> str | None:
        """Return the prompt of a text completion; None for a request that is sent as chat messages.

        Errors: `SpecError` for a chat if the tokenizer has no chat template.
        """
        if not request.chat:
            return self._start + request.text.removeprefix(self._added).removeprefix(self._start)
        if self._tokenizer is None:
            return None
        return chat_text(self._tokenizer, request, str(self._server.tokenizer)).removeprefix(self._added)

    def body(self, request: Request, cap: str) -> dict[str, Any]:
        """Return the body of a request.

        `cap` is the server's name for the maximum number of output tokens of a chat, `max_tokens` or
        `max_completion_tokens`. The beginning of an answer is sent as a last message to continue, as vLLM, SGLang and
        llama.cpp expect.
        """
        text = self.text(request)
        made: dict[str, Any] = {"model": self._server.model, "temperature": request.temperature}
        if request.temperature > 0:
            made["seed"] = request.seed % _SEEDS
        if request.stop:
            made["stop"] = [request.stop]
        if text is not None:
            return made | {"prompt": text, "max_tokens": request.tokens} | dict(self._server.extra)
        made["messages"] = [{"role": turn.role, "content": turn.text} for turn in request.turns]
        if request.begun:
            made["messages"].append({"role": "assistant", "content": request.begun})
            made |= {"continue_final_message": True, "add_generation_prompt": False}
        return made | {cap: request.tokens} | dict(self._server.extra)

    def key(self, request: Request) -> str:
        """Return a digest of all that the answer depends on: server, model, extra fields, the request and its text."""
        server = self._server
        drawn = request if request.temperature > 0 else replace(request, seed=0)  # the likeliest text needs no seed
        parts: dict[str, Any] = {"url": server.url, "model": server.model, "extra": dict(server.extra)}
        parts |= {"request": asdict(drawn), "text": self.text(request)}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def open_tokenizer(name: str) -> "PreTrainedTokenizerBase":
    """Open a tokenizer by its folder, its name in the hub's cache, or a packaged model's name, such as `smollm2`.

    Nothing is downloaded.

    Errors: `SpecError` if the tokenizer is not on this machine, if a pipe or a device is among its files, and if
    `transformers` is not installed.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise SpecError("transformers", "is not installed", "run pip install 'anchorlab[language]'") from error
    source = str(packaged_folder(name)) if name in PACKAGED else name
    check_files(Path(source), "tokenizer")
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=True)
    except Exception:  # noqa: BLE001 - a stranger's files meet errors of several libraries, of one remedy
        problem = f"there is no tokenizer {name} on this machine"
        raise SpecError("tokenizer", problem, "give a folder or a name in the hub's cache") from None
