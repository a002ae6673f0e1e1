"""Error messages for requests that a server rejects for good."""

from anchorlab.errors import SpecError
from anchorlab.language.asking.request import Request
from anchorlab.language.endpoint.failures import Rejection, Trouble
from anchorlab.language.endpoint.server import Server

NO_CONTINUING = "give the model's tokenizer, or ask without a beginning, or in plain text (chat=False)"


def explained(rejection: Rejection, request: Request, server: Server, has_key: bool) -> SpecError:
    """Return the error for a rejected request: the field to change, the server's message and the remedy."""
    said = f"{server.url} says {rejection.status}: {rejection.said}"
    said_so = rejection.said.lower()
    named = any(word in said_so for word in ("model", "pinned")) and server.model.lower() in said_so
    if 300 <= rejection.status < 400:
        problem = f"{server.url} sends questions on to {rejection.said or 'another address'}, which is not followed"
        return SpecError("endpoint", problem, "give that address up to and with /v1 if you trust it")
    if rejection.status in (401, 403):
        if not has_key:
            return SpecError("key", f"{server.url} asks for a key, and ${server.key_variable} is not set", "set it")
        return SpecError("key", said, f"check the key in ${server.key_variable}")
    if rejection.status in (402, 429):
        return SpecError("endpoint", f"no credit is left: {said}", "run it again later; no question is asked twice")
    if "model" in rejection.code or named:
        return SpecError("model", said, f"give a name that {server.url}/models lists")
    if rejection.status in (404, 405):
        return SpecError("endpoint", said, "give the address up to and with /v1")
    if request.chat and request.begun and server.tokenizer is None and rejection.status in (400, 422):
        return SpecError("endpoint", f"does not go on with a begun answer; {said}", NO_CONTINUING)
    return SpecError("endpoint", said, "change the request, or the further fields sent with it")


def absent(trouble: Trouble, server: Server) -> SpecError:
    """Return the error for an address at which no server has answered yet."""
    return SpecError("endpoint", f"no server at {server.url} ({trouble.said})", "start it, or check the address")


def given_up(trouble: Trouble, tries: int, server: Server, longest: float) -> SpecError:
    """Return the error for a question whose tries are used up, or for which the server asks too long a wait."""
    if trouble.wait > longest:
        problem = f"{server.url} asks to wait {trouble.wait:.0f} s ({trouble.said})"
    else:
        problem = f"{server.url} gave no answer in {tries} tries; the last: {trouble.said}"
    return SpecError("endpoint", problem, "run it again later; no question is asked twice")


def other_model(came: str, server: Server) -> SpecError:
    """Return the error for an answer under another model's name than the requested one."""
    return SpecError(
        "model", f"{server.model!r} was asked and {came!r} answered", "give that name, or allow it (answers_as)"
    )
