"""Publishes the newest findings of a store: figures, claims and settings for the docs, the claims table of the README.

    python docs/gallery/build.py --store runs

No number in the docs about a study is typed by hand; all come from here.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from anchorlab.findings.findings import ClaimResult, Figure, Findings, Provenance, Table
from anchorlab.report import save
from anchorlab.report.page import time_text, value_text
from anchorlab.runs import Store
from anchorlab.studies import STUDIES, Study, findings_directory, study

HERE = Path(__file__).parent
README = HERE.parent.parent / "README.md"
BEGIN, END = "<!-- claims: written by docs/gallery/build.py -->", "<!-- end of claims -->"
SYMBOLS = {"reproduced": "✓ reproduced", "not reproduced": "✗ not reproduced", "not measured": "— not measured"}
LARGEST_SVG = 60_000  # bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the store, writes the gallery; 2 where findings are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=None, help="the folder of runs")
    parser.add_argument("--profile", default="quick", help="the profile to publish")
    parser.add_argument("--out", type=Path, default=HERE, help="where to write")
    parser.add_argument("--readme", type=Path, default=README, help="the README whose claims table is rewritten")
    chosen = parser.parse_args(arguments)
    store = Store(chosen.store)
    paths = {name: findings_directory(store, name, chosen.profile) / "findings.json" for name in STUDIES}
    missing = [name for name, path in paths.items() if not path.exists()]
    for name in missing:
        print(f"no findings of {name}: run `anchorlab study {name} --profile {chosen.profile}` first", file=sys.stderr)
    if missing:
        return 2
    found = []
    for name, path in paths.items():
        found.append(Findings.from_json(path.read_bytes(), at=str(path)))
        publish(found[-1], chosen.out)
        for profile in study(name).profiles:
            other = findings_directory(store, name, profile) / "findings.json"
            if profile not in (chosen.profile, "smoke") and other.exists():
                found.append(Findings.from_json(other.read_bytes(), at=str(other)))
                publish(found[-1], chosen.out, profile)
    if chosen.readme.exists():
        write_readme(chosen.readme, found)
    return 0


def publish(findings: Findings, out: Path, beside: str = "") -> Path:
    """Writes one study's folder afresh; of another profile, a folder named after it too."""
    folder = out / "-".join(part for part in (findings.study.replace("/", "-"), beside) if part)
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
    measured = [result for result in findings.claims if not beside or result.verdict != "not measured"]
    (folder / "claims.md").write_text(claims_text(replace(findings, claims=tuple(measured))), "utf-8")
    (folder / "findings.json").write_text(replace(findings, views=()).to_json() + "\n", "utf-8")
    if findings.study in STUDIES:
        (folder / "settings.md").write_text(settings_text(study(findings.study), findings.profile), "utf-8")
    return folder


def slug(title: str) -> str:
    """A file's name from a title, without what stands in brackets."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(.*?\)", "", title).lower()).strip("-")


def figure_block(figure: Figure, path: str) -> str:
    """A figure as MyST shows it; title and provenance stand in the picture."""
    return f":::{{figure}} {path}\n:alt: {figure.title}\n\n{figure.caption}\n:::\n"


def table_text(shown: Table) -> str:
    """A table of the findings, with its title and caption above."""
    rows = [list(map(value_text, row)) for row in shown.rows]
    return f"**{shown.title}.** {shown.caption}\n\n{table(shown.columns, rows)}"


def claims_text(findings: Findings) -> str:
    """The claims of one study as a table, with where the numbers come from."""
    head = ("claim", "paper", "ours", "accepted", "verdict")
    rows = [
        (
            f"{result.claim.statement}. *Measured as {result.claim.measured_as}; {result.claim.source}.*",
            result.claim.paper, ours(result), result.claim.band_text, SYMBOLS[result.verdict],
        )
        for result in findings.claims
    ]  # fmt: skip
    return f"{table(head, rows)}\n{source_text(findings.provenance)}\n"


def ours(result: ClaimResult) -> str:
    """Our value with its spread."""
    details = "; ".join(text for text in (result.spread, result.detail) if text)
    return value_text(result.value) + (f" ({details})" if details else "")


def source_text(source: Provenance) -> str:
    """Where numbers come from, in one sentence."""
    return (
        f"Profile `{source.profile}`, seeds {source.seeds}, {source.hardware}, torch {source.torch}, "
        f"{time_text(source)}, commit `{source.short_commit}`."
    )


def settings_text(chosen: Study, profile: str) -> str:
    """Every setting of the published profile beside the paper's, what differs first, and each profile's note."""
    profiles = tuple(dict.fromkeys((profile, "paper")))
    settings = {name: all_settings(chosen, name) for name in profiles}
    fields = dict.fromkeys(field for found in settings.values() for field in found)
    rows = [(f"`{field}`", *(settings[name].get(field, "not set") for name in profiles)) for field in fields]
    head = ("setting", *profiles)
    other = [row for row in rows if len(set(row[1:])) > 1]
    same = [row for row in rows if len(set(row[1:])) == 1]
    notes = "".join(f"- {chosen.profiles[name].note}\n" for name in profiles)
    if not fields:  # a study that trains nothing
        return notes
    hidden = f"<details>\n<summary>What is the same in both</summary>\n\n{table(head, same)}\n</details>\n"
    return f"{notes}\n{table(head, other)}\n{hidden}"


def all_settings(chosen: Study, profile: str) -> dict[str, str]:
    """Each field of a profile's experiments with the values that it takes over them."""
    taken: dict[str, list[str]] = {}
    for experiment in chosen.profiles[profile].experiments():
        data = {key: value for key, value in experiment.to_json().items() if key != "format"}
        for field, value in flat(data):
            if value not in taken.setdefault(field, []):
                taken[field].append(value)
    return {field: shortened(values, " / ") for field, values in taken.items()}


def flat(data: Mapping[str, Any], at: str = "") -> Iterable[tuple[str, str]]:
    """`{"a": {"b": 1}}` as `("a.b", "1")`, without what is not set."""
    for name, value in data.items():
        path = f"{at}.{name}".removeprefix(".")
        if path.endswith("evaluation.edits"):
            value = list(value)
        if isinstance(value, Mapping):
            yield from flat(value, path)
        elif value not in (None, "", []):
            yield path, shortened([text(item) for item in value]) if isinstance(value, list) else text(value)


def text(value: Any) -> str:
    """A plain value as people write it."""
    return value if isinstance(value, str) else json.dumps(value)


def shortened(values: Sequence[str], between: str = ", ") -> str:
    """Several values in one cell; of many, the first and the last."""
    if len(values) <= 12:
        return between.join(values)
    return f"{between.join(values[:3])}{between}… {values[-1]} ({len(values)} values)"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def readme_text(found: Sequence[Findings]) -> str:
    """What became of every study's claims in one table, for the README; those that failed by name.

    A study's findings under several profiles stand together: each claim counts as the first that measured it has it.
    """
    rows = []
    for name in dict.fromkeys(findings.study for findings in found):
        own = [findings for findings in found if findings.study == name]
        results = [first_measured(same) for same in zip(*(findings.claims for findings in own), strict=True)]
        others = [result for result in results if result.verdict != "reproduced"]
        rows.append(
            (
                f"`{name}`",
                own[0].title,
                f"{len(results) - len(others)} of {len(results)}",
                "; ".join(f"{SYMBOLS[result.verdict]}: {result.claim.statement}" for result in others),
            )
        )
    sources = "".join(f"- `{findings.study}`: {source_text(findings.provenance)}\n" for findings in found)
    return f"{table(('study', 'what it shows', 'claims reproduced', 'the others'), rows)}\n{sources}"


def first_measured(results: Sequence[ClaimResult]) -> ClaimResult:
    """One claim under several profiles: the first verdict that rests on a measurement, else none."""
    return next((result for result in results if result.verdict != "not measured"), results[0])


def write_readme(path: Path, found: Sequence[Findings]) -> None:
    """Puts the claims between the README's two marks."""
    before, _, rest = path.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{readme_text(found)}{END}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
