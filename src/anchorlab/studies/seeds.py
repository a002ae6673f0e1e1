"""Seeds for publication: none may have been used to choose a setting."""

from collections.abc import Sequence

from anchorlab.errors import SpecError
from anchorlab.training import Experiment

SEARCHED = range(110)
"""The seeds on which the settings of anchorlab's studies are chosen, by looking at what their claims measure."""

_PUBLISHED = 1000


def fresh(count: int) -> tuple[int, ...]:
    """Return seeds that were not used to choose a setting: 1000 and up."""
    return tuple(range(_PUBLISHED, _PUBLISHED + count))


def check_fresh(experiments: Sequence[Experiment], chosen_on: Sequence[int]) -> None:
    """Raise `SpecError` if a member of the experiments has a seed that was used to choose their setting."""
    used = {seed for one in experiments for seed in one.members.seeds}
    if both := sorted(used & set(chosen_on)):
        problem = f"{both[0]} is among the seeds on which the setting was chosen"
        raise SpecError("seeds", problem, f"give seeds from {max(chosen_on) + 1} on")
