"""Counts of requests to a server and their outcomes."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts of an endpoint's requests and outcomes since it was created.

    Fields
        remembered: answers found in the journal
        answered: answers from the server, of which `refused` are refusals and `empty` hold no text
        limited, failed, dropped, late, malformed, absent: failed tries by kind, as in `Trouble`
        read, written: input and output tokens, as reported by the server
        cost: the money spent, by the given prices
        models: the number of answers under each model name
    """

    remembered: int = 0
    answered: int = 0
    refused: int = 0
    empty: int = 0
    limited: int = 0
    failed: int = 0
    dropped: int = 0
    late: int = 0
    malformed: int = 0
    absent: int = 0
    read: int = 0
    written: int = 0
    cost: float = 0.0
    models: Counter[str] = field(default_factory=Counter)
