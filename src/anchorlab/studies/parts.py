"""Parts: single seeds of a study's setting, kept without weights, so that a result grows seed by seed.

A part is a finished run of one member in a store: its specification, its metrics, where and when it was trained, and
the readings that the study's claims need of its weights. Parts from many machines and days are one result, because
members do not interact.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.findings import Table
from anchorlab.findings.provenance import short_commits, versions
from anchorlab.runs import Run, Store
from anchorlab.runs.assembled import AssembledRun
from anchorlab.runs.kept import keep
from anchorlab.studies.members import found_in, one_by_one
from anchorlab.studies.profile_names import part_name
from anchorlab.studies.study import Study
from anchorlab.training import TrainedRun


def keep_part(study: Study[Any], profile: str, run: TrainedRun, root: Path) -> Path:
    """Write a finished run of one member, with its weights, as a part into the store at `root`; return its folder.

    `study` judges its claims on the part; the run is an experiment of its `profile`.

    Errors: `SpecError` for a run of several members, and for a study that does not say what its claims read of weights;
    `StoreError` for a run without weights.
    """
    if study.keeps is None:
        remedy = "let it say what its claims read of weights: Study(keeps=)"
        raise SpecError("study", f"{study.name} has no parts", remedy)
    if len(run.experiment.members) != 1:
        raise SpecError("run", f"has {len(run.experiment.members)} members", "make a part of a single seed")
    study.keeps(run, study.profile(profile).setting)
    ended = datetime.fromtimestamp(run.run.modified, UTC).date().isoformat()
    return keep(root, run.experiment.cell, run.run, run.run.metrics(), readings=run.taken, about={"date": ended})


def seeds_with_parts(study: Study[Any], profile: str, stores: Sequence[Store]) -> tuple[int, ...]:
    """Return the seeds of a profile for which the stores have a run of every experiment that trains this seed.

    Empty if the number of seeds is part of the profile's setting.
    """
    own = sorted({seed for one in study.experiments_of(profile) for seed in one.members.seeds})
    with suppress(SpecError):
        trained = study.experiments_of(part_name(profile, own)) if own else ()
        alone = [each for one in trained for each in one_by_one(one)]
        lacking = {each.members.seeds[0] for each in alone if found_in(each, stores) is None}
        return tuple(seed for seed in own if seed not in lacking)
    return ()


def table_of_parts(runs: Sequence[TrainedRun]) -> Table | None:
    """Return where each part of some runs was trained, as a table; None for runs without parts."""
    rows: list[tuple[str | int, ...]] = []
    for run in runs:
        if not isinstance(run.run, AssembledRun) and not any("date" in one for one in run.run.made_by):
            continue
        parts = run.run.parts if isinstance(run.run, AssembledRun) else (run.run,)
        for seed, part in zip(run.experiment.members.seeds, parts, strict=True):
            rows += [(run.experiment.label, seed, *_origin(run, part, one)) for one in part.made_by]
    if not rows:
        return None
    return Table(
        title="Where each part was trained",
        caption="Members do not interact, so seeds that were trained on different days and machines are one result. A "
        "new number of the arithmetic means results that are equal within rounding.",
        columns=("experiment", "seed", "processor", "commit", "date", "arithmetic"),
        rows=tuple(rows),
    )


def _origin(run: TrainedRun, part: Run, made_by: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the processor, commit, date and arithmetic of a part."""
    commit = short_commits(versions([part], "commit"))
    version = made_by.get("arithmetic", "1")  # not recorded by the first runs
    arithmetic = f"{run.experiment.recipe.precision}, torch {made_by.get('torch')}, arithmetic {version}"
    return str(made_by.get("device", "unknown")), commit, str(made_by.get("date", "")), arithmetic
