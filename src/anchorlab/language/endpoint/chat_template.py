"""Render requests as the text that a model reads, with its tokenizer on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.errors import SpecError
from anchorlab.language.asking.chat import chat_text
from anchorlab.language.asking.request import Request
from anchorlab.language.model_folder import check_files
from anchorlab.language.packaged import PACKAGED, packaged_folder
from anchorlab.language.start import start_token

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Writer:
    """Renders requests as a local model reads them: with the chat template, or with the start token.

    A special token that the tokenizer puts before every text is left out, because the server's tokenizer adds it again.
    """

    def __init__(self, name: str, tokenizer: "PreTrainedTokenizerBase") -> None:
        self.name, self._tokenizer = name, tokenizer
        plain, whole = (tokenizer("to", add_special_tokens=own)["input_ids"] for own in (False, True))
        before = len(whole) - len(plain)
        self._added = tokenizer.decode(whole[:before]) if before > 0 and whole[before:] == plain else ""
        start = start_token(tokenizer)
        self._start = "" if start is None else tokenizer.convert_ids_to_tokens(start)

    def text(self, request: Request) -> str:
        """Return a request as one text, with the beginning of the answer at its end.

        Errors: `SpecError` for a chat if the tokenizer has no chat template.
        """
        if not request.chat:
            return f"{self._start}{request.text}"
        return chat_text(self._tokenizer, request, self.name).removeprefix(self._added)


def open_writer(name: str) -> Writer:
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
        found = AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=True)
    except Exception:  # noqa: BLE001 - a stranger's files meet errors of several libraries, of one remedy
        problem = f"there is no tokenizer {name} on this machine"
        raise SpecError("tokenizer", problem, "give a folder or a name in the hub's cache") from None
    return Writer(name, found)
