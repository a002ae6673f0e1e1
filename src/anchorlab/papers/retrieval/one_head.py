"""Shared by the studies of circuits and emergence: models with one head in each layer, and their circuits."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from pydantic import TypeAdapter
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.findings import CircuitPanel, MapFigure
from anchorlab.findings.view import AttentionView
from anchorlab.lens import AttentionRule, Circuit, CircuitPath, find_circuit, look
from anchorlab.lens.circuits import Head
from anchorlab.lens.circuits.explanation import Roles
from anchorlab.papers.retrieval.settings import quick, retrieval_of, smoke, spec_of
from anchorlab.studies import kit
from anchorlab.studies.circuit_panel import circuit_panel
from anchorlab.studies.kit import at_end
from anchorlab.tasks import Batch
from anchorlab.training import TrainedRun
from anchorlab.viewer.make import view_run

SOLVED = 0.01
"""The loss below which the paper's models A, B and C solve the problem (section 8.2)."""

FOLLOWED = 0.05
"""The loss below which a model follows the chains: appendix E calls such a loss low."""

QUICK = quick(3, 6, 1400, seeds=40, checkpoints=20, label="six layers")
"""One setting for both studies, so that its models are trained once."""

SCALED = quick(3, 12, 1400, seeds=2, checkpoints=20, label="twelve layers")
"""The same with the paper's twelve layers, in which half of the heads can be idle."""

SCALED_NOTE = (
    "Twelve layers as in section 8.1, all else as in the quick profile, where at most two of six heads can be idle "
    "if four are in use, as in the paper."
)

SMOKE = smoke(2, label="two layers")


SEQUENCES = 32
"""The number of sequences on which attention is measured, as in the paper (section 9.1)."""


@dataclass(frozen=True)
class Solution:
    """A trained model, by its index in the run and its seed, and the circuit found in it."""

    member: int
    seed: int
    circuit: Circuit

    @property
    def solved(self) -> bool:
        """Whether the model's own loss is as low as in the paper's models."""
        return self.circuit.model_loss < SOLVED

    @property
    def follows(self) -> bool:
        """Whether the model's own loss is low, so that its circuit can be read."""
        return self.circuit.model_loss < FOLLOWED

    @property
    def explained(self) -> bool:
        """Whether the model follows the chains and its circuit has useful heads and explains every head."""
        return self.follows and bool(self.circuit.useful_heads) and not self.circuit.unexplained

    @property
    def paths(self) -> list[CircuitPath]:
        """The circuit's paths from the lowest layer up, in the order of the tables."""
        return sorted(self.circuit.paths, key=lambda path: path.layer)

    def panel(self) -> CircuitPanel:
        """Return the circuit as a panel of a figure."""
        layers = 1 + max(layer for layer, _ in self.circuit.explanations)
        return circuit_panel(f"seed {self.seed}", self.circuit, layers)


def solutions(run: TrainedRun, rise: float) -> list[Solution]:
    """Return the circuit of every member at the end of training, without members that diverged.

    `rise` is how far a circuit's loss may exceed the model's: the search cuts every path that it can within this limit.
    """
    kept = as_json(run, f"circuits, rise {rise:g}", lambda run: _searched(run, rise))
    found = [
        Solution(member, seed, _opened(one))
        for member, (seed, one) in enumerate(zip(run.experiment.members.seeds, kept, strict=True))
        if one is not None
    ]
    if not found:
        raise SpecError("run", f"every member of {run.run.label} diverged", "lower the learning rate")
    return found


def _searched(run: TrainedRun, rise: float) -> list[dict[str, Any] | None]:
    """Return the circuit of every member as values of JSON, None for a member that diverged."""
    ensemble, found = run.ensemble(), list[dict[str, Any] | None]()
    for member, loss in enumerate(at_end(run, "test", "loss")):
        if not loss.isfinite():
            found.append(None)
            continue
        one = find_circuit(ensemble, retrieval_of(run), member=member, rise=rise)
        explained = [(head, by and asdict(by)) for head, by in one.explanations.items()]
        found.append({**asdict(one), "explanations": explained})  # pairs, since keys of JSON are texts
    return found


def _opened(kept: dict[str, Any]) -> Circuit:
    explanations = {tuple(head): by for head, by in kept["explanations"]}
    return TypeAdapter(Circuit).validate_python({**kept, "explanations": explanations})


def as_json(run: TrainedRun, name: str, measure: Callable[[TrainedRun], list[Any]]) -> list[Any]:
    """Return what `measure` finds for each member, values of JSON, or what a part has kept (`TrainedRun.reading`)."""

    def text(run: TrainedRun) -> UInt8[Tensor, "member byte"]:
        rows = [json.dumps(one).encode().ljust(_BYTES) for one in measure(run)]
        if any(len(row) > _BYTES for row in rows):
            raise SpecError("run", f"{name} take more than {_BYTES} bytes", "keep fewer checkpoints")
        return torch.from_numpy(np.frombuffer(b"".join(rows), dtype=np.uint8).copy()).reshape(-1, _BYTES)

    return [json.loads(bytes(row)) for row in run.reading(name, text).numpy()]


_BYTES = 2**17  # of one member's text, filled up with spaces, since readings of all parts have one shape


def joining(steps: int) -> frozenset[AttentionRule]:
    """Return the rules by which the second member of a pair attends to the first."""
    pairs = range(1, steps + 1)
    return frozenset(AttentionRule(f"x{step} of pair {step}", f"x{step - 1} of pair {step}") for step in pairs)


def useful_heads(circuit: Circuit) -> dict[Head, list[CircuitPath]]:
    """Return the paths of each useful head from one position to another, by head, from the lowest layer up."""
    return {
        (layer, head): [one for one in circuit.paths if (one.layer, one.head) == (layer, head) and not one.stays]
        for layer, head in sorted(circuit.useful_heads)
    }


def first_useful(circuit: Circuit, steps: int) -> list[Head]:
    """Return the first useful heads: from the lowest up, as long as they only join pairs; at least one.

    "The only exceptions are the first useful layers of each transformer, which always attend to the previous position"
    (appendix E).
    """
    useful, pairs = useful_heads(circuit), joining(steps)
    joins = takewhile(lambda head: all(path.rule in pairs for path in useful[head]), useful)
    return list(joins) or list(useful)[:1]


def path_columns(models: Sequence[Solution]) -> dict[str, list[str | int]]:
    """Return the first columns of a table with a row for each path of each model."""
    paths = [(one.seed, path) for one in models for path in one.paths]
    return {
        "seed": [seed for seed, _ in paths],
        "layer": [path.layer for _, path in paths],
        "from": [path.rule.query for _, path in paths],
        "to": [path.rule.key_text for _, path in paths],
    }


def view_circuits(run: TrainedRun, found: Sequence[Solution], steps: Sequence[int] | None = None) -> AttentionView:
    """Return a view of the first two models with their circuits, at the given checkpoints; None selects a few."""
    return view_run(
        run,
        members=[one.member for one in found[:2]],
        steps=steps,
        examples=2,
        live=False,
        title="Attention along the circuits",
        circuits=[one.circuit for one in found[:2]],
    )


def attention_maps(run: TrainedRun, one: Solution) -> MapFigure:
    """Return the figure of a model's attention among the positions of a query's chain, a map for each layer."""
    maps = run.reading("attention maps", _maps)[one.member]
    return kit.attention_maps(
        f"Attention maps of seed {one.seed} (appendix C)",
        {f"layer {layer}": values for layer, values in enumerate(maps)},
        tuple(_roles(run)),
        caption="Attention among the positions of a query's chain, in their order in the sequence: mean over all "
        f"chains of {SEQUENCES} sequences. Layers are counted from 0. The rest of a row's attention goes elsewhere.",
        seed=one.seed,
    )


def _maps(run: TrainedRun) -> Float[Tensor, "member layer query key"]:
    places = torch.stack([*_roles(run).values()], dim=-1)  # [sequence chain role]
    cells = torch.arange(SEQUENCES)[:, None, None, None], places[..., :, None], places[..., None, :]
    sites = [f"blocks.{layer}.attn.hook_pattern" for layer in range(spec_of(run).layers)]
    seen = look(run.ensemble(), _sequences(run).inputs, sites)
    return torch.stack([seen[site][:, :, 0][:, *cells].mean(dim=(1, 2)) for site in sites], dim=1)


def _sequences(run: TrainedRun) -> Batch:
    return retrieval_of(run).sample("test", SEQUENCES, seed=2)


def _roles(run: TrainedRun) -> Roles:
    return retrieval_of(run).roles(_sequences(run))
