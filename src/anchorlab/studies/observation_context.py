"""The context of a study without experiments: its folder in the store, the device, whether it may download."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from anchorlab.engine import Status
from anchorlab.language.endpoint import Access


@dataclass(frozen=True)
class ObservationContext:
    """The second argument of `Study.observe`, after the setting.

    Fields
        folder: for partial results of this study and profile, so that a killed run resumes; the study creates it
        report: called with the progress
        device: `cpu` or `cuda`
        download: whether a pretrained model may be fetched
        answers: folder for the answers of models behind servers, which all studies and profiles of the store share;
            None for `folder`
        access: how to reach models behind servers
    """

    folder: Path
    report: Callable[[Status], None] = lambda status: None
    device: str = "cpu"
    download: bool = False
    answers: Path | None = None
    access: Access = field(default_factory=Access)


class WorkDone:
    """Progress through a known amount of work, reported to a context."""

    def __init__(self, context: ObservationContext, total: int) -> None:
        self.context, self.total, self.done = context, total, 0

    def step(self, label: str, work: int = 1) -> None:
        """Report that more work is done."""
        self.done = min(self.done + work, self.total)
        self.context.report(Status(self.total, self.done, label))
