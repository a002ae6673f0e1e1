"""Provenance: the profile, seeds, hardware, commit and computing time behind a result."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic.dataclasses import dataclass

from anchorlab.findings.limits import Finite, Text, Whole
from anchorlab.runs import Run
from anchorlab.runs.assembled import AssembledRun
from anchorlab.runs.environment import cores, environment, processor
from anchorlab.spec import JSON_CONFIG

if TYPE_CHECKING:
    from anchorlab.training import TrainedRun


@dataclass(frozen=True, config=JSON_CONFIG)
class Provenance:
    """The origin of numbers: everything that a reader needs to reproduce them.

    Fields
        profile: the name of the profile
        seeds: the seeds as text, such as `0..9`
        hardware: the hardware as text, such as `2 CPU cores (Xeon)`; for a result of several parts, their processors
        commit: the commits that the runs were made with, or `version` and a version, joined by commas
        torch: the versions of torch that the runs were made with, joined by commas
        seconds: the wall-clock time of training and analysis, without the training of reused runs
        reused: the number of runs that were already in the store; None if this was not counted
        model: the pretrained model that was measured, as text; None for models trained here
        chosen_on: the seeds on which the setting was chosen, as text; empty if the study names none
    """

    profile: Text
    seeds: Text
    hardware: Text
    commit: Text
    torch: Text
    seconds: Finite
    reused: Whole | None = None
    model: Text | None = None
    chosen_on: Text = ""

    @property
    def line(self) -> str:
        """Profile, pretrained model, seeds, hardware and commit in one line, for printing with every figure.

        Of more than five commits, as of parts from many days, the first four are named and the others counted.
        """
        commits = self.short_commit.split(", ")
        named = self.short_commit if len(commits) <= 5 else f"{', '.join(commits[:4])} and {len(commits) - 4} more"
        made_with = named if self.commit.startswith("version") else f"commit {named}"
        parts = (f"profile {self.profile}", self.model, self.seeds_text, self.hardware, made_with)
        return " · ".join(part for part in parts if part)

    @property
    def seeds_text(self) -> str:
        """The seeds as text: `seeds 0..9`, or `no seeds` if nothing was drawn at random."""
        return "no seeds" if self.seeds in ("", "none") else f"seeds {self.seeds}"

    @property
    def short_commit(self) -> str:
        """The first twelve digits of every commit, with `-dirty` if the working tree had uncommitted changes."""
        return short_commits(self.commit)


def provenance(
    profile: str, runs: "Sequence[TrainedRun]", seconds: float, device: str = "cpu", reused: int = 0
) -> Provenance:
    """Return the provenance of numbers that were measured on runs; without runs, of numbers computed in this process.

    `device` is that of the training, such as `cpu` or `cuda`; the other arguments are fields of `Provenance`.
    """
    seeds = sorted({seed for run in runs for seed in run.experiment.members.seeds})
    return Provenance(
        profile=profile,
        seeds=seeds_text(seeds),
        hardware=_of_parts([run.run for run in runs]) or hardware(device),
        commit=versions([run.run for run in runs], "commit"),
        torch=versions([run.run for run in runs], "torch"),
        seconds=round(seconds, 1),
        reused=reused,
    )


def short_commits(commits: str) -> str:
    """Return the first twelve digits of every commit, with `-dirty` where there were uncommitted changes."""
    return ", ".join(
        one if one.startswith("version") else one[:12] + "-dirty" * one.endswith("-dirty")
        for one in commits.split(", ")
    )


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds as text, with consecutive ones abbreviated: `0..9`, or `0..99, 1000..1003`."""
    starts = [at for at, seed in enumerate(seeds) if at == 0 or seed != seeds[at - 1] + 1]
    runs = [seeds[start:end] for start, end in pairwise([*starts, len(seeds)])]
    least = 2 if len(runs) == 1 else 3  # consecutive seeds that are abbreviated
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) >= least else ", ".join(map(str, run)) for run in runs)


def counted_seeds(seeds: Sequence[int]) -> str:
    """Return seeds in words: `seed 1002 alone`, or `seeds 1000..1002`."""
    return f"seed {seeds[0]} alone" if len(seeds) == 1 else f"seeds {seeds_text(seeds)}"


def hardware(device: str = "cpu") -> str:
    """Return the processor, its usable cores, and the accelerator if one is used."""
    count = cores()
    text = f"{count} CPU core{'s' if count > 1 else ''} ({processor()})"
    if device.startswith("cpu"):
        return text

    import torch  # late, for commands that only print findings

    return f"{text}, {torch.cuda.get_device_name(device)}"


def _of_parts(runs: Sequence[Run]) -> str:
    """Return the processors and accelerators that trained parts, assembled or alone; empty for other runs."""
    parts = [one for run in runs for one in run.made_by if isinstance(run, AssembledRun) or "date" in one]
    return ", ".join(sorted({str(one.get("device") or "unknown") for one in parts}))


def versions(runs: Sequence[Run], what: str) -> str:
    """Return the different values of an entry, such as `commit`, in the environments of runs, joined by commas.

    A missing entry is `unknown`, but an installed package has its version in place of a commit. Without runs, return
    the entry of this process.
    """
    made_with = [one for run in runs for one in run.environments] or [environment()]
    return ", ".join(sorted({one.get(what) or _instead_of(what, one.get("anchorlab")) for one in made_with}))


def _instead_of(what: str, version: str | None) -> str:
    return f"version {version}" if what == "commit" and version else "unknown"
