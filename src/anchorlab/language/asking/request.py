"""Requests to a language model and its replies, the same for local models and for endpoints."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable


@dataclass(frozen=True)
class Turn:
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class Request:
    """One question, ready to send to a model.

    Fields
        turns: the conversation: worked examples, then the question
        begun: the beginning of the answer, for the model to continue; empty for none
        chat: whether the turns go through the model's chat template; False: they form one text to complete
        temperature: the sampling temperature; 0 for the likeliest text
        seed: the seed of sampled text; give every further sample of a question a new one
        tokens: the maximum number of tokens to generate
        stop: generation ends before this text; empty for none
    """

    turns: tuple[Turn, ...]
    begun: str = ""
    chat: bool = True
    temperature: float = 0.0
    seed: int = 0
    tokens: int = 16
    stop: str = ""

    @property
    def text(self) -> str:
        """The request as one text to complete: each answer is on a line of its own, followed by an empty line."""
        texts = [turn.text + ("\n\n" if turn.role == "assistant" else "\n") for turn in self.turns]
        return "".join(texts) + self.begun


@dataclass(frozen=True)
class Said:
    """A model's reply to a request.

    Fields
        text: the generated text, without the beginning of the answer from the request
        finish: why generation ended: `stop` (the model or the stop text ended it), `length` (the maximum number of
            tokens) or `refusal` (the server says so)
        read, written: the numbers of tokens in the request and in the text; None if the server does not report them
    """

    text: str
    finish: Literal["stop", "length", "refusal"] = "stop"
    read: int | None = None
    written: int | None = None


OnProgress = Callable[[int, int], None]
"""Called with the number of requests answered and their total."""


@runtime_checkable
class Speaker(Protocol):
    """A model that answers requests and returns the replies in the order of the requests."""

    name: str

    def say(self, requests: Sequence[Request], progress: OnProgress | None = None) -> list[Said]:
        """Return the model's reply to each request; `progress` is called as replies arrive."""
        ...
