"""Run studies: train what the store lacks, keep the findings, read the findings of all studies."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from anchorlab.engine import On, checked_device
from anchorlab.engine.pool import Backend
from anchorlab.errors import SpecError, StoreError
from anchorlab.findings import Findings
from anchorlab.findings.kept import FINDINGS
from anchorlab.findings.seal import seal
from anchorlab.language.endpoint import Access
from anchorlab.plain import MOST_BYTES_OF_RESULTS, read_data
from anchorlab.progress import Report, Status, reported
from anchorlab.runs import Cell, Store
from anchorlab.runs.assembled import AssembledRun
from anchorlab.runs.atomic_files import file_name, write_file
from anchorlab.runs.references import record_use, use_before
from anchorlab.studies.control import Swapped, control_experiments, other_experiments, trainings, with_controls
from anchorlab.studies.members import held, run_with_parts
from anchorlab.studies.observation_context import ObservationContext
from anchorlab.studies.parts import table_of_parts
from anchorlab.studies.registry import STUDIES
from anchorlab.studies.registry import study as find_study
from anchorlab.studies.some_claims import NotTrainedError, labels_read, of_labels, with_claims
from anchorlab.studies.study import Study
from anchorlab.training import Experiment


def run_study(
    study: Study[Any],
    profile: str = "quick",
    store: Store | str | Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    report: Report | None = None,
    download: bool = False,
    access: Access | None = None,
    progress: bool | None = None,
    on: On | Backend = "local",
    parts: Sequence[Store] = (),
    claims: Sequence[str] = (),
) -> Findings:
    """Train what the store lacks, analyse the runs, and return the findings, which the store keeps.

    Members that were trained alone, on other days or machines, are not trained again: a run of the seeds 1000 to 1004
    is put together from their runs in this store and in `parts`.

    Every claim is also measured on untrained members of the same experiments and, in studies with another task, on
    members trained on that task. A study without experiments has no runs; it measures, for example, a pretrained model.

    The answers of models behind servers are kept in the store too, in `answers`.

    Args:
        study: from `anchorlab.study(name)`, or your own
        profile: the name of one of its profiles; `quick@gpt2` selects another pretrained model,
            `quick@http://127.0.0.1:8000/v1#NAME` one on a server
        store: the store of runs or its directory; by default the folder `runs`
        workers: processes that share the members; by default as `anchorlab.train` chooses
        device: `cpu` or `cuda`
        report: called with the status, in place of showing it
        download: whether a pretrained model that is not on this machine may be fetched
        access: how to reach a model behind a server; by default `Access()`
        progress: whether to show a bar, as for `anchorlab.train`
        on: where to train the runs, as for `anchorlab.engine.run`
        parts: further stores, which are only read
        claims: names of claims to measure alone, such as `enough-data`: only what these read is trained, and on the
            other task only if they read its weights; nothing is drawn, and the findings are not kept; by default all

    Errors: `SpecError` for an unknown profile or claim, for a changed study that still has the name of a built-in one,
    and for `download` or `access` to a study that opens no pretrained model; otherwise as `anchorlab.engine.run`.
    """
    store = Store.of(store)
    if study.name in STUDIES and study != find_study(study.name):  # its findings would pass for ours
        raise SpecError("study.name", f"{study.name} is another study", "give the changed one a name, such as own/this")
    for name, given in (("download", download), ("access", access is not None)):
        if given and study.observe is None:
            raise SpecError(name, f"{study.name} opens no pretrained model", "leave it out")
    checked_device(device, workers, here=on == "local" or study.observe is not None)
    if claims:
        with reported(report, progress) as show:
            return _of_claims(study, profile, claims, store, workers, device, show, on, parts)
    folder = findings_directory(store, study.name, profile)
    experiments = trainings(study, profile)
    stores, cells = [store, *parts], {experiment.cell.address: experiment.cell for experiment in experiments}
    reused = len({one.cell.address for one in experiments if held(one, stores) is not None})
    trained_before = 0 < reused == len(cells)
    began = time.monotonic()
    behind = _behind(cells.values())
    if behind:  # from the beginning, so that `prune` keeps the runs of a study in progress
        folder.mkdir(parents=True, exist_ok=True)
        before_now = use_before(folder)
        record_use(folder, study.name, profile, behind | (before_now.runs if before_now else set()))
    with reported(report, progress) as show:
        trained = run_with_parts(experiments, store, parts, workers, device, show, on)
        runs = trained[: len(study.experiments_of(profile))]
        behind |= {part.address for one in trained if isinstance(one.run, AssembledRun) for part in one.run.parts}
        if cells and not trained_before:
            show(Status(1, label="reading the runs"))
        observed = None
        if study.observe is not None:
            answers = store.root / "answers"
            context = ObservationContext(folder / "partial", show, device, download, answers, access or Access())
            observed = study.observe(study.profile(profile).setting, context)
        findings = study.findings(profile, runs, time.monotonic() - began, device, reused, observed)
        findings = with_controls(study, findings, store, runs, device, show, workers, on, parts)
    if (table := table_of_parts(runs)) is not None:
        findings = replace(findings, tables=(*findings.tables, table))
    path = folder / FINDINGS
    before = _findings_at(path)
    if before is not None and before.study != study.name:
        raise StoreError(f"{path}: holds findings of {before.study}; give {study.name} another name or store")
    if before is not None and trained_before:  # keep the cost of the first training, not of reading runs again
        made = replace(findings.provenance, seconds=before.provenance.seconds, reused=before.provenance.reused)
        findings = replace(findings, provenance=made)
    folder.mkdir(parents=True, exist_ok=True)
    record_use(folder, study.name, profile, behind)
    write_file(folder, path.name, [seal(findings.to_json()).encode()])
    return findings


def _of_claims(
    study: Study[Any],
    profile: str,
    names: Sequence[str],
    store: Store,
    workers: int | None,
    device: str,
    report: Report | None,
    on: On | Backend,
    parts: Sequence[Store],
) -> Findings:
    chosen, began = with_claims(study, names), time.monotonic()
    setting = study.profile(profile).setting
    controls = [one.untrained() for one in chosen.experiments_of(profile)]
    untrained = run_with_parts(controls, store, parts, None, device, report, on)
    labels = labels_read(chosen, setting, untrained)
    while True:
        some = of_labels(chosen, labels)
        trained = run_with_parts(some.experiments_of(profile), store, parts, workers, device, report, on)
        runs = [Swapped(one, one) for one in trained]
        try:
            findings = some.findings(profile, runs, time.monotonic() - began, device)
            if others := other_experiments(some, profile, runs):
                run_with_parts(list(others.values()), store, parts, workers, device, report, on)
            return with_controls(some, findings, store, runs, device, report, workers, on, parts)
        except NotTrainedError as error:  # the claims did not read this run on untrained members
            labels.add(error.label)


def experiments_to_run(study: Study[Any], profile: str) -> list[Experiment]:
    """Return the experiments that `run_study` trains or evaluates: the study's own and the controls."""
    return [*trainings(study, profile), *control_experiments(study, profile)]


def _behind(cells: Iterable[Cell]) -> set[str]:
    """Return the addresses of the runs that findings are made from: these cells and their untrained controls."""
    return {address for cell in cells for address in (cell.address, Cell(_untrained(cell.spec)).address)}


def _untrained(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification of `experiment.untrained()`, without the time that building its model takes."""
    start = {"start": _untrained(spec["start"])} if "start" in spec else {}
    return {**spec, **start, "trained": False}


def _findings_at(path: Path) -> Findings | None:
    """Return kept findings; None where there are none, or damaged ones, which the study then writes anew."""
    try:
        return Findings.from_json(read_data(path, MOST_BYTES_OF_RESULTS)) if path.exists() else None
    except (OSError, SpecError):
        return None


def findings_directory(store: Store, study: str, profile: str) -> Path:
    """Return the folder of a study's findings and report: `<store>/studies/<study>/<profile>`.

    Characters in a profile's name that a folder cannot have, such as `/` in a model's name, are percent-encoded.
    """
    return store.root / "studies" / study.replace("/", "-") / file_name(profile)
