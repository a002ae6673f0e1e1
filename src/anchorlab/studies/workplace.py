"""Where a study without experiments measures: its folder in the store, the device, and whether it may download."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anchorlab.engine import Status


def no_report(status: Status) -> None:
    """Take a status and show nothing."""


@dataclass(frozen=True)
class Workplace:
    """What `Study.observe` gets beside its setting.

    Fields
        folder: for partial results, of this study and profile alone, so that a killed run resumes; the study makes it
        report: called with the progress
        device: `cpu` or `cuda`
        download: whether a pretrained model may be fetched
    """

    folder: Path
    report: Callable[[Status], None] = no_report
    device: str = "cpu"
    download: bool = False
