"""Reading what studies need from tables of metrics."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from anchorlab.findings.findings import Claim, ClaimResult
from anchorlab.training import TrainedRun


def member_values(run: TrainedRun, split: str, metric: str, edit: str = "none", group: str = "all") -> Tensor:
    """Each member's last value, `[member]`, in the members' order; the group `all` is all sequences.

    Errors: `ValueError` where the run never measured this.
    """
    import polars as pl

    kept = run.metrics.filter(
        pl.col("split") == split, pl.col("metric") == metric, pl.col("edit") == edit, pl.col("group") == group
    )
    kept = kept.sort("step").group_by("member", maintain_order=True).last().sort("member")
    if kept.height != len(run.experiment.members):
        raise ValueError(f"{run} has no {metric} on {split} under {edit} in group {group} for every member")
    return torch.tensor(kept["value"].to_list())


def along(run: TrainedRun, split: str, metric: str, edit: str = "none", group: str = "all") -> tuple[list[int], Tensor]:
    """A metric along training: the optimiser steps at which it was measured, and its values `[member step]`."""
    import polars as pl

    kept = run.metrics.filter(
        pl.col("split") == split, pl.col("metric") == metric, pl.col("edit") == edit, pl.col("group") == group
    )
    table = kept.pivot(on="member", index="step", values="value").sort("step")
    return table["step"].to_list(), torch.tensor(table.drop("step").to_numpy()).T


def spread(values: Tensor, of: str = "seeds") -> str:
    """How values vary over members, or whatever else they are `of`, in words."""
    if values.numel() < 2:
        return "one value"
    return f"{float(values.min()):.3g} to {float(values.max()):.3g} over {values.numel()} {of}"


def judge_means(
    claims: Sequence[Claim],
    measured: Mapping[str, Tensor | None],
    profile: str,
    of: Mapping[str, str] = MappingProxyType({}),
) -> tuple[ClaimResult, ...]:
    """Every claim judged by the mean of what was measured under the last part of its id; None: not measured.

    `of` says in words what the values of a claim are of, where there is not one for every seed.
    """

    def judged(claim: Claim, name: str) -> ClaimResult:
        value = measured[name]
        if value is None:
            return claim.judge(None, profile)
        return claim.judge(float(value.mean()), profile, spread(value, of.get(name, "seeds")))

    return tuple(judged(claim, claim.id.rpartition("/")[2]) for claim in claims)
