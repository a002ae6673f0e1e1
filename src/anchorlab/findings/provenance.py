"""Provenance: which profile, seeds, hardware, commit and time stand behind numbers."""

import platform
from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic.dataclasses import dataclass

from anchorlab.engine import cores
from anchorlab.runs import Run
from anchorlab.runs.environment import environment
from anchorlab.spec import JSON_CONFIG
from anchorlab.training import TrainedRun


@dataclass(frozen=True, config=JSON_CONFIG)
class Provenance:
    """Where numbers come from: everything that a reader needs to get them again.

    `seeds` and `hardware` are words (`0..9`, `2 CPU cores, Xeon`), `torch` its version; `seconds` is the wall-clock
    time of training and analysis, but for `reused` runs that had been trained before (None: not counted).
    """

    profile: str
    seeds: str
    hardware: str
    commit: str
    torch: str
    seconds: float
    reused: int | None = None

    @property
    def line(self) -> str:
        """The one line that every figure carries."""
        return f"profile {self.profile} · seeds {self.seeds} · {self.hardware} · commit {self.short_commit}"

    @property
    def short_commit(self) -> str:
        """The first twelve digits of every commit, and whether its working tree had changes of its own."""
        return ", ".join(one[:12] + "-dirty" * one.endswith("-dirty") for one in self.commit.split(", "))


def provenance(
    profile: str, runs: Sequence[TrainedRun], seconds: float, device: str = "cpu", reused: int = 0
) -> Provenance:
    """Where the numbers of these runs come from: `seconds` is the time this took, but for `reused` runs of before."""
    seeds = sorted({seed for run in runs for seed in run.experiment.members.seeds})
    return Provenance(
        profile=profile,
        seeds=seeds_text(seeds),
        hardware=hardware(device),
        commit=versions([run.run for run in runs], "commit"),
        torch=versions([run.run for run in runs], "torch"),
        seconds=round(seconds, 1),
        reused=reused,
    )


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds in words: `0..9`, or a list where they have gaps."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}..{seeds[-1]}"
    return ", ".join(map(str, seeds))


def hardware(device: str = "cpu") -> str:
    """The processor, its usable cores, and the accelerator if that was used."""
    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [row.split(":", 1)[1].strip() for row in information.read_text().splitlines() if "model name" in row]
        name = names[0] if names else name
    count = cores()
    cuda = "" if device.startswith("cpu") else f", {torch.cuda.get_device_name(device)}"
    return f"{count} CPU core{'s' if count > 1 else ''} ({name}){cuda}"


def versions(runs: Sequence[Run], what: str) -> str:
    """What the runs were made with, `unknown` where that is not known: a commit outside a working tree, say.

    Without runs, what this process computes with.
    """
    made_with = [one for run in runs for one in run.environments] or [environment()]
    return ", ".join(sorted({one.get(what) or "unknown" for one in made_with}))
