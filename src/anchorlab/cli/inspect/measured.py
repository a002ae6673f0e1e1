"""The common steps of commands that measure a run: check the options, open the run, draw the figure."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import counted
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.findings import Figure

_MOST = 100_000  # sequences


def check_sequences(count: int, option: str = "sequences", noun: str = "") -> None:
    """Raise `SpecError` for a number of sequences below 1, or too large to fit in memory."""
    if not 1 <= count <= _MOST:
        raise SpecError(option, f"cannot measure on {count}{noun}", f"give 1 to {_MOST}")


class Measured:
    """A run that a command measures; its computing time counts from here until the figure is drawn.

    Errors: as `shared.found_runs`; `SpecError` for a member that the run does not have.
    """

    def __init__(self, name: str, store: str | Path | None, member: int | None = None) -> None:
        from anchorlab.training import TrainedRun

        self._began = time.monotonic()
        self.trained = TrainedRun(shared.found_runs(store, name)[0])
        self.task, self.members = self.trained.experiment.task, self.trained.experiment.members
        self.label, self.address = self.trained.run.label, self.trained.run.address
        count = len(self.members)
        if member is not None and not 0 <= member < count:
            problem = f"{member} is outside {counted(count, 'member')}"
            raise SpecError("member", problem, f"choose from 0..{count - 1}")

    def at(self, step: int | None) -> int:
        """Return the step of a checkpoint, by default the last."""
        return self.trained.checkpoints[-1] if step is None else step

    def draw(self, file: Path | None, figure: "Callable[[], Figure]") -> None:
        """Write the figure that the function returns, with the run as its origin, if a file is named."""
        if file is not None:
            from anchorlab.findings import provenance
            from anchorlab.report import save  # imports matplotlib

            save(figure(), provenance("own", [self.trained], time.monotonic() - self._began), file)
