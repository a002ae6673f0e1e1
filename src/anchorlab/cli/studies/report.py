"""`anchorlab report`."""

from pathlib import Path

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import check_file, hand_out
from anchorlab.errors import StoreError


def report(*, store: shared.StoreFolder = None, out: Path | None = None, json: shared.Json = False) -> None:
    """Write one HTML page with all findings in the store.

    Parameters
    ----------
    out
        File to write; by default `report.html` in the store.
    """
    from anchorlab.report import write_report
    from anchorlab.studies import kept_findings

    kept = shared.existing_store(store)
    found = kept_findings(kept)
    if not found:
        raise StoreError(f"{kept.root}: has no findings; run `anchorlab study NAME` first")
    check_file(out, "out")
    page = (out or kept.root / "report.html").absolute()
    write_report(found, page)
    studies = [{"study": findings.study, "profile": findings.profile} for findings in found]
    hand_out(json, lambda: {"report": str(page), "studies": studies}, (), report=page)
