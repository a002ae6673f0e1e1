"""What a study that trains nothing returns from `observe`."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Observed(Generic[Seen]):
    """What a study measured of a pretrained model: the argument of its drawings.

    If they draw more than the claims read, add fields in a subclass.

    Fields
        seen: the argument of the claims
        untrained: the same for an untrained model, as the control of every claim; None for no such control
        model: the measured model in words, such as its name, revision and number of parameters
        seeds: the seeds of what the study draws, in words
    """

    seen: Seen
    untrained: Seen | None
    model: str
    seeds: str = "none"
