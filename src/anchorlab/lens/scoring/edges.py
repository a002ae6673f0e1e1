"""The effect of every edge: estimated from gradients, plain or integrated, or exact, by patching one at a time."""

from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.lens.effects import Into, Metric, Pairs
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.scoring.comparison import Comparison, Part, checked_steps
from anchorlab.lens.scoring.graph import cells_of, edges_of, receivers_of, units_of
from anchorlab.lens.scoring.passes import mapped, split_pass
from anchorlab.lens.scoring.scores import Passes, Scores
from anchorlab.models.transformer import Transformer
from anchorlab.progress import Counted, counted


def score_edges(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    steps: int = 1,
    metric: Metric | None = None,
    into: Into = "clean",
    positions: AnyPositions | None = None,
    batch_size: int | None = None,
) -> Scores:
    """Score every edge from a unit to an input of a later one by edge attribution patching, for all members at once.

    An edge is the direct path through the stream from what a head, a feed-forward layer or the embedding writes to the
    queries, keys or values of a head, to a feed-forward layer, or to the logits. Its score estimates how the metric
    changes if the receiver alone reads the sender's output of the other run:

        score = (sender's output in the other run - its output) . gradient of the metric at the receiver's input

        found = score_edges(run, clean, corrupted, steps=5)
        found.circuit(0.1)  # the edges that change the logit difference by at least 0.1
        found.ranking       # the units, [member unit]

    If norms follow the sums, the sender's change passes them on its way, to first order. The edges that leave a unit
    add up to its score in `score_units`.

    Args:
        steps: the number of runs whose gradients are averaged. 1 is EAP. More is EAP-IG (the source has 5): the
            embeddings of run k lie at k / steps of the way from the other run to the changed one, which sees effects
            beyond the reach of the gradient at its end, such as of attention that is saturated there.

    Other arguments: as in `score_units`.
    Source: Syed, Rager & Conmy, 2023, arXiv 2310.10348; Hanna, Pezzelle & Belinkov, 2024, arXiv 2403.17806.
    """
    checked_steps(steps)
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into)
    compared = Comparison(pairs, metric, batch_size)
    units, receivers = units_of(compared.template), receivers_of(compared.template)
    values = torch.zeros(compared.ensemble.size, len(units), len(receivers), dtype=torch.float64)
    for part in compared.parts():
        values += _scores_of(part, steps).cpu()
    edges, (senders, readers) = edges_of(compared.template), cells_of(compared.template)
    method = "edge attribution patching" + (f", {steps} steps" if steps > 1 else "")
    return Scores.of_edges(method, units, edges, values[:, senders, readers], Passes(steps + 1, steps))


def _scores_of(part: Part, steps: int) -> Tensor:
    """Return the scores of some pairs, `[member unit receiver]`; 0 where there is no edge."""
    changes: Tensor | None = None
    total = torch.zeros(())
    for entering in part.steps(steps):
        stacked = [entering, part.others, changes]
        slopes, present = mapped(part.compared.ensemble, partial(_slopes, part), stacked)
        if changes is None:  # the first step is the plain run
            changes = part.others - present
        total = total + slopes.double()
    return total / steps


def _slopes(
    part: Part, model: Transformer, stream: Tensor, others: Tensor, changes: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the derivative of the metric with respect to the removal of each edge, and what the units write."""

    def measured(removed: Tensor) -> tuple[Tensor, Tensor]:
        output, written = split_pass(model, stream, removed, others, part.positions, changes)
        return part.compared.measure(output, part.answers), written

    removed = stream.new_zeros(len(others), len(receivers_of(model)))
    found: tuple[Tensor, Tensor] = torch.func.grad(measured, has_aux=True)(removed)
    return found


def patch_edges(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    metric: Metric | None = None,
    into: Into = "clean",
    positions: AnyPositions | None = None,
    batch_size: int | None = None,
    progress: Counted = None,
) -> Scores:
    """Score every edge by path patching: how the metric changes if its receiver alone reads the other run's sender.

    Each edge has a pass of its own, in which all other edges are as in the plain run, and everything after the receiver
    reacts to it. `score_edges` estimates the same from gradients.

        patch_edges(run, clean, corrupted).circuit(0.1)  # edges that change the logit difference by at least 0.1

    Args:
        progress: as in `effects`, by edges.

    Other arguments: as in `score_units`.
    Source: Goldowsky-Dill et al., 2023, arXiv 2304.05969.
    """
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into)
    compared = Comparison(pairs, metric, batch_size)
    units, receivers = units_of(compared.template), receivers_of(compared.template)
    edges, (senders, readers) = edges_of(compared.template), cells_of(compared.template)
    parts = [*compared.parts()]
    none = torch.zeros(compared.ensemble.size, len(units), len(receivers))

    def measured(removed: Tensor) -> Tensor:
        return torch.stack([part.metric(part.outputs(removed)) for part in parts]).sum(dim=0)

    plain, scores = measured(none), torch.zeros(len(none), len(edges), dtype=torch.float64)
    with counted("patching", progress) as tell:
        for at in range(len(edges)):
            removed = none.clone()
            removed[:, senders[at], readers[at]] = 1
            scores[:, at] = measured(removed) - plain
            tell(at + 1, len(edges))
    return Scores.of_edges("path patching", units, edges, scores, Passes(len(edges) + 2, 0))
