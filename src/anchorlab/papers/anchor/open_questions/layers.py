"""The order in which the two layers that solve the identity task are learned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure
from anchorlab.lens import Emergence, emergence, first_crossing, look
from anchorlab.papers.anchor.identity import PATTERNS, Heads, read_heads
from anchorlab.papers.anchor.open_questions.outcomes import LEARNED
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, at_end, curves_against
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble, TrainedRun

LOOKED_AT = 200  # test sequences over which attention is averaged


@dataclass(frozen=True)
class Layers:
    """The shift of layer 0 and the broadcast of layer 1 along training, by the names `shift` and `broadcast`."""

    attention: Emergence  # of the best head of each layer
    halfway: Mapping[str, Float[Tensor, "learned"]]  # the step where attention has half risen, of members that learned


def layers_along(run: TrainedRun) -> Layers:
    """Read both layers at every checkpoint.

    A member has learned if its test accuracy reaches `LEARNED` and its heads solve the identity task: layer 0 shifts by
    one, layer 1 broadcasts the position after the anchor.
    """
    batch = run.experiment.task.sample("test", LOOKED_AT, seed=0)

    def measure(ensemble: Ensemble) -> dict[str, Tensor]:
        heads = _heads(ensemble, batch)
        return {"shift": heads.shift_mass, "broadcast": heads.to_last}

    found, last = emergence(run, measure), _heads(run.ensemble(), batch)
    learned = (at_end(run, "test", "accuracy") >= LEARNED) & (last.shift_by == 1) & (last.broadcast_from == 1)
    return Layers(found, {name: _halfway(found.steps, one)[learned] for name, one in found.values.items()})


def _heads(ensemble: Ensemble, batch: Batch) -> Heads:
    return read_heads(look(ensemble, batch.inputs, record=PATTERNS), batch)


def _halfway(steps: Sequence[int], values: Float[Tensor, "member step"]) -> Float[Tensor, "member"]:
    """Return the step at which values have first risen halfway from their first to their last; NaN if they do not."""
    first, last = values[:, :1], values[:, -1:]
    return first_crossing(steps, ((values - first) / (last - first)).where(last > first, torch.nan), 0.5)


def layer_curves(layers: Layers) -> LineFigure:
    """Return the figure of the best head's attention in both layers along training, up to the last step but one."""
    names = {"shift": "layer 0: shift by one", "broadcast": "layer 1: broadcast the key"}
    steps, values = layers.attention.steps[:-1], layers.attention.values
    return curves_against(
        "Attention of both layers early in training",
        steps,
        {label: values[name][:, :-1] for name, label in names.items()},
        x_label="steps",
        y_label="attention",
        caption="To the previous position in layer 0, from the last position to the key's in layer 1, best head. "
        f"{MEAN_AND_RANGE}",
        y_range=ACCURACY,
    )
