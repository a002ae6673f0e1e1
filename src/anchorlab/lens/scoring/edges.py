"""Scores of edges by gradients: edge attribution patching, plain or integrated."""

from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.lens.effects import Into, Metric, Pairs
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.scoring.comparison import Baseline, Comparison, Part
from anchorlab.lens.scoring.graph import cells_of, edges_of, receivers_of, units_of
from anchorlab.lens.scoring.hooked import slopes
from anchorlab.lens.scoring.passes import mapped, split_pass
from anchorlab.lens.scoring.scores import Scores
from anchorlab.models.stack import Stack
from anchorlab.models.transformer import Transformer


def score_edges(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    baseline: Baseline = "pair",
    steps: int = 1,
    metric: Metric | None = None,
    into: Into = "clean",
    positions: AnyPositions | None = None,
    batch_size: int | None = None,
) -> Scores:
    """Score every edge from a unit to an input of a later one by edge attribution patching, for all members at once.

    An edge is the direct path through the stream from what a head, a feed-forward layer or the embedding writes to the
    queries, keys or values of a head, to a feed-forward layer, or to the logits. Its score estimates how the metric
    changes if the receiver alone reads the sender's baseline, such as its output in the other run:

        score = (sender's baseline - its output) . gradient of the metric at the receiver's input

        found = score_edges(run, clean, corrupted, steps=5)
        found.circuit(0.1)  # the edges that change the logit difference by at least 0.1
        found.ranking       # the units, [member unit]

    Where a model normalises what its layers add, as Gemma 3 does, a head writes its part of the sum at the sum's scale,
    in each run its own. If norms follow the sums, the sender's change passes them on its way, to first order. The edges
    that leave a unit add up to its score in `score_units`, but for the heads of such a model.

    Args:
        steps: the number of runs whose gradients are averaged. 1 is EAP. More is EAP-IG (the source has 5): the
            embeddings of run k lie at k / steps of the way from their baseline to the changed run, which sees effects
            beyond the reach of the gradient at its end, such as of attention that is saturated there.

    Other arguments: as in `score_units`.
    Source: Syed, Rager & Conmy, 2023, arXiv 2310.10348; Hanna, Pezzelle & Belinkov, 2024, arXiv 2403.17806.
    """
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into)
    compared = Comparison(pairs, metric, batch_size, baseline, steps)
    units, receivers = units_of(compared.template), receivers_of(compared.template)
    values = torch.zeros(compared.ensemble.size, len(units), len(receivers), dtype=torch.float64)
    for part in compared.parts():
        values += _scores_of(part).cpu()
    edges, (senders, readers) = edges_of(compared.template), cells_of(compared.template)
    method, cost = compared.named("edge attribution patching"), compared.passes(steps, steps)
    return Scores.of_edges(method, units, edges, values[:, senders, readers], cost)


def _scores_of(part: Part) -> Tensor:
    """Return the scores of some pairs, `[member unit receiver]`; 0 where there is no edge."""
    changes: Tensor | None = None
    total = torch.zeros(())
    for entering in part.steps():
        stacked = [entering, part.others, changes]
        slopes, present = mapped(part.compared.ensemble, partial(_slopes, part), stacked)
        if changes is None:  # the first step is the plain run
            changes = part.others - present
        total = total + slopes.double()
    return total / part.compared.steps


def _slopes(part: Part, model: Stack, stream: Tensor, others: Tensor, changes: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the derivative of the metric with respect to the removal of each edge, and what the units write."""

    if not isinstance(model, Transformer):
        measure = partial(part.compared.measure, answers=part.answers)
        return slopes(model, stream, part.positions, measure, others, changes)

    def measured(removed: Tensor) -> tuple[Tensor, Tensor]:
        output, written = split_pass(model, stream, removed, others, part.positions, changes)
        return part.compared.measure(output, part.answers), written

    removed = stream.new_zeros(len(others), len(receivers_of(model)))
    found: tuple[Tensor, Tensor] = torch.func.grad(measured, has_aux=True)(removed)
    return found
