"""`anchorlab inspect`."""

from pathlib import Path

from anchorlab.cli.output import console, print_json, print_table
from anchorlab.lens import detect, look
from anchorlab.runs import Store
from anchorlab.training import TrainedRun


def inspect(run: str, /, *, store: Path | None = None, n: int = 200, step: int | None = None, json: bool = False) -> None:
    """Look inside a finished run: what each attention head does, as numbers between 0 and 1.

    Parameters
    ----------
    run
        The first digits of an address from `anchorlab runs`.
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    n
        How many held-out sequences to look at.
    step
        The checkpoint to look at; by default the last.
    json
        As JSON, for scripts.
    """
    import polars as pl

    trained = TrainedRun(Store(store).find(run))
    task = trained.experiment.task
    batch = task.sample(task.splits[-1], n, seed=0)
    record = look(trained.ensemble(step), batch.inputs, record=["blocks.*.attn.hook_pattern"])
    found = detect(record, batch.latents.get("anchor_position"), batch.latents.get("key_position"))
    if json:
        print_json(found.to_dicts())
        return
    frame = found.group_by("layer", "head", "detector", maintain_order=True).agg(
        pl.col("value").mean().alias("mean"),
        pl.col("value").min().alias("lowest"),
        pl.col("value").max().alias("highest"),
        pl.col("offset").mode().first().alias("most frequent offset"),
    )
    print_table(frame.columns, frame.rows(), title=f"{trained.run.label}, {len(trained.experiment.members)} members")
    console.print(f"over {n} sequences of {task.splits[-1]!r}; every value is between 0 and 1")
