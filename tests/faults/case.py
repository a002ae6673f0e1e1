"""Cases: what one study or file has met, and what that has cost."""

from dataclasses import dataclass, field

from tests.faults.moments import Struck


@dataclass
class Case:
    """One study that met faults.

    Fields
        name: what repeats it, such as `local:17`
        faults: what has happened
        late: how many faults came too late to happen
        cost: in words, what was lost; empty if nothing
        lost: in words, what a power cut took from the disk, which should cost nothing
        seconds: how long it took
    """

    name: str = ""
    faults: list[Struck] = field(default_factory=list)
    late: int = 0
    cost: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0
