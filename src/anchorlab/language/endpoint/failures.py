"""Outcomes of a failed try: trouble that may pass, or a rejection for good."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["limited", "failed", "dropped", "late", "malformed", "absent"]


@dataclass(frozen=True)
class Trouble:
    """A failed try that is worth repeating.

    Fields
        kind: `limited` (429), `failed` (5xx and the like), `dropped` (the connection), `late` (a timeout), `malformed`
            (a reply that is not an answer), `absent` (nothing listens at the address)
        said: what happened, in words
        wait: the wait that the server asks for, in seconds
        charged: whether the server may charge for the try nevertheless
    """

    kind: Kind
    said: str
    wait: float = 0.0
    charged: bool = False


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
