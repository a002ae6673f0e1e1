"""What is put to a language model, and what it says: the same for local models and for endpoints."""

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
    """One question, ready to be put to a model.

    Fields
        turns: the conversation: worked examples, then the question
        begun: the beginning of the answer, which the model goes on with; empty for none
        chat: whether the turns go through the model's chat template; else they are one text to be continued
        temperature: 0 for the likeliest text
        seed: what sampled text is drawn with; another one for every further sample of the same question
        tokens: the most tokens to say
        stop: a text that ends what is said, and is not part of it; empty for none
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
        """The request as one text to be continued: each answer on a line of its own, an empty line after it."""
        texts = [turn.text + ("\n\n" if turn.role == "assistant" else "\n") for turn in self.turns]
        return "".join(texts) + self.begun


@dataclass(frozen=True)
class Said:
    """What a model said.

    Fields
        text: without the beginning that it was given
        finish: why it ended: `stop` by itself, `length` at the most tokens, `refusal` where a server says so
        read, written: the numbers of tokens in the request and in the text; None where a server does not say
    """

    text: str
    finish: Literal["stop", "length", "refusal"] = "stop"
    read: int | None = None
    written: int | None = None


OnProgress = Callable[[int, int], None]
"""Called with how many requests are answered, of how many."""


@runtime_checkable
class Speaker(Protocol):
    """A model that answers requests, in their order."""

    name: str

    def say(self, requests: Sequence[Request], progress: OnProgress | None = None) -> list[Said]:
        """Return what the model says to each request; `progress` is called as answers come."""
        ...
