"""Methods that rank heads but not feed-forward layers: detectors, and the search for a circuit of attention paths."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import Circuit, Landscape, Passes, Scores, detect, find_circuit, look
from anchorlab.tasks import Batch, Task
from anchorlab.training import Ensemble

if TYPE_CHECKING:
    import polars

PATTERNS = "blocks.*.attn.hook_pattern"


def of_heads(truth: Landscape) -> Landscape:
    """Return the landscape of the heads alone, with every feed-forward layer kept."""
    heads = [place for place, unit in enumerate(truth.units) if not unit.endswith(".mlp")]
    layers = sum(1 << place for place in range(len(truth.units)) if place not in heads)
    kept = [
        layers + sum(1 << place for at, place in enumerate(heads) if subset >> at & 1)
        for subset in range(2 ** len(heads))
    ]
    units = tuple(truth.units[place] for place in heads)
    return Landscape(units, truth.loss[:, kept], truth.accuracy[:, kept], truth.replace)


def detected(ensemble: Ensemble, batch: Batch) -> Scores:
    """Score every head by the detector that recognises it best, on a scale from 0 (chance) to 1; 0 if none does.

    Uniform attention is left out: a head that chooses no key is not recognised as doing anything.
    """
    return strongest(detect(look(ensemble, batch.inputs, record=[PATTERNS]), batch))


def strongest(found: "polars.DataFrame") -> Scores:
    """Return each head's largest (value - chance) / (1 - chance) in a table of `detect`, or 0 if that is negative."""
    import polars

    way = ((polars.col("value") - polars.col("chance")) / (1 - polars.col("chance"))).clip(lower_bound=0)
    heads = (
        found.filter(polars.col("detector") != "uniform")
        .group_by("layer", "head", "member")
        .agg(way.max().alias("way"))
        .sort("layer", "head", "member")
    )
    members = found["member"].n_unique()
    units = heads.filter(polars.col("member") == 0).select("layer", "head").rows()
    values = torch.tensor(heads["way"].to_list(), dtype=torch.float64).reshape(len(units), members).T
    return Scores("detectors", tuple(f"{layer}.{head}" for layer, head in units), values, Passes(1, 0))


def circuit_paths(ensemble: Ensemble, task: Task, split: str, sequences: int) -> Scores:
    """Score every head of every member by `cut_losses` of the circuit that `find_circuit` finds; passes count as 0."""
    found = [
        find_circuit(ensemble, task, member=member, split=split, sequences=sequences, progress=False)
        for member in range(ensemble.size)
    ]
    units = tuple(f"{layer}.{head}" for layer, head in found[0].explanations)
    return Scores("find_circuit", units, torch.stack([cut_losses(one) for one in found]), Passes(0, 0))


def cut_losses(circuit: Circuit) -> Float[Tensor, "unit"]:
    """Return each head's largest rise of the loss if one of its paths is cut; 0 for a head without a path.

    A head whose attention no rule explains keeps its attention; its score is the effect of all attention together.
    """
    values = []
    for head, one in circuit.explanations.items():
        rises = [path.cut_loss - circuit.live_loss for path in circuit.paths if (path.layer, path.head) == head]
        values.append(circuit.empty_loss - circuit.model_loss if one is None else max([0.0, *rises]))
    return torch.tensor(values, dtype=torch.float64)
