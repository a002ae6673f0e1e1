"""Scores of units by gradients: attribution patching, plain or integrated."""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens.effects import Into, Metric, Pairs
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.scoring.comparison import Baseline, Comparison, Part
from anchorlab.lens.scoring.graph import units_of
from anchorlab.lens.scoring.passes import Values, mapped, no_change, plain_pass
from anchorlab.lens.scoring.scores import Scores
from anchorlab.models.stack import Stack


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
    With `steps`, the gradient is the mean over runs whose embeddings lie between their baseline and the run, at
    k / steps from the baseline for k = 1 .. steps. The score of `embed` then tends to the whole change of the metric.

    Args:
        model: as in `look`, with a transformer of this package or a pretrained model.
        clean, corrupted, answers, corrupted_answers, positions: as in `patch`.
        baseline: what the output changes to: `pair`, the output in the other run; `mean`, its mean over all sequences
            of the changed run at the same position; or `zero`, which makes the score minus gradient times activation.
            With a mean or zero, the other run only gives the answers to compare with. Rankings depend much on it.
        steps: the number of runs whose gradients are averaged; 1 takes the gradient of the plain run.
        metric: a differentiable function of outputs `[sequence scored output]` and both answers `[sequence scored 2]`,
            clean first; it returns `[sequence scored]`. None: the difference of both answers' logits, as in `patch`.
        into: the run that is changed, whose gradient is used.
        batch_size: the number of sequences that run at a time, in all members; None: at most 512, such that the streams
            of all receivers take about 512 MiB. Gradients can take twice as much on top.

    Source: Nanda, 2023; Syed, Rager & Conmy, 2023 (attribution patching); Hanna, Pezzelle & Belinkov, 2024 (steps).
    """
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into)
    compared = Comparison(pairs, metric, batch_size, baseline, steps)
    units = units_of(compared.template)
    values = torch.zeros(compared.ensemble.size, len(units), dtype=torch.float64)
    for part in compared.parts():
        values += _scores_of(part).cpu()
    return Scores(compared.named("attribution patching"), units, values, compared.passes(steps, steps))


def _scores_of(part: Part) -> Float[Tensor, "member unit"]:
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
