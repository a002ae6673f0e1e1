"""Provenance: which profile, seeds, hardware, commit and time stand behind numbers."""

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from anchorlab.runs import Run
from anchorlab.studies.findings import Provenance
from anchorlab.training import TrainedRun


def provenance(profile: str, runs: Sequence[TrainedRun], seconds: Callable[[], float]) -> Provenance:
    """Where the numbers of these runs come from; `seconds` is what this process has spent on them."""
    seeds = sorted({seed for run in runs for seed in run.experiment.members.seeds})
    return Provenance(
        profile=profile,
        seeds=seeds_text(seeds),
        hardware=hardware(),
        commit=commit([run.run for run in runs]),
        torch=torch.__version__,
        seconds=round(seconds(), 1),
    )


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds in words: `0..9`, or a list where they have gaps."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}..{seeds[-1]}"
    return ", ".join(map(str, seeds))


def hardware() -> str:
    """The processor, its usable cores, and the accelerator if there is one."""
    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [row.split(":", 1)[1].strip() for row in information.read_text().splitlines() if "model name" in row]
        name = names[0] if names else name
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cuda = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{count} CPU core{'s' if count > 1 else ''} ({name}){cuda}"


def commit(runs: Sequence[Run]) -> str:
    """The commits that the runs were made with, `unknown` where they are not from a working tree."""
    commits = {environment.get("commit") or "unknown" for run in runs for environment in run.environments}
    return ", ".join(sorted(commits))
