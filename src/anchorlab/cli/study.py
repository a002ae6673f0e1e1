"""`anchorlab study`."""

import json as json_module
from pathlib import Path

from anchorlab.cli.claims import claim_data, print_claims
from anchorlab.cli.output import Json, check_page, print_json, print_text, progress


def study(
    name: str,
    /,
    *,
    profile: str = "quick",
    store: Path | None = None,
    report: Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    json: Json = False,
) -> None:
    """Run a study: train what is missing, analyse, check the claims, write the report.

    Parameters
    ----------
    name
        A name from `anchorlab studies`.
    profile
        `quick` shows the phenomenon on two cores in minutes; `paper` is the paper's own setting.
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    report
        Where to write the page; by default beside the findings in the store.
    workers
        Processes that share the members on a CPU; by default one for every core.
    device
        `cpu` or `cuda`.
    json
        The claims as JSON, for scripts.
    """
    from anchorlab.report import write_report
    from anchorlab.runs import Store
    from anchorlab.studies import findings_directory, run_study
    from anchorlab.studies import study as find_study

    chosen = find_study(name)
    check_page(report)
    kept = Store(store)
    with progress(quiet=json) as tell:
        findings = run_study(chosen, profile, kept, workers, device, tell)
    page = report or findings_directory(kept, name, profile) / "report.html"
    write_report(findings, page)
    if json:
        print_json(
            {
                "study": name,
                "profile": profile,
                "report": str(page.absolute()),
                "claims": [claim_data(result) for result in findings.claims],
                "provenance": json_module.loads(findings.to_json())["provenance"],
            }
        )
        return
    print_claims([findings])
    print_text(f"{findings.provenance.line} · {findings.provenance.seconds:g} s")
    print_text(f"report: {page.absolute()}", wrapped=False)
