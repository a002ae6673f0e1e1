"""Provenance: the profile, seeds, hardware, commit and time behind numbers."""

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
    """Where numbers come from: what a reader needs to get them again.

    `seeds` and `hardware` are words (`0..9`, `2 CPU cores, Xeon`), `torch` is its version. `seconds` is the wall-clock
    time of training and analysis, without that of `reused` runs, which had been trained before (None: not counted).
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
        return f"profile {self.profile} · {self.seeds_text} · {self.hardware} · commit {self.short_commit}"

    @property
    def seeds_text(self) -> str:
        """The seeds in words, `seeds 0..9`, or `no seeds` where nothing is drawn."""
        return "no seeds" if self.seeds in ("", "none") else f"seeds {self.seeds}"

    @property
    def short_commit(self) -> str:
        """The first twelve digits of every commit, and whether its working tree had changes of its own."""
        return ", ".join(one[:12] + "-dirty" * one.endswith("-dirty") for one in self.commit.split(", "))


def provenance(
    profile: str, runs: Sequence[TrainedRun], seconds: float, device: str = "cpu", reused: int = 0
) -> Provenance:
    """Return where the numbers of these runs come from.

    Args
        profile: the name of the profile
        runs: the runs that were read; empty for numbers that were computed in this process
        seconds: the wall-clock time of training and analysis
        device: what they were trained on
        reused: how many of the runs had been trained before
    """
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
    """Return seeds in words: `0..9`, or a list if they have gaps."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}..{seeds[-1]}"
    return ", ".join(map(str, seeds))


def hardware(device: str = "cpu") -> str:
    """Return the processor, its usable cores, and the accelerator if one is used."""
    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [row.split(":", 1)[1].strip() for row in information.read_text().splitlines() if "model name" in row]
        name = names[0] if names else name
    count = cores()
    cuda = "" if device.startswith("cpu") else f", {torch.cuda.get_device_name(device)}"
    return f"{count} CPU core{'s' if count > 1 else ''} ({name}){cuda}"


def versions(runs: Sequence[Run], what: str) -> str:
    """Return one entry of the environments that runs were made in, such as their commits; `unknown` for a missing one.

    Without runs, the entry of this process.
    """
    made_with = [one for run in runs for one in run.environments] or [environment()]
    return ", ".join(sorted({one.get(what) or "unknown" for one in made_with}))
