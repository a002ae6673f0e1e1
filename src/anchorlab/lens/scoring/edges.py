"""Edge attribution patching: the effect of every edge, estimated from gradients, plain or integrated."""

from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.lens.effects.effects import Metric
from anchorlab.lens.effects.pairs import Into, Pairs
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.scoring.comparison import Comparison, Rows, checked_steps, entering_streams
from anchorlab.lens.scoring.graph import edges_of, receivers_of, units_of
from anchorlab.lens.scoring.passes import embedded, mapped, split_pass, unit_outputs
from anchorlab.lens.scoring.scores import Passes, Scores
from anchorlab.models.transformer import Transformer


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
    compared = Comparison.of(pairs, metric, batch_size)
    units, receivers = units_of(compared.template), receivers_of(compared.template)
    values = torch.zeros(compared.ensemble.size, len(units), len(receivers), dtype=torch.float64)
    for rows in compared.rows():
        values += _scores_of(compared, rows, steps).cpu()
    edges = edges_of(compared.template)
    senders, readers = zip(*((units.index(edge.sender), receivers.index(edge.receiver)) for edge in edges), strict=True)
    method = "edge attribution patching" + (f", {steps} steps" if steps > 1 else "")
    return Scores.of_edges(method, units, edges, values[:, senders, readers], Passes(steps + 1, steps))


def _scores_of(compared: Comparison, rows: Rows, steps: int) -> Tensor:
    """Return the scores of some pairs, `[member unit receiver]`; 0 where there is no edge."""
    ensemble = compared.ensemble
    stream, end = (mapped(ensemble, embedded, shared=[each]) for each in (rows.base, rows.source))
    others, changes = mapped(ensemble, unit_outputs, [end]), None
    total: Tensor | float = 0.0
    for entering in entering_streams(steps, stream, end):
        slopes, present = mapped(ensemble, partial(_slopes, compared, rows), [entering, others, changes])
        if changes is None:  # the first step is the plain run
            changes = others - present
        total = total + slopes.double()
    assert isinstance(total, Tensor)
    return total / steps


def _slopes(
    compared: Comparison, rows: Rows, model: Transformer, stream: Tensor, others: Tensor, changes: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the derivative of the metric with respect to the removal of each edge, and what the units write."""

    def measured(removed: Tensor) -> tuple[Tensor, Tensor]:
        output, written = split_pass(model, stream, removed, others, rows.positions, changes)
        return compared.measure(output, rows.answers), written

    removed = stream.new_zeros(len(others), len(receivers_of(model)))
    found: tuple[Tensor, Tensor] = torch.func.grad(measured, has_aux=True)(removed)
    return found
