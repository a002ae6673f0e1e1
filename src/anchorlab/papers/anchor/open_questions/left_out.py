"""What trained models answer without their last layers."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Table
from anchorlab.papers.anchor.open_questions.choices import LEFT_OUT, Value
from anchorlab.studies.kit import at_end, mean_and_range
from anchorlab.training import TrainedRun


def left_out(runs: Mapping[Value, TrainedRun]) -> dict[Value, Float[Tensor, "count seed"]]:
    """Return each run's test accuracy with all layers, without the last, the last two and so on to the first alone."""
    return {one: _by_count(run) for one, run in runs.items()}


def _by_count(run: TrainedRun) -> Float[Tensor, "count seed"]:
    edits = run.experiment.recipe.evaluation.edits
    without = [at_end(run, "test", "accuracy", LEFT_OUT.format(count)) for count in range(1, len(edits) + 1)]
    return torch.stack([at_end(run, "test", "accuracy"), *without])


def left_out_table(found: Mapping[Value, Float[Tensor, "count seed"]]) -> Table:
    """Return a table with a row for each number of layers left out of each model."""
    rows = [
        (one.choice, one.label, count, *mean_and_range(accuracy))
        for one, by_count in found.items()
        for count, accuracy in enumerate(by_count)
    ]
    return Table(
        "Layers left out after training",
        "Test accuracy of models trained on many sequences, without their last layers' weights; layer norms stay.",
        ("choice", "value", "layers left out", "mean", "lowest", "highest"),
        tuple(rows),
    )
