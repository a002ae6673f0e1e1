"""The study contract: a grid of experiments, an analysis of their runs, and the claims it checks."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anchorlab.engine import Status, run
from anchorlab.errors import SpecError, StoreError
from anchorlab.findings.findings import Claim, Findings, Provenance
from anchorlab.findings.provenance import provenance
from anchorlab.runs import Store
from anchorlab.runs.files import write_file
from anchorlab.spec import unknown_name
from anchorlab.training import Experiment, TrainedRun


@dataclass(frozen=True)
class Profile:
    """One setting of a study: `paper` is the paper's own to the digit, `quick` shows the same on two cores in minutes.

    `note` says in words how far the setting is from the paper's; it stands in every report.
    """

    experiments: Callable[[], Sequence[Experiment]]
    note: str


@dataclass(frozen=True)
class Study:
    """A figure or question: experiments under each profile, and what is made of their finished runs.

    `analyse` gets the runs in the order of the profile's experiments, and the provenance that the findings carry.
    """

    name: str
    title: str
    claims: tuple[Claim, ...]
    profiles: Mapping[str, Profile]
    analyse: Callable[[Sequence[TrainedRun], Provenance, str], Findings]


def find_profile(study: Study, name: str) -> Profile:
    """A study's profile by name. Errors: `SpecError` for an unknown one."""
    if name not in study.profiles:
        raise unknown_name("profile", name, study.profiles, "profile")
    return study.profiles[name]


def run_study(
    study: Study,
    profile: str = "quick",
    store: Store | None = None,
    workers: int | None = None,
    device: str = "cpu",
    report: Callable[[Status], None] | None = None,
) -> Findings:
    """Trains what the store lacks, analyses the runs, and keeps the findings in the store.

    Errors: `SpecError` for an unknown profile; whatever `engine.run` raises.
    """
    store = store or Store()
    experiments = list(find_profile(study, profile).experiments())
    directory = findings_directory(store, study.name, profile)
    cells = {experiment.cell.address: experiment.cell for experiment in experiments}
    reused = sum(cell in store for cell in cells.values())
    trained_before = reused == len(cells)
    began = time.monotonic()
    runs = run(experiments, store, workers, device, report=report)
    source = provenance(profile, runs, time.monotonic() - began, device, reused)
    if report is not None and not trained_before:
        report(Status(1, label="reading the runs"))
    findings = study.analyse(runs, source, find_profile(study, profile).note)
    if trained_before and (directory / "findings.json").exists():  # reading runs again is not what they cost
        before = Findings.from_json((directory / "findings.json").read_bytes()).provenance
        made = replace(findings.provenance, seconds=before.seconds, reused=before.reused)
    else:
        made = replace(findings.provenance, seconds=round(time.monotonic() - began, 1))
    findings = replace(findings, provenance=made)
    directory.mkdir(parents=True, exist_ok=True)
    write_file(directory, "findings.json", [findings.to_json().encode()])
    return findings


def findings_directory(store: Store, study: str, profile: str) -> Path:
    """Where a study's findings and report lie: `<store>/studies/<study>/<profile>`."""
    return store.root / "studies" / study.replace("/", "-") / profile


def kept_findings(store: Store) -> list[Findings]:
    """The findings of every study that the store holds, by study and profile.

    Errors: `StoreError` that names a damaged file.
    """
    found = []
    for path in sorted((store.root / "studies").glob("*/*/findings.json")):
        try:
            found.append(Findings.from_json(path.read_bytes()))
        except SpecError as error:
            raise StoreError(f"{path}: damaged ({error}); run its study again") from None
    return found
