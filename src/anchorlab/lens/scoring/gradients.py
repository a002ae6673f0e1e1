"""Scores of units and edges by gradients: attribution patching, plain or integrated."""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens.effects.effects import Metric
from anchorlab.lens.effects.pairs import Into, Pairs
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.scoring.comparison import Baseline, Comparison, Part
from anchorlab.lens.scoring.hooked import slopes
from anchorlab.lens.scoring.passes import Values, mapped, no_change, plain_pass, split_pass
from anchorlab.lens.scoring.scores import Scores
from anchorlab.lens.threads import Tally
from anchorlab.models.stack import Stack
from anchorlab.models.transformer import Transformer
from anchorlab.progress import Counted, counted


def score_units(
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
    """Score every unit by the gradient of a metric with respect to its output, for all members at once.

    Attribution patching estimates, from one backward pass, what `patch_units` measures with one forward pass per unit:

        score = (baseline - output) . gradient of the metric with respect to the output

    summed over positions and averaged over sequences. It is exact if the metric is linear in the output of the unit.
    With `steps` above 1, the gradient is the mean over runs whose embeddings lie k / steps of the way from the baseline
    to the changed run, k = 1 .. steps. With more steps, the score of `embed` tends to the metric's whole change.

    Args:
        model: as in `look`, with a transformer of this package or a pretrained model.
        clean, corrupted, answers, corrupted_answers, positions: as in `patch`.
        baseline: what the output changes to: `pair`, the output in the other run; `mean`, its mean over all sequences
            of the changed run at the same position; or `zero`, which makes the score minus gradient times activation.
            With a mean or zero, the other run only gives the answers to compare with. Rankings depend much on it.
        steps: the number of runs whose gradients are averaged; 1 takes the gradient in the changed run alone.
        metric: a differentiable function of outputs `[sequence scored output]` and both answers `[sequence scored 2]`,
            clean first; it returns `[sequence scored]`. None: the difference of both answers' logits, as in `patch`.
        into: the run that is changed, in which the gradient is taken.
        batch_size: the number of sequences that run at a time, in all members; None: at most 512, such that the streams
            of all receivers take about 512 MiB. Gradients can take twice as much on top.

    Source: Nanda, 2023; Syed, Rager & Conmy, 2023 (attribution patching); Hanna, Pezzelle & Belinkov, 2024 (steps).
    """
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into)
    compared = Comparison(pairs, metric, batch_size, baseline, steps)
    values = torch.stack([_scores_of_units(part).cpu() for part in compared.parts()]).sum(dim=0)
    return Scores(compared.named("attribution patching"), compared.graph.units, values, compared.passes(steps, steps))


def _scores_of_units(part: Part) -> Float[Tensor, "member unit"]:
    changes: Values = {}
    total = torch.zeros(())
    for entering in part.steps():
        # sum the gradients over all steps; the changes come from the first step alone
        gradients, present = mapped(part.compared.ensemble, partial(_gradients, part), [entering])
        if not changes:  # the first step is the plain run
            changes = {site: part.values[site] - value for site, value in present.items()}
        total = total + torch.cat([_by_unit(changes[site] * gradients[site], site) for site in changes], dim=1)
    return total / part.compared.steps


def _by_unit(product: Tensor, site: str) -> Tensor:
    """Sum `[member batch position ...]` over all but members and heads: `[member unit]`."""
    by_head = product.sum(dim=(1, 2), dtype=torch.float64)
    return by_head.sum(dim=-1) if site.endswith(".hook_z") else by_head.sum(dim=-1, keepdim=True)


def _gradients(part: Part, model: Stack, stream: Tensor) -> tuple[Values, Values]:
    """Return the gradients of the metric with respect to the values of `plain_pass`, and these values."""

    def measured(added: Values) -> tuple[Tensor, Values]:
        output, values = plain_pass(model, stream, part.positions, added)
        return part.compared.measure(output, part.answers), values

    found: tuple[Values, Values] = torch.func.grad(measured, has_aux=True)(no_change(model, stream))
    return found


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
    progress: Counted = None,
) -> Scores:
    """Score every edge from a unit to an input of a later unit by edge attribution patching, for all members at once.

    An edge is the direct path through the stream from what a head, a feed-forward layer or the embedding writes to the
    queries, keys or values of a head, to a feed-forward layer, or to the logits. Its score estimates how the metric
    changes if the receiver alone reads the sender's baseline, such as the sender's output in the other run:

        score = (sender's baseline - its output) . gradient of the metric at the receiver's input

        found = score_edges(run, clean, corrupted, steps=5)
        found.circuit(0.1)  # the edges that change the logit difference by at least 0.1
        found.ranking       # the units, [member unit]

    The edges that leave a unit add up to its score in `score_units`, except for heads of a model that normalises what
    each layer adds, as Gemma 3 does: there a head's output is scaled as the sum of the layer's heads is in the same
    run. If norms follow the residual sums, the sender's change passes through the norms on its way, to first order.

    Args:
        steps: the number of runs whose gradients are averaged. 1 is EAP. More is EAP-IG (5 in the source): the
            embeddings of run k lie k / steps of the way from their baseline to the changed run. The mean captures
            effects that the gradient in the changed run alone misses, such as effects of saturated attention.
        progress: as in `effects`, counted in pairs times steps.

    Other arguments: as in `score_units`.
    Source: Syed, Rager & Conmy, 2023, arXiv 2310.10348; Hanna, Pezzelle & Belinkov, 2024, arXiv 2403.17806.
    """
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into)
    compared = Comparison(pairs, metric, batch_size, baseline, steps)
    with counted("scoring edges", progress) as tell:
        advance = Tally(tell, steps * len(pairs.base.inputs))
        values = torch.stack([_scores_of_edges(part, advance).cpu() for part in compared.parts()]).sum(dim=0)
    graph, method, cost = compared.graph, compared.named("edge attribution patching"), compared.passes(steps, steps)
    return Scores.of_edges(method, graph.units, graph.edges, values[:, *graph.cells], cost)


def _scores_of_edges(part: Part, advance: Tally) -> Tensor:
    """Return the scores of some pairs, `[member unit receiver]`; 0 where there is no edge."""
    changes: Tensor | None = None
    total = torch.zeros(())
    for entering in part.steps():
        stacked = [entering, part.others, changes]
        slopes, present = mapped(part.compared.ensemble, partial(_slopes, part), stacked)
        changes = part.others - present if changes is None else changes  # the first step is the plain run
        total = total + slopes.double()
        advance(part.stream.shape[1])
    return total / part.compared.steps


def _slopes(part: Part, model: Stack, stream: Tensor, others: Tensor, changes: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the derivative of the metric with respect to the removal of each edge, and what the units write."""

    if not isinstance(model, Transformer):
        measure = partial(part.compared.measure, answers=part.answers)
        return slopes(model, stream, part.positions, measure, others, changes)

    def measured(removed: Tensor) -> tuple[Tensor, Tensor]:
        output, written = split_pass(model, stream, removed, others, part.positions, changes)
        return part.compared.measure(output, part.answers), written

    removed = stream.new_zeros(len(others), len(part.compared.graph.receivers))
    found: tuple[Tensor, Tensor] = torch.func.grad(measured, has_aux=True)(removed)
    return found
