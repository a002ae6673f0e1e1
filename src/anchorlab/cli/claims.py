"""`anchorlab claims`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anchorlab.cli.complete import StudyName
from anchorlab.cli.output import Flag, Json, number, print_json, print_table, print_text

if TYPE_CHECKING:
    from anchorlab.findings import ClaimResult, Counts, Entry, Evidence, Findings, Verdict
    from anchorlab.studies import Study

_COLOURS = {
    "reproduced": "green",
    "not at this scale": "yellow",
    "contradicted": "red",
    "not measured": "dim",
    "supported": "green",
    "not supported": "red",
}


def claims(
    *names: StudyName,
    measured: Flag = False,
    counts: Flag = False,
    store: Path | None = None,
    json: Json = False,
) -> None:
    """List the papers' claims with our values and verdicts.

    If a claim was measured under several profiles, the strongest evidence comes first: the paper's own setting, then
    `scaled`, then `quick`. A value outside the band contradicts the paper only if it was measured in the paper's own
    setting or computed exactly; otherwise the verdict is `not at this scale`.

    Beside our value is what the same measure gives on members that were never trained. A claim that they pass, too,
    `also holds untrained`. At the end are the counts by verdict and by scope of the strongest evidence.

    Parameters
    ----------
    names
        List only the claims of these studies: names, or patterns such as `'anchor/*'`.
    measured
        Leave out studies that have not been run in this store.
    counts
        Print the counts alone.
    store
        Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`.
    json
        Print JSON: one entry for each claim and profile; with `--counts`, an object of counts.
    """
    from anchorlab.findings import counts as count
    from anchorlab.findings import ledger
    from anchorlab.runs import Store
    from anchorlab.spec import unknown_name
    from anchorlab.studies import STUDIES, kept_findings
    from anchorlab.studies import study as find_study

    kept = kept_findings(Store(store))
    run = {findings.study for findings in kept}
    known = {*STUDIES, *run}
    for name in names:
        if not any(fnmatchcase(one, name) for one in known):
            raise unknown_name("study", name, known, "study")

    def chosen(study: str) -> bool:
        return not names or any(fnmatchcase(study, name) for name in names)

    kept = [_judged_again(findings) for findings in kept if chosen(findings.study)]
    entries, silent = ledger(kept), [findings for findings in kept if not findings.claims]
    missing = [] if measured else [find_study(name) for name in STUDIES if name not in run and chosen(name)]
    unmeasured = [study.claim(one).judge(None, "") for study in missing for one in study.claims]
    counted = count([*(entry.strongest for entry in entries), *unmeasured])
    if json and counts:
        print_json(_counts_data(counted))
    elif json:
        rows = [evidence_data(one) for entry in entries for one in entry.evidence]
        print_json(rows + [_unmeasured(study, claim) for study in missing for claim in study.claims])
    elif not kept and not missing:
        print_text("none of these studies has been run in this store yet")
    elif counts:
        _print_counts(counted)
    else:
        for name, own in groupby(entries, key=lambda entry: entry.study):
            _print_entries(name, list(own))
        for study in missing:
            head = Text.assemble((study.name, "bold"), f"  not run yet, {len(study.claims)} claims")
            _print_ledger(head, [(study.claim(one).judge(None, ""), ()) for one in study.claims])
        print_claims(silent)
        if counted.total:
            _print_counts(counted)


def _counts_data(counted: "Counts") -> dict[str, Any]:
    verdicts = {verdict: {"all": counted.of(verdict), **scopes} for verdict, scopes in counted.verdicts.items()}
    return {"claims": counted.total, "verdicts": verdicts, "also_untrained": counted.also_untrained}


def _print_counts(counted: "Counts") -> None:
    """Print how many claims have each verdict, by scope, and how many hold untrained too."""
    from anchorlab.findings import SCOPES, SYMBOLS

    rows = [
        (f"{SYMBOLS[verdict]} {verdict}", counted.of(verdict), *(scopes[one] for one in SCOPES))
        for verdict, scopes in counted.verdicts.items()
    ]
    print_table(("verdict", "claims", *SCOPES), rows, title="counts by verdict and scope")
    print_text(f"{counted.also_untrained} of {counted.total} also hold untrained")


def _judged_again(findings: "Findings") -> "Findings":
    """Return findings judged by the claims of today; as they are if the study is not ours or measured otherwise."""
    from anchorlab.errors import SpecError
    from anchorlab.studies import STUDIES, study

    if findings.study not in STUDIES:
        return findings
    try:
        return study(findings.study).judge_again(findings)
    except SpecError:
        return findings


def evidence_data(evidence: "Evidence") -> dict[str, Any]:
    """Return one result of a claim, with the provenance of its value, as plain data."""
    source = evidence.provenance
    return {**claim_data(evidence.result), "seeds": source.seeds, "commit": source.commit, "hardware": source.hardware}


def claim_data(result: "ClaimResult") -> dict[str, Any]:
    """Return a claim with its verdict as plain data."""
    return {
        "id": result.claim.id,
        "statement": result.claim.statement,
        "source": result.claim.source,
        "paper": result.claim.paper,
        "measured_as": result.claim.measured_as,
        "value": result.value,
        "spread": result.spread,
        "detail": result.detail,
        "band": result.claim.band,
        "profile": result.profile,
        "scope": result.scope,
        "verdict": result.verdict,
        "untrained": None if result.untrained is None else result.untrained.value,
        "untrained_note": None if result.untrained is None else result.untrained.note,
        "holds_untrained": result.holds_untrained,
    }


def _unmeasured(study: "Study[Any]", measure: Any) -> dict[str, Any]:
    result = study.claim(measure).judge(None, "")
    nothing = {"profile": None, "scope": None, "seeds": None, "commit": None, "hardware": None}
    return {**claim_data(result), **nothing}


def print_claims(kept: "Sequence[Findings]") -> None:
    """Print the claims of findings, study by study: each with its verdict, our value and the paper's."""
    for findings in kept:
        head = Text.assemble((findings.study, "bold"), f"  profile {findings.profile}")
        _print_ledger(head.append(f", {reproduced_text(findings.claims)}"), [(one, ()) for one in findings.claims])


def reproduced_text(results: "Sequence[ClaimResult]") -> str:
    """Return in words how many claims were reproduced, and how many have each other verdict.

    >>> reproduced_text(findings.claims)
    '3 of 7 claims reproduced, 4 not at this scale'
    """
    from anchorlab.findings import SYMBOLS

    if not results:
        return "no claims"
    verdicts = [result.verdict for result in results]
    named: Verdict = "supported" if any(result.scope == "own" for result in results) else "reproduced"
    counts = {one: verdicts.count(one) for one in SYMBOLS if one != named}
    others = "".join(f", {count} {verdict}" for verdict, count in counts.items() if count)
    return f"{verdicts.count(named)} of {len(verdicts)} claims {named}{others}"


def _print_entries(study: str, entries: "Sequence[Entry]") -> None:
    profiles = dict.fromkeys(one.result.profile for entry in entries for one in entry.evidence)
    named = f"profile{'s' if len(profiles) > 1 else ''} {', '.join(profiles)}"
    text = reproduced_text([entry.strongest for entry in entries])
    head = Text.assemble((study, "bold"), f"  {named}, {text}")
    one_profile = len(profiles) == 1
    rows = [(entry.strongest, () if one_profile else [one.result for one in entry.evidence[1:]]) for entry in entries]
    _print_ledger(head, rows, with_profile=not one_profile)


def _print_ledger(
    head: Text, rows: "Sequence[tuple[ClaimResult, Sequence[ClaimResult]]]", with_profile: bool = False
) -> None:
    """Print each claim's strongest result, and below it those under other profiles."""
    from anchorlab.findings import SYMBOLS

    print_text(head)
    if not rows:
        return
    lines = Table.grid(padding=(0, 1))
    for result, others in rows:
        colour = _COLOURS[result.verdict]
        lines.add_row(Text(SYMBOLS[result.verdict], f"bold {colour}"), Text(result.claim.statement))
        values = _values(result, with_profile)
        lines.add_row("", Text(f"measured as {result.claim.measured_as}", "dim"))
        lines.add_row("", values.append(f" · paper {result.claim.paper} · accepted {result.claim.band_text}", "dim"))
        for other in others:
            if other.verdict != "not measured":
                lines.add_row("", Text("also: ", "dim").append(_values(other, with_profile)))
    print_text(Padding(lines, (0, 0, 1, 2)))


def _values(result: "ClaimResult", with_profile: bool) -> Text:
    text = Text(result.verdict, _COLOURS[result.verdict])
    if result.verdict == "not measured":
        return text
    if result.scope_text:
        text.append(f" ({result.scope_text})", "default")
    if with_profile:
        text.append(f" · {result.profile}", "default")
    if result.value is not None:
        text.append(" · ours ", "default").append(number(result.value), "bold default")
    for more in filter(None, (result.spread, result.detail)):
        text.append(f" ({more})", "default")
    return text.append(_untrained(result))


def _untrained(result: "ClaimResult") -> Text:
    """Return what untrained members give, with the mark of a claim that they pass; empty without a control."""
    from anchorlab.findings import ALSO_UNTRAINED

    control = result.untrained
    if control is None:
        return Text()
    text = Text(f" · untrained {result.untrained_text}", "default")
    if control.value is None and control.note:
        text.append(f" ({control.note})", "default")
    return text.append(f" · {ALSO_UNTRAINED}", "magenta") if result.holds_untrained else text
