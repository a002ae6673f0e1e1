"""What one try can come to, beside an answer."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["limited", "failed", "dropped", "late", "malformed", "absent"]


@dataclass(frozen=True)
class Trouble:
    """A try that may well succeed later.

    Fields
        kind: `limited` (429), `failed` (5xx and the like), `dropped` (the connection), `late` (a timeout), `malformed`
            (a reply that is no answer), `absent` (nobody takes connections at the address)
        said: what happened, in words
        wait: the seconds that the server asks to wait
        charged: whether the server may charge for it all the same
    """

    kind: Kind
    said: str
    wait: float = 0.0
    charged: bool = False


@dataclass(frozen=True)
class Rejection:
    """A request that the server does not take and would not take later.

    Fields
        status: of HTTP
        said: the server's words
        code: its word for the reason, if it gives one
    """

    status: int
    said: str
    code: str = ""
