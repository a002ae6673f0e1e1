"""`anchorlab report`."""

from pathlib import Path

from anchorlab.cli.output import Json, check_page, print_json, print_text
from anchorlab.errors import StoreError


def report(*, store: Path | None = None, out: Path | None = None, json: Json = False) -> None:
    """Write one page from all findings of the store.

    Parameters
    ----------
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    out
        Where to write it; by default `report.html` in the store.
    json
        Where it lies and what is on it as JSON, for scripts.
    """
    from anchorlab.report import write_report
    from anchorlab.runs import Store
    from anchorlab.studies import kept_findings

    kept = Store(store)
    found = kept_findings(kept)
    if not found:
        raise StoreError(f"{kept.root}: no findings yet; `anchorlab study NAME` makes some")
    check_page(out)
    page = out or kept.root / "report.html"
    write_report(found, page)
    if json:
        on_it = [{"study": findings.study, "profile": findings.profile} for findings in found]
        print_json({"report": str(page.absolute()), "studies": on_it})
        return
    print_text(f"report: {page.absolute()}", wrapped=False)
