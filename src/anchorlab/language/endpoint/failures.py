"""How a try fails: trouble that may pass, or a rejection for good; and the error that each ends in."""

from dataclasses import dataclass
from typing import Literal

from anchorlab.errors import SpecError
from anchorlab.language.asking.request import Request
from anchorlab.language.endpoint.server import Server

NO_CONTINUING = "give the model's tokenizer, or ask without a beginning, or in plain text (chat=False)"
_LATER = "run it again later; no question is asked twice"


@dataclass(frozen=True)
class Trouble:
    """A failed try that is worth repeating.

    Fields
        kind: `limited` (429), `failed` (5xx and the like), `dropped` (the connection), `late` (a timeout), `malformed`
            (a reply that is not an answer), `absent` (nothing listens at the address)
        said: what happened, in words
        wait: the wait that the server asks for, in seconds
    """

    kind: Literal["limited", "failed", "dropped", "late", "malformed", "absent"]
    said: str
    wait: float = 0.0

    @property
    def charged(self) -> bool:
        """Whether the server may charge for the try nevertheless."""
        return self.kind in ("dropped", "late", "malformed")


@dataclass(frozen=True)
class Rejection:
    """A request that the server rejects for good.

    Fields
        status: the HTTP status
        said: the server's message
        code: the server's error code; empty if it gives none
    """

    status: int
    said: str
    code: str = ""


def explained(rejection: Rejection, request: Request, server: Server, has_key: bool) -> SpecError:
    """Return the error for a rejected request: the field to change, the server's message and the remedy."""
    status, url, words = rejection.status, server.url, rejection.said.lower()
    said = f"{url} says {status}: {rejection.said}"
    named = server.model.lower() in words and ("model" in words or "pinned" in words)
    if 300 <= status < 400:
        problem = f"{url} sends questions on to {rejection.said or 'another address'}, which is not followed"
        return SpecError("endpoint", problem, "give that address up to and with /v1 if you trust it")
    if status in (401, 403):
        if not has_key:
            return SpecError("key", f"{url} asks for a key, and ${server.key_variable} is not set", "set it")
        return SpecError("key", said, f"check the key in ${server.key_variable}")
    if status in (402, 429):
        return SpecError("endpoint", f"no credit is left: {said}", _LATER)
    if "model" in rejection.code or named:
        return SpecError("model", said, f"give a name that {url}/models lists")
    if status in (404, 405):
        return SpecError("endpoint", said, "give the address up to and with /v1")
    if request.chat and request.begun and server.tokenizer is None and status in (400, 422):
        return SpecError("endpoint", f"does not go on with a begun answer; {said}", NO_CONTINUING)
    return SpecError("endpoint", said, "change the request, or the further fields sent with it")


def given_up(trouble: Trouble, tries: int, server: Server, longest: float) -> SpecError:
    """Return the error for a question whose tries are used up, or for which the server asks too long a wait."""
    problem = f"{server.url} gave no answer in {tries} tries; the last: {trouble.said}"
    if trouble.wait > longest:
        problem = f"{server.url} asks to wait {trouble.wait:.0f} s ({trouble.said})"
    return SpecError("endpoint", problem, _LATER)
