"""Reading what studies need from tables of metrics."""

import torch
from torch import Tensor

from anchorlab.training import TrainedRun


def member_values(run: TrainedRun, split: str, metric: str, edit: str = "none", step: int | None = None) -> Tensor:
    """One value per member, `[member]`, in the members' order: each member's last, or that of a step.

    Errors: `ValueError` where the run never measured this.
    """
    import polars as pl

    kept = run.metrics.filter((pl.col("split") == split) & (pl.col("metric") == metric) & (pl.col("edit") == edit))
    if step is not None:
        kept = kept.filter(pl.col("step") == step)
    kept = kept.sort("step").group_by("member", maintain_order=True).last().sort("member")
    if kept.height != len(run.experiment.members):
        raise ValueError(f"{run} has no {metric} on {split} under {edit} for every member")
    return torch.tensor(kept["value"].to_list())


def spread(values: Tensor) -> str:
    """How values vary over members, in words."""
    if values.numel() < 2:
        return "one value"
    return f"{float(values.min()):.3g} to {float(values.max()):.3g} over {values.numel()} seeds"
