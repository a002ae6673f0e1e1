"""`anchorlab report`."""

from pathlib import Path

from anchorlab.cli.output import console
from anchorlab.errors import StoreError
from anchorlab.report import write_report
from anchorlab.runs import Store
from anchorlab.studies import kept_findings


def report(*, store: Path | None = None, out: Path | None = None) -> None:
    """Write one page from all findings of the store.

    Parameters
    ----------
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    out
        Where to write it; by default `report.html` in the store.
    """
    kept = Store(store)
    found = kept_findings(kept)
    if not found:
        raise StoreError(f"{kept.root}: no findings yet; `anchorlab study NAME` makes some")
    page = out or kept.root / "report.html"
    write_report(found, page)
    console.print(f"report: {page.absolute()}", soft_wrap=True)
