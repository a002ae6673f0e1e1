"""`anchorlab claims`."""

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.text import Text

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import number, print_json, print_table, print_text
from anchorlab.errors import SpecError
from anchorlab.names import STUDIES
from anchorlab.printable import first_few

if TYPE_CHECKING:
    from anchorlab.findings import ClaimResult, Evidence, Findings, LedgerEntry
    from anchorlab.findings.statements import Statements

_VERDICTS = {
    "green": ("reproduced", "supported", "met"),
    "red": ("contradicted", "not supported", "not met"),
    "cyan": ("agrees at our sizes", "agrees at small scale"),
    "yellow": ("differs at our sizes", "differs at small scale"),
    "magenta": ("undecided",),
    "dim": ("not measured",),
}
_COLOURS = {verdict: colour for colour, verdicts in _VERDICTS.items() for verdict in verdicts}
_MOST_PROFILES = 20  # profiles of a study that are named


class _Block(NamedTuple):
    """The printed results of one study.

    Fields
        head: its heading
        rows: the results claim by claim, each with whether it is the strongest evidence for its claim
        with_profile: whether results name their profiles
        published: whether the results are the published ones, because the study has not been run here
    """

    head: Text
    rows: "list[tuple[ClaimResult, bool]]"
    with_profile: bool = False
    published: bool = False


def claims(
    *names: shared.StudyName,
    measured: shared.Flag = False,
    counts: shared.Flag = False,
    store: shared.StoreFolder = None,
    json: shared.Flag = False,
) -> None:
    """List the papers' claims with our values and verdicts.

    If a claim was measured under several profiles, the strongest evidence comes first: the paper's own setting, then
    the profile with the most units, such as seeds. A claim is `reproduced` or `contradicted` only in the paper's own
    setting or by an exact computation. A theorem that names no sizes `agrees at our sizes` or `differs at our sizes`;
    anywhere else a claim `agrees at small scale` or `differs at small scale`.

    If a study has not been run in this store, its published results are shown; the counts cover only this store.

    Next to our value is the value of the same measure on untrained members. If they pass too, the claim `also holds
    untrained`. Studies of heads and mechanisms also measure members trained on another task; if these pass, the claim
    `also holds for another task`. At the end are the counts by verdict and by scope of the strongest evidence.

    Parameters
    ----------
    names
        List only the claims of these studies: names, or patterns such as `'anchor/*'`.
    measured
        Leave out studies that have not been run in this store.
    counts
        Print only the counts.
    json
        Print JSON: one entry for each claim and profile; with `--counts`, an object of counts.
    """
    from anchorlab.findings import ledger
    from anchorlab.findings.kept import kept_findings
    from anchorlab.papers.words import statements
    from anchorlab.spec import unknown_name

    ours = statements()
    gc.freeze()  # what is imported stays: looking for garbage in it would take a fifth of the time
    kept = kept_findings(shared.existing_store(store))
    run = {findings.study for findings in kept}
    known = {*STUDIES, *run}
    for name in names:
        if any(fnmatchcase(one, name) for one in known):
            continue
        if name.endswith((".py", ".toml")) or name.startswith(("own/", "sweep/")):
            file = name if name.endswith((".py", ".toml")) else "FILE"
            remedy = f"run it by `anchorlab study {file}`, then list its claims by its name"
            raise SpecError("study", f"{name} has not run in this store", remedy)
        raise unknown_name("study", name, known, "study")

    def chosen(study: str) -> bool:
        return not names or any(fnmatchcase(study, name) for name in names)

    kept = [_judged_again(findings) for findings in kept if chosen(findings.study)]
    entries, silent = ledger(kept), [findings for findings in kept if not findings.claims]
    missing = [] if measured else [ours[name] for name in STUDIES if name not in run and chosen(name)]
    unmeasured = [one for study in missing for one in study.unmeasured()]
    results = [*(entry.strongest for entry in entries), *unmeasured]
    if json and counts:
        print_json(_counts_data(results))
    elif json:
        rows = [evidence_data(one) for entry in entries for one in entry.evidence]
        rows += [_unmeasured(one, study) for study in missing for one in study.unmeasured()]
        print_json(rows)
    elif not kept and not missing:
        print_text("none of these studies has been run in this store yet")
    elif counts:
        _print_counts(results)
    else:
        blocks = [_entries_block(name, list(own)) for name, own in groupby(entries, key=lambda entry: entry.study)]
        blocks += map(_published_block, missing)
        _print_blocks([*blocks, *map(_findings_block, silent)])
        if results:
            _print_counts(results)


def _counts_data(results: "Sequence[ClaimResult]") -> dict[str, Any]:
    from anchorlab.findings import counts, counts_apart

    counted, apart = counts(results), counts_apart(results)
    verdicts = {verdict: {"all": counted.of(verdict), **scopes} for verdict, scopes in counted.verdicts.items()}
    also = {"also_untrained": counted.also_untrained, "also_other_task": counted.also_other_task}
    return {"claims": counted.total, "verdicts": verdicts, **also, "apart": apart}


def _print_counts(results: "Sequence[ClaimResult]") -> None:
    from anchorlab.findings import SCOPES, SYMBOLS, counts, counts_apart

    counted, apart = counts(results), counts_apart(results)

    rows = [
        (f"{SYMBOLS[verdict]} {verdict}", counted.of(verdict), *(scopes[one] for one in SCOPES))
        for verdict, scopes in counted.verdicts.items()
    ]
    print_table(("verdict", "claims", *SCOPES), rows, title="counts by verdict and scope")
    print_text(f"{counted.also_untrained} of {counted.total} also hold untrained")
    if counted.also_other_task:
        print_text(f"{counted.also_other_task} also hold for another task")
    if apart:
        each = ", ".join(f"{number} {verdict}" for verdict, number in apart.items())
        print_text(f"counted apart, claims of other works and your own or our questions: {each}")


def _judged_again(findings: "Findings") -> "Findings":
    """Return findings judged by the current claims; unchanged if the study is not built in or measured differently."""
    from anchorlab.papers.words import statements

    if findings.study not in STUDIES:
        return findings
    try:
        return statements()[findings.study].judge_again(findings)
    except SpecError:
        return findings


def evidence_data(evidence: "Evidence") -> dict[str, Any]:
    """Return one result of a claim, with the provenance of its value, as plain data."""
    source = evidence.provenance
    seeds = {"seeds": source.seeds, "search_seeds": source.chosen_on}
    return {**claim_data(evidence.result), **seeds, "commit": source.commit, "hardware": source.hardware}


def claim_data(result: "ClaimResult") -> dict[str, Any]:
    """Return a claim with its verdict as plain data."""
    claim = result.claim
    return {
        **{name: getattr(claim, name) for name in ("id", "statement", "source", "paper", "measured_as")},
        "value": result.value,
        "n": len(result.units) or None,
        **{name: getattr(result, name) for name in ("interval", "units", "spread", "detail")},
        "band": claim.band,
        **{name: getattr(result, name) for name in ("profile", "scope", "verdict", "disputed", "models")},
        "untrained": None if result.untrained is None else result.untrained.value,
        "untrained_note": None if result.untrained is None else result.untrained.note,
        "holds_untrained": result.holds_untrained,
        "other_task": None if result.other_task is None else result.other_task.value,
        "other_task_note": None if result.other_task is None else result.other_task.note,
        "holds_for_other_task": result.holds_for_other_task,
    }


def _unmeasured(result: "ClaimResult", study: "Statements") -> dict[str, Any]:
    """Return a claim of a study not run here, with the seeds on which its setting was chosen and published evidence."""
    from anchorlab.papers.published import published_entries

    nothing = dict.fromkeys(("profile", "scope", "seeds", "commit", "hardware"))
    shipped = published_entries().get(result.claim.id)
    evidence = [] if shipped is None else list(map(evidence_data, shipped.evidence))
    return {**claim_data(result), **nothing, "search_seeds": study.chosen_on, "published": evidence}


def print_claims(kept: "Sequence[Findings]") -> None:
    """Print the claims of findings, study by study: each with its verdict, our value and the paper's."""
    _print_blocks(list(map(_findings_block, kept)))


def print_origin(findings: "Findings", page: Path | None) -> None:
    """Print the provenance of findings, their computing time, and their page if they have one."""
    from anchorlab.report.page import time_text

    print_text(f"{findings.provenance.line} · {time_text(findings.provenance)}")
    if page is not None:
        print_text(f"report: {page.absolute()}", wrapped=False)


def verdicts_text(results: "Sequence[ClaimResult]") -> str:
    """Return the number of claims with each verdict as text, without `at small scale` so that it fits on a line.

    >>> verdicts_text(findings.claims)
    '7 claims: reproduced 3, differs 4'
    """
    from anchorlab.findings import SYMBOLS

    verdicts = [result.verdict for result in results if not result.claim.precondition]
    if not verdicts:
        return "no claims"
    found = Counter(verdicts)
    counted = ", ".join(
        f"{verdict.removesuffix(' at small scale')} {found[verdict]}" for verdict in SYMBOLS if found[verdict]
    )
    return f"{len(verdicts)} claim{'s' if len(verdicts) > 1 else ''}: {counted}"


def _findings_block(findings: "Findings") -> _Block:
    text = f"  profile {findings.profile}, {verdicts_text(findings.claims)}"
    return _Block(Text.assemble((findings.study, "bold"), text), [(one, True) for one in findings.claims])


def _published_block(study: "Statements") -> _Block:
    from anchorlab.papers.published import published_entries

    shipped = published_entries()
    rows = [shipped[one.claim.id].strongest if one.claim.id in shipped else one for one in study.unmeasured()]
    head = Text.assemble((study.study, "bold"), f"  not run here; published: {verdicts_text(rows)}")
    return _Block(head, [(one, True) for one in rows], True, True)


def _entries_block(study: str, entries: "Sequence[LedgerEntry]") -> _Block:
    profiles = list(dict.fromkeys(one.result.profile for entry in entries for one in entry.evidence))
    several = len(profiles) > 1
    named = f"profile{'s' if several else ''} {first_few(profiles, most=_MOST_PROFILES)}"
    text = verdicts_text([entry.strongest for entry in entries])
    head = Text.assemble((study, "bold"), f"  {named}, {text}")
    rows = [(one.result, place == 0) for entry in entries for place, one in enumerate(entry.evidence)]
    return _Block(head, [row for row in rows if row[1] or several], several)


def _print_blocks(blocks: Sequence[_Block]) -> None:
    console = Console()
    width = max(console.width - 4, 1)
    for block in blocks:
        print_text(block.head)
        if block.rows:
            lines = [line for row in block.rows for line in _lines(*row, block)]
            parts = [part for sign, line in lines for part in _wrapped(sign, line, width, console)]
            print_text(Text("\n").join(parts).append("\n"), wrapped=False)


def _lines(result: "ClaimResult", strongest: bool, block: _Block) -> Iterator[tuple[str | Text, Text]]:
    """Yield the lines printed for a result, each with the symbol before it; for a weaker result, only its value."""
    from anchorlab.findings import SYMBOLS

    if strongest:
        yield Text(SYMBOLS[result.verdict], f"bold {_COLOURS[result.verdict]}"), Text(result.claim.statement)
        yield " ", Text(f"measured as {result.claim.measured_as}", "dim")
        told = f" · paper {result.claim.paper} · accepted {result.claim.band_text}"
        where = Text("published: " if block.published and result.value is not None else "", "dim")
        yield " ", where.append(_values(result, block.with_profile)).append(told, "dim")
    elif result.verdict != "not measured":
        yield " ", Text("also: ", "dim").append(_values(result, block.with_profile))


def _wrapped(sign: str | Text, line: Text, width: int, console: Console) -> Iterator[Text]:
    """Yield a line wrapped to the width of the terminal and indented, with the sign before its first part."""
    for part in [line] if line.cell_len <= width else line.wrap(console, width):
        part.rstrip()
        yield Text.assemble("  ", sign, " ", part)
        sign = " "


def _values(result: "ClaimResult", with_profile: bool) -> Text:
    text = Text(result.verdict, _COLOURS[result.verdict])
    if result.verdict == "not measured":
        return text.append(f" ({result.detail})" if result.detail else "", "default")
    for more in filter(None, (result.scope_text, result.agreement_text)):
        text.append(f" ({more})", "default")
    if with_profile:
        text.append(f" · {result.profile}", "default")
    if result.value is not None:
        text.append(" · ours ", "default").append(number(result.value), "bold default")
    for more in filter(None, (result.interval_text, result.spread, result.detail)):
        text.append(f" ({more})", "default")
    for name, control in result.controls.items():
        why = f" ({control.note})" if control.value is None else ""
        text.append(f" · {name} {control.text}{why}", "default")
        if name in result.marks:
            text.append(f" · {result.marks[name]}", "magenta")
    return text
