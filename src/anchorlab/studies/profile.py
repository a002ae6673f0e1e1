"""A profile: one setting of a study."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Setting = TypeVar("Setting")


@dataclass(frozen=True)
class Profile(Generic[Setting]):
    """One setting of a study: `paper` is the paper's own, `quick` shows the phenomenon on two cores in minutes,
    `scaled` comes nearer to the paper within hours.

    Args:
        setting: the sizes that differ between profiles, a frozen value
        note: what the paper leaves open and what is ours; every report shows it after a description of the
            experiments, as in `Study.note_of`
        paper: whether this is the paper's own setting, for all claims, or the names of the claims for which it is
    """

    setting: Setting
    note: str = ""
    paper: bool | tuple[str, ...] = False

    def is_papers_setting(self, claim: str) -> bool:
        """Return whether this is the paper's own setting for a claim, given by its measure's name."""
        return self.paper if isinstance(self.paper, bool) else claim in self.paper
