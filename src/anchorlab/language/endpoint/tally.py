"""Counts of what asking came to."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What was asked of a server and what came back, since the endpoint was made.

    Fields
        remembered: answers that the journal held
        answered: answers of the server, of which `refused` are refusals and `empty` hold no text
        limited, failed, dropped, late, malformed, absent: tries that brought no answer, by what went wrong
        read, written: tokens, as the server counts them
        cost: by the prices given
        models: how many answers came back under which name of a model
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
