"""A request as the text that a model reads."""

from typing import TYPE_CHECKING

from anchorlab.errors import SpecError
from anchorlab.language.asking.request import Request
from anchorlab.language.start import added_before, start_token

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def chat_text(tokenizer: "PreTrainedTokenizerBase", request: Request, name: str) -> str:
    """Return a request in the model's chat template, with the beginning of the answer at the end.

    Errors: `SpecError` for a tokenizer without a chat template; the message gives the model's `name`.
    """
    if not tokenizer.chat_template:
        raise SpecError("chat", f"{name} has no chat template", "ask in plain text, with chat off")
    messages = [{"role": turn.role, "content": turn.text} for turn in request.turns]
    return f"{tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)}{request.begun}"


def text_for_server(tokenizer: "PreTrainedTokenizerBase", request: Request, name: str) -> str:
    """Return a request as the text that a server with this tokenizer turns into the token ids of `LocalSpeaker`.

    A special token that the tokenizer puts before every text is left out, because the server adds it again.

    Errors: as `chat_text`.
    """
    added = tokenizer.decode(added_before(tokenizer))
    if request.chat:
        return chat_text(tokenizer, request, name).removeprefix(added)
    start = start_token(tokenizer)
    before = "" if start is None else tokenizer.convert_ids_to_tokens(start)
    return f"{before}{request.text.removeprefix(added).removeprefix(before)}"
