"""What the studies of circuits and of emergence share: models with one head in each layer, and their circuits."""

from collections.abc import Sequence
from dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.lens import Circuit, CircuitPath, AttentionRule, find_circuit
from anchorlab.studies.kit import at_end
from anchorlab.studies.retrieval.settings import (
    QUICK_MODEL,
    SMOKE_MODEL,
    paper_task,
    quick_recipe,
    quick_task,
    retrieval_of,
    smoke_recipe,
)
from anchorlab.training import Experiment, Members, TrainedRun
from anchorlab.viewer.make import view_run
from anchorlab.viewer.view import AttentionView

SOLVED = 0.01
"""The loss below which the paper's models A, B and C solve the problem (section 8.2)."""


@dataclass(frozen=True)
class Solution:
    """One trained model, its place in the run and the circuit found in it."""

    member: int
    seed: int
    circuit: Circuit

    @property
    def solved(self) -> bool:
        """Whether the model's own loss is as low as that of the paper's models."""
        return self.circuit.model_loss < SOLVED


def quick() -> Experiment:
    """Three steps and six layers: one setting for both studies, so that its models are trained once."""
    return Experiment(
        quick_task(steps=3),
        QUICK_MODEL.replace(layers=6),
        quick_recipe(1400, checkpoints=20),
        Members(seeds=tuple(range(8))),
        label="six layers",
    )


def smoke() -> Experiment:
    """Two layers on two steps, to exercise the code."""
    return Experiment(
        paper_task(steps=2),
        SMOKE_MODEL,
        smoke_recipe(),
        Members(seeds=(0, 1)),
        label="two layers",
    )


def solutions(run: TrainedRun) -> list[Solution]:
    """The circuit of every member at the end of training; members that diverged have none and are left out.

    Errors: `SpecError` where all of them did.
    """
    ensemble, losses = run.ensemble(), at_end(run, "test", "loss")
    found = [
        Solution(member, seed, find_circuit(ensemble, retrieval_of(run), member=member))
        for member, seed in enumerate(run.experiment.members.seeds)
        if losses[member].isfinite()
    ]
    if not found:
        raise SpecError("run", f"every member of {run.run.label} diverged", "lower the learning rate")
    return found


def joining(steps: int) -> frozenset[AttentionRule]:
    """The rules by which the second member of a pair looks at the first."""
    return frozenset(AttentionRule(f"x{step} of pair {step}", f"x{step - 1} of pair {step}") for step in range(1, steps + 1))


def by_head(paths: Sequence[CircuitPath]) -> list[list[CircuitPath]]:
    """The paths of each head, from the lowest layer up."""
    heads: dict[tuple[int, int], list[CircuitPath]] = {}
    for path in sorted(paths, key=lambda one: (one.layer, one.head)):
        heads.setdefault((path.layer, path.head), []).append(path)
    return list(heads.values())


def view_circuits(run: TrainedRun, found: Sequence[Solution], steps: Sequence[int] | None = None) -> AttentionView:
    """Attention of the first two members, with their circuits to click, at these checkpoints or a few of all."""
    shown = found[:2]
    return view_run(
        run,
        members=[one.member for one in shown],
        steps=steps,
        examples=2,
        live=False,
        title="Attention along the circuits",
        circuits=[one.circuit for one in shown],
    )
