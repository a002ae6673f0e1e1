"""Scores of units by gradients: attribution patching, and gradient times activation."""

from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.effects import Into, Metric, Pairs
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.scoring.comparison import Comparison, Part, checked_steps
from anchorlab.lens.scoring.graph import units_of
from anchorlab.lens.scoring.passes import Values, mapped, no_change, plain_pass
from anchorlab.lens.scoring.scores import Passes, Scores
from anchorlab.models.model import gather_positions
from anchorlab.models.transformer import Transformer

Times = Literal["change", "activation"]
"""What multiplies the gradient: the change of a unit's output from one run to the other, or the output itself."""


def score_units(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    times: Times = "change",
    steps: int = 1,
    metric: Metric | None = None,
    into: Into = "clean",
    positions: AnyPositions | None = None,
    batch_size: int | None = None,
) -> Scores:
    """Score every unit by the gradient of a metric with respect to its output, for all members at once.

    Attribution patching estimates, from one backward pass, what `patch` measures with one forward pass per unit:

        score = (output in the other run - output) . gradient of the metric with respect to the output

    summed over positions and averaged over sequences. It is exact if the metric is linear in the output of the unit.
    With `steps`, the gradient is the mean over runs whose embeddings lie between both runs, at k / steps from the other
    run for k = 1 .. steps. The score of `embed` then tends to the whole change of the metric as steps grow.

    Args:
        clean, corrupted, answers, corrupted_answers, positions: as in `patch`.
        times: `change`, or `activation` for gradient times activation: minus the estimated effect of setting the output
            to zero. Corrupted sequences then only give the answers to compare with.
        steps: the number of runs whose gradients are averaged; 1 takes the gradient of the plain run.
        metric: a differentiable function of outputs `[sequence scored output]` and both answers `[sequence scored 2]`,
            clean first; it returns `[sequence scored]`. None: the difference of both answers' logits, as in `patch`.
        into: the run that is changed, whose gradient is used.
        batch_size: the number of sequences that run at a time, in all members; None: at most 512, such that the streams
            of all receivers take about 512 MiB. Gradients can take twice as much on top.

    Source: Nanda, 2023; Syed, Rager & Conmy, 2023 (attribution patching); Hanna, Pezzelle & Belinkov, 2024 (steps).
    """
    if times not in ("change", "activation"):
        raise SpecError("times", f"{times!r} is no factor of a gradient", "choose 'change' or 'activation'")
    if checked_steps(steps) > 1 and times == "activation":
        raise SpecError("steps", "lead from one run to the other", "use times='change', or one step")
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into)
    compared = Comparison(pairs, metric, batch_size)
    units = units_of(compared.template)
    values = torch.zeros(compared.ensemble.size, len(units), dtype=torch.float64)
    for part in compared.parts():
        values += _scores_of(part, times, steps).cpu()
    method = "gradient times activation" if times == "activation" else "attribution patching"
    method += f", {steps} steps" if steps > 1 else ""
    return Scores(method, units, values, Passes(steps + (times == "change"), steps))


def _scores_of(part: Part, times: Times, steps: int) -> Float[Tensor, "member unit"]:
    ensemble = part.compared.ensemble
    others = mapped(ensemble, plain_pass, [part.end])[1] if times == "change" else None
    factors: Values = {}
    total = torch.zeros(())
    for entering in part.steps(steps):
        # sum the gradients over all steps; the factors come from the first step alone
        gradients, present = mapped(ensemble, partial(_gradients, part), [entering])
        if not factors:  # the first step is the plain run
            factors = present if others is None else {site: others[site] - value for site, value in present.items()}
        total = total + torch.cat([_by_unit(factors[site] * gradients[site], site) for site in factors], dim=1)
    return total / steps


def _by_unit(product: Tensor, site: str) -> Tensor:
    """Sum `[member batch position ...]` over all but members and heads: `[member unit]`."""
    by_head = product.sum(dim=(1, 2), dtype=torch.float64)
    return by_head.sum(dim=-1) if site.endswith(".hook_z") else by_head.sum(dim=-1, keepdim=True)


def _gradients(part: Part, model: Transformer, stream: Tensor) -> tuple[Values, Values]:
    """Return the gradients of the metric with respect to the values of `plain_pass`, and these values."""

    def measured(added: Values) -> tuple[Tensor, Values]:
        output, values = plain_pass(model, stream, added)
        return part.compared.measure(gather_positions(output, part.positions), part.answers), values

    found: tuple[Values, Values] = torch.func.grad(measured, has_aux=True)(no_change(model, stream))
    return found
