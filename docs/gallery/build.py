"""Publish the newest findings of a store: figures, claims and settings for the docs, the ledger, the README's
counts, and the claims that the package ships.

    python docs/gallery/build.py --store runs
    python docs/gallery/build.py --store runs --rest
    python docs/gallery/build.py --published
    python docs/gallery/build.py --published --untrained --store FOLDER

The second keeps what is published of the studies that the store has no findings of. Both judge the papers' own settings
on the seeds of which `paper-models` has a part of every experiment, too. The third redraws what is published
and judges it again, by the bands and scopes of today; it needs no runs. The fourth measures every published claim on
untrained members first, which takes minutes; a run of the study does so by itself.
All figures, tables, claims and settings in the docs come from here; the text of the pages quotes them.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from anchorlab.findings import (
    MARKS,
    OTHER_TASK,
    SCOPES,
    SYMBOLS,
    UNTRAINED,
    VERDICTS,
    ClaimResult,
    Counts,
    Figure,
    Findings,
    Provenance,
    Scope,
    Table,
    Verdict,
    counts,
    counts_apart,
    ledger,
)
from anchorlab.papers.published import FILE
from anchorlab.papers.verifying import candidates
from anchorlab.report import save
from anchorlab.report.page import time_text, value_text
from anchorlab.runs import Store
from anchorlab.spec import Spec
from anchorlab.studies import STUDIES, Study, findings_directory, run_study, study, with_controls
from anchorlab.studies.parts import seeds_with_parts
from anchorlab.studies.profile_names import part_name, part_of, profile_name
from anchorlab.studies.running import experiments_to_run
from anchorlab.studies.study import PAPERS
from anchorlab.training import Experiment
from anchorlab.training.cost import BYTES_PER_SECOND, PRODUCTS_PER_SECOND, SECONDS_PER_CALL, estimated_seconds

HERE = Path(__file__).parent
README = HERE.parent.parent / "README.md"
SHIPPED = HERE.parent.parent / "src" / "anchorlab" / "papers" / FILE
BEGIN, END = "<!-- results: written by docs/gallery/build.py -->", "<!-- end of results -->"
PARTS = HERE / "paper-models"
SECOND_MODEL = "gemma3"  # published beside the own model of each language study
LARGEST_SVG = 60_000  # bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the findings and write the gallery; 2 if findings are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=None, help="the folder of runs")
    parser.add_argument("--published", action="store_true", help="read the published findings in place of a store")
    parser.add_argument("--rest", action="store_true", help="keep what is published where the store has no findings")
    parser.add_argument("--untrained", action="store_true", help="measure the claims on untrained members, too")
    parser.add_argument("--profile", default="quick", help="the profile to publish")
    parser.add_argument("--out", type=Path, default=HERE, help="where to write")
    parser.add_argument("--readme", type=Path, default=README, help="the README whose rows of results are rewritten")
    parser.add_argument("--shipped", type=Path, default=SHIPPED, help="the claims that the package ships")
    chosen = parser.parse_args(arguments)
    store = Store(chosen.store)
    if not chosen.published:
        judge_parts(store, chosen.out, chosen.profile)
    found = []
    for name in STUDIES:
        for profile in profiles_of(name, chosen.profile):
            beside = beside_of(profile, chosen.profile)
            published = folder_of(name, chosen.out, beside) / "findings.json"
            path = published if chosen.published else kept_at(store, name, profile)
            if path is None and chosen.rest:
                path = published
            if path is not None and path.exists():
                findings = study(name).judge_again(Findings.from_json(path.read_bytes(), at=str(path)))
                found.append(with_controls(study(name), findings, store) if chosen.untrained else findings)
            elif not beside:
                print(f"no findings of {name}: run `anchorlab study {name} --profile {profile}`", file=sys.stderr)
    if not {*STUDIES} <= {one.study for one in found if one.profile == chosen.profile}:
        return 2
    counted = {(one.strongest.claim.id, one.strongest.profile): one.strongest for one in ledger(found)}
    for findings in found:
        publish(findings, chosen.out, beside_of(findings.profile, chosen.profile), counted)
    of = {(one.study, one.profile): one for one in found}
    for findings in found:
        if other := of.get((findings.study, profile_name(findings.profile, SECOND_MODEL, None))):
            folder = folder_of(other.study, chosen.out, SECOND_MODEL)
            (folder / "models.md").write_text(models_text(findings, other), "utf-8")
    (chosen.out / "ledger.md").write_text(ledger_text(found), "utf-8")
    (chosen.out / "costs.md").write_text(costs_text(found), "utf-8")
    chosen.shipped.write_text(shipped_text(found), "utf-8")
    if chosen.readme.exists():
        write_readme(chosen.readme, found)
    return 0


def judge_parts(store: Store, out: Path, published: str = "quick") -> None:
    """Judge each study's profiles in a paper's own setting on the seeds that were trained as parts.

    A profile of which more seeds are published than there are parts is left as it is.
    """
    parts = [Store(PARTS)]
    for one in map(study, STUDIES):
        for profile, about in one.profiles.items():
            seeds = seeds_with_parts(one, profile, parts) if about.paper else ()
            folder = folder_of(one.name, out, beside_of(profile, published))
            if seeds and len(seeds) >= published_seeds(folder):
                run_study(one, part_name(profile, seeds), store, parts=parts)


def published_seeds(folder: Path) -> int:
    """Return how many seeds the published findings in a folder have; 0 without findings."""
    path = folder / "findings.json"
    return seeds_in(Findings.from_json(path.read_bytes(), at=str(path))) if path.exists() else 0


def seeds_in(findings: Findings) -> int:
    """Return how many seeds the experiments behind some findings have."""
    return len({seed for one in study(findings.study).experiments_of(findings.profile) for seed in one.members.seeds})


def profiles_of(name: str, published: str = "quick") -> tuple[str, ...]:
    """Return the profiles of a study that can be published: one, then its others, then that one of `SECOND_MODEL`."""
    chosen = study(name)
    others = tuple(one for one in chosen.profiles if one not in (published, "smoke"))
    opens_model = chosen.observe is not None and hasattr(chosen.profile(published).setting, "model")
    return (published, *others, *([profile_name(published, SECOND_MODEL, None)] if opens_model else []))


def kept_at(store: Store, name: str, profile: str) -> Path | None:
    """Return where a store has the findings of a profile, or of the largest part of its seeds; None for nowhere."""
    whole = findings_directory(store, name, profile)
    kept = {part_of(unquote(path.parent.name)): path for path in whole.parent.glob("*/findings.json")}
    parts = [(base, seeds) for base, seeds in kept if base == profile and seeds]
    return kept.get((profile, None)) or kept.get(max(parts, key=lambda part: len(part[1]), default=None))


def beside_of(profile: str, published: str = "quick") -> str:
    """Return what a profile's folder is called beside that of the published one: its name, or its model's."""
    return "" if profile == published else part_of(profile.removeprefix(f"{published}@"))[0]


def folder_of(study: str, out: Path, beside: str = "") -> Path:
    """Return the published folder of a study, of what is published beside it by `beside_of`."""
    return out / "-".join(part for part in (study.replace("/", "-"), beside) if part)


def publish(
    findings: Findings, out: Path, beside: str = "", counted: Mapping[tuple[str, str], ClaimResult] | None = None
) -> Path:
    """Write one study's folder afresh and return it; `counted` has the ledger's result of a claim and profile."""
    folder = folder_of(findings.study, out, beside)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    shown = []
    for figure in findings.figures:
        name = slug(figure.title)
        save(figure, findings.provenance, folder / f"{name}.png")
        vector = save(figure, findings.provenance, folder / f"{name}.svg")
        if vector.stat().st_size > LARGEST_SVG:
            vector.unlink()
        shown.append(figure_block(figure, f"/gallery/{folder.name}/{name}.png"))
    (folder / "figures.md").write_text("\n".join(shown), "utf-8")
    (folder / "tables.md").write_text("\n".join(map(table_text, findings.tables)), "utf-8")
    measured = [
        (counted or {}).get((result.claim.id, result.profile), result)
        for result in findings.claims
        if not beside or result.verdict != "not measured"
    ]
    (folder / "claims.md").write_text(claims_text(replace(findings, claims=tuple(measured))), "utf-8")
    (folder / "findings.json").write_text(replace(findings, views=()).to_json() + "\n", "utf-8")
    if findings.study in STUDIES:
        settings = settings_text(study(findings.study), findings.profile)
        (folder / "settings.md").write_text(f"{source_text(findings.provenance)}\n\n{settings}", "utf-8")
    return folder


def shipped_text(found: Iterable[Findings]) -> str:
    """Return findings without figures and tables as one JSON list, a line for each."""
    short = (replace(one, figures=(), tables=(), views=()) for one in found)
    return "[\n" + ",\n".join(json.dumps(json.loads(one.to_json())) for one in short) + "\n]\n"


def slug(title: str) -> str:
    """Return a file name from a title, without what is in brackets."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(.*?\)", "", title).lower()).strip("-")


def figure_block(figure: Figure, path: str) -> str:
    """Return a figure in MyST; its title and provenance are in the picture."""
    return f":::{{figure}} {path}\n:alt: {figure.title}\n\n{figure.caption}\n:::\n"


def table_text(shown: Table) -> str:
    """Return a table of the findings under its title and caption."""
    rows = [list(map(value_text, row)) for row in shown.rows]
    return f"**{shown.title}.** {shown.caption}\n\n{table(shown.columns, rows)}"


def claims_text(findings: Findings) -> str:
    """Return the claims of one study as a table, and where the numbers come from."""
    shown = MARKS if any(result.other_task for result in findings.claims) else (UNTRAINED,)
    head = ("claim", "paper", "ours", *shown, "accepted", "verdict")
    rows = [
        (
            f"{result.claim.statement}. *Measured as {result.claim.measured_as}; {result.claim.source}.*",
            result.claim.paper, ours(result), *(control(result, name) for name in shown), result.claim.band_text,
            result.verdict_text,
        )
        for result in findings.claims
    ]  # fmt: skip
    return f"{table(head, rows)}\n{source_text(findings.provenance)}\n"


def models_text(first: Findings, second: Findings) -> str:
    """Return the claims of a study as two models give them, side by side, and how many both decide alike."""
    others = {result.claim.id: result for result in second.claims}
    both = {one.claim.id: one.strongest for one in ledger((first, second))}
    names = (one.provenance.model.partition(",")[0] for one in (first, second))
    rows = [
        (
            one.claim.statement, one.claim.paper, one.claim.band_text, _in_model(one), _in_model(others[name]),
            both[name].agreement_text if name in both else "",
        )
        for one in first.claims if (name := one.claim.id) in others
    ]  # fmt: skip
    found = [both[name] for name in others if name in both and both[name].models]
    alike, opposite = sum(one.verdict != "undecided" for one in found), sum(one.disputed for one in found)
    said = (
        f"Both models decide {alike} of {len(found)} claims the same way; the others count as undecided, {opposite} as "
        "disputed."
    )
    return f"{table(('claim', 'paper', 'accepted', *names, 'both'), rows)}\n{said}\n"


def _in_model(result: ClaimResult) -> str:
    interval = f" ({result.interval_text})" if result.interval_text else ""
    return f"{value_text(result.value)}{interval}: {result.verdict_text}"


def ours(result: ClaimResult) -> str:
    """Return our value with its interval and its spread."""
    details = "; ".join(text for text in (result.interval_text, result.spread, result.detail) if text)
    return value_text(result.value) + (f" ({details})" if details else "")


def control(result: ClaimResult, name: str) -> str:
    """Return what the members of a control give, with its spread or why it is none; a dash without a control."""
    found = result.controls.get(name)
    return "—" if found is None else found.text + (f" ({found.note})" if found.note else "")


def source_text(source: Provenance) -> str:
    """Return where numbers come from, in one sentence; runs that another study trained add no time of their own."""
    time = f"{time_text(source)}, " if source.seconds >= 0.5 else ""
    model = f"{source.model}, " if source.model else ""
    return (
        f"Profile `{source.profile}`, {model}{source.seeds_text}, {source.hardware}, torch {source.torch}, "
        f"{time}commit `{source.short_commit}`."
    )


def settings_text(chosen: Study, profile: str) -> str:
    """Return every setting of the published profile, with the paper's if there is one, and each profile's note.

    What differs comes first.
    """
    profiles = tuple(name for name in dict.fromkeys((profile, "paper")) if name in (profile, *chosen.profiles))
    settings = {name: all_settings(chosen, name) for name in profiles}
    fields = dict.fromkeys(field for found in settings.values() for field in found)
    rows = [(f"`{field}`", *(settings[name].get(field, "not set") for name in profiles)) for field in fields]
    head = ("setting", *profiles)
    other = [row for row in rows if len(set(row[1:])) > 1]
    same = [row for row in rows if len(set(row[1:])) == 1]
    notes = "".join(f"- {chosen.note_of(name)}\n" for name in profiles)
    if not fields:  # a study that trains nothing
        return notes
    summary = "All settings" if len(profiles) == 1 else "What is the same in both"
    hidden = f"<details>\n<summary>{summary}</summary>\n\n{table(head, same)}\n</details>\n"
    differ = f"{table(head, other)}\n" if other else ""
    return f"{notes}\n{cost_text(chosen, profiles)}{differ}{hidden}"


def all_settings(chosen: Study, profile: str) -> dict[str, str]:
    """Return each field of a profile's experiments with all its values, or of what a study observes.

    Without seeds: the published ones are with the findings.
    """
    if chosen.observe is not None:
        return dict(flat(asdict(chosen.profile(profile).setting)))
    taken: dict[str, list[str]] = {}
    for experiment in chosen.experiments_of(profile):
        data = {key: value for key, value in experiment.to_json().items() if key != "format"}
        for field, value in flat(data):
            if field != "members.seeds" and value not in taken.setdefault(field, []):
                taken[field].append(value)
    return {field: shortened(values, " / ") for field, values in taken.items()}


def flat(data: Mapping[str, Any], at: str = "") -> Iterable[tuple[str, str]]:
    """Yield `("a.b", "1")` for `{"a": {"b": 1}}`; leave out fields that are not set."""
    for name, value in data.items():
        path = f"{at}.{name}".removeprefix(".")
        if path.endswith("evaluation.edits"):
            value = list(value)
        if isinstance(value, Spec):
            value = value.model_dump()
        if isinstance(value, Mapping):
            yield from flat(value, path)
        elif value not in (None, "", [], ()):
            yield path, shortened([text(item) for item in value]) if isinstance(value, list | tuple) else text(value)


def text(value: Any) -> str:
    """Return a plain value as people write it."""
    return value if isinstance(value, str) else json.dumps(value)


def shortened(values: Sequence[str], between: str = ", ") -> str:
    """Return several values in one cell; of many, the first ones and the last."""
    if len(values) <= 12:
        return between.join(values)
    return f"{between.join(values[:3])}{between}… {values[-1]} ({len(values)} values)"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def ledger_text(found: Sequence[Findings]) -> str:
    """Return the verdicts of every study, the claims outside their bands, those that need no training, and the sources.

    Each claim counts by its strongest evidence.
    """
    titles = {findings.study: findings.title for findings in found}
    entries = ledger(found)
    rows, apart, others = [], [], []
    passed: dict[str, list[tuple[str, ...]]] = {name: [] for name in MARKS}
    for name, title in titles.items():
        own = [entry.strongest for entry in entries if entry.study == name]
        counted = counts(own)
        cells = [counted.total, *map(counted.of, VERDICTS), counted.also_untrained]
        if counted.total:
            rows.append((page_link(name), title, *(str(count or "") for count in cells)))
        if beside := [result for result in own if result.apart]:
            apart.append((page_link(name), title, str(len(beside)), apart_text(beside)))
        for result in own:
            for mark in result.marks:
                cells = ours(result), control(result, mark), result.claim.band_text
                passed[mark].append((page_link(name), result.claim.statement, *cells))
        others += [
            (page_link(name), result.claim.statement, result.claim.paper, ours(result), result.verdict_text)
            for result in own
            if result.verdict in ("contradicted", "differs at small scale", "undecided", "not supported")
        ]
    whole = counts(entry.strongest for entry in entries)
    rows.append(("all", "", *map(str, (whole.total, *map(whole.of, VERDICTS), whole.also_untrained))))
    scopes = [
        (f"{SYMBOLS[verdict]} {verdict}", *map(str, (whole.of(verdict), *(by_scope[scope] for scope in SCOPES))))
        for verdict, by_scope in whole.verdicts.items()
    ]
    sources = "".join(f"- `{findings.study}`: {source_text(findings.provenance)}\n" for findings in found)
    return (
        f"{table(('study', 'what it shows', 'claims', *(SYMBOLS[one] for one in VERDICTS), 'untrained'), rows)}\n"
        f"## By verdict and scope\n\n{table(('verdict', 'claims', *SCOPES), scopes)}\n"
        f"## Other works, and questions of our own\n\n"
        f"{table(('study', 'what it shows', 'claims', 'verdicts'), apart)}\n"
        f"## Claims that also hold untrained\n\n"
        f"{table(('study', 'claim', 'ours', UNTRAINED, 'accepted'), passed[UNTRAINED])}\n"
        f"## Claims that also hold for another task\n\n"
        f"{table(('study', 'claim', 'ours', OTHER_TASK, 'accepted'), passed[OTHER_TASK])}\n"
        f"## Claims outside their bands\n\n{table(('study', 'claim', 'paper', 'ours', 'verdict'), others)}\n"
        f"## Where the numbers come from\n\n{sources}"
    )


MEASURED = (
    "Hours of one thread, estimated from counts: the operations that every step and every evaluation calls, "
    f"{SECONDS_PER_CALL * 1e6:g} µs each; their products, {PRODUCTS_PER_SECOND / 1e9:g} GFLOP/s; and the bytes that "
    f"they and the optimiser move, {BYTES_PER_SECOND / 1e9:g} GB/s. These speeds were measured on one core of an AMD "
    "EPYC with AVX-512, beside other programs, in the steps and evaluations of 19 trainings (`benchmarks/costs.py`); "
    "the estimates of these are 0.76 to 1.36 times the measured times. On cores that reach 100 GFLOP/s trainings took "
    "1.5 to 3.5 times as long; `anchorlab study NAME --dry-run` measures yours. Sequences to draw, states to keep, "
    "untrained controls, analyses and figures come on top."
)
"""What the estimates of costs are made of and were measured on."""


def costs_text(found: Sequence[Findings]) -> str:
    """Return what every training in a paper's own setting costs, the most claims per hour first."""
    trained_on = {(one.study, part_of(one.profile)[0]): (one.provenance.seeds, seeds_in(one)) for one in found}
    rows = []
    for one in candidates(STUDIES):
        trained = [each for each in one.experiments if each.trained]
        if trained and any(one.study.profile(one.profile).is_papers_setting(each.name) for each in one.study.claims):
            hours, seeds = cost_of(trained)
            which, done = trained_on.get((one.study.name, one.profile), ("", 0))
            left = hours * (seeds - done) / seeds
            rows.append((hours / len(one.claims), page_link(one.study.name), one, seeds, hours, which, left))
    return f"{MEASURED}\n\n" + table(
        ("study", "profile", "claims", "seeds", "hours", "a seed", "trained seeds", "hours left"),
        (
            (
                link,
                f"`{one.profile}`",
                str(len(one.claims)),
                str(seeds),
                hours_text(hours),
                hours_text(hours / seeds),
                which,
                hours_text(left) if left else "",
            )
            for _, link, one, seeds, hours, which, left in sorted(rows, key=lambda row: row[:2])
        ),
    )


def cost_of(trained: Sequence[Experiment]) -> tuple[float, int]:
    """Return the estimated hours of some trainings, and the number of their seeds."""
    return sum(map(estimated_seconds, trained)) / 3600, max(len(each.members) for each in trained)


def cost_text(chosen: Study, profiles: Iterable[str]) -> str:
    """Return what the trainings of some profiles cost, in one sentence; nothing for a study that trains nothing."""
    shown = []
    for profile in profiles:
        trained = (
            [] if chosen.observe is not None else [one for one in experiments_to_run(chosen, profile) if one.trained]
        )
        if trained:
            hours, seeds = cost_of(trained)
            each = f" ({hours_text(hours / seeds)} a seed)" if seeds > 1 else ""
            shown.append(f"`{profile}` {hours_text(hours)}{each}")
    how = "[estimated](../results.md#what-the-papers-own-settings-cost)"
    return f"Hours of one thread for training, {how}: {', '.join(shown)}.\n\n" if shown else ""


def hours_text(hours: float) -> str:
    """Return hours with two digits, without an exponent."""
    if hours < 0.01:
        return "< 0.01"
    return f"{hours:.2f}" if hours < 1 else f"{hours:.1f}" if hours < 10 else f"{hours:.0f}"


def page_link(study: str) -> str:
    """Return a study's name with a link to its page, as the results page needs it."""
    return f"[`{study}`](studies/{study.partition('/')[2].replace('-', '_')}.md)"


def readme_text(found: Sequence[Findings]) -> str:
    """Return the README's results: how many claims of each paper have which verdict, by their strongest evidence."""
    strongest = [entry.strongest for entry in ledger(found)]
    apart, counted = [result for result in strongest if result.apart], counts(strongest)
    also = (
        f"{counted.also_untrained} of all also hold for untrained models, {counted.also_other_task} for models trained "
        f"on another task. Counted apart are {len(apart)} claims of other works and questions of our own: "
        f"{apart_text(apart)}."
    )
    return f"{counts_table(strongest)}\n{also}\n"


def apart_text(results: Sequence[ClaimResult]) -> str:
    """Return how many claims that are counted apart have each verdict, in words."""
    return ", ".join(f"{verdict} {number}" for verdict, number in counts_apart(results).items())


def counts_table(results: Sequence[ClaimResult]) -> str:
    """Return how many claims of each paper have which verdict by scope: one row a paper, and one of all."""
    named = {paper: [one for one in results if paper_of(one) == paper] for paper in filter(None, PAPERS.values())}
    head = (
        "claims of", "all", "in the paper's own setting: reproduced / contradicted", "exact: reproduced / contradicted",
        "theorem, our sizes: agrees / differs", "small scale: agrees / differs", "undecided", "not measured",
    )  # fmt: skip
    rows = [_counts_row(paper, counts(found)) for paper, found in named.items()]
    return table(head, [*rows, _counts_row("all three", counts(results))])


def paper_of(result: ClaimResult) -> str | None:
    """Return the short name of the paper that a claim is from, with which its source begins; None if counted apart."""
    if result.apart:
        return None
    return next((paper for paper in PAPERS.values() if paper and result.claim.source.startswith(paper)), None)


def _counts_row(name: str, counted: Counts) -> tuple[str, ...]:
    pairs: dict[Scope, tuple[Verdict, Verdict]] = {
        "paper": ("reproduced", "contradicted"),
        "exact": ("reproduced", "contradicted"),
        "theory": ("agrees at our sizes", "differs at our sizes"),
        "other": ("agrees at small scale", "differs at small scale"),
    }
    each = (" / ".join(str(counted.verdicts[one][scope]) for one in both) for scope, both in pairs.items())
    return (name, str(counted.total), *each, str(counted.of("undecided")), str(counted.of("not measured")))


def write_readme(path: Path, found: Sequence[Findings]) -> None:
    """Put the counts of results between the README's two marks."""
    before, _, rest = path.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{readme_text(found)}{END}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
