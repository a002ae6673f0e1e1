"""Exact effects of edges and units, by replacing one at a time: path patching and activation patching."""

from collections.abc import Sequence
from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.effects.effects import Metric
from anchorlab.lens.effects.pairs import Into, Pairs
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.scoring.comparison import Baseline, Comparison
from anchorlab.lens.scoring.hooked import Norms
from anchorlab.lens.scoring.scores import Scores
from anchorlab.progress import Counted, counted
from anchorlab.spec import check_known


def patch_edges(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    edges: Sequence[tuple[str, str]] | None = None,
    norms: Norms = "live",
    baseline: Baseline = "pair",
    metric: Metric | None = None,
    into: Into = "clean",
    positions: AnyPositions | None = None,
    batch_size: int | None = None,
    progress: Counted = None,
) -> Scores:
    """Score every edge by path patching: how the metric changes if its receiver alone reads the sender's baseline.

    Each edge has a pass of its own, in which all other edges are as in the plain run, and everything after the receiver
    reacts to the change. `score_edges` estimates the same from gradients.

        patch_edges(run, clean, corrupted).circuit(0.1)  # edges that change the logit difference by at least 0.1
        patch_edges(model, clean, corrupted, edges=[("3.1", "7.2.k"), ("embed", "7.2.k")])

    Args:
        edges: the edges to patch, as sender and receiver; None: all. A pretrained model has tens of thousands.
        norms: `live`, the norm before the receiver divides the changed stream by its own scale; or `frozen`, by the
            unchanged stream's scale, so that the effect of a path on the scale does not count. Only `live` for the
            transformers of this package.
        progress: as in `effects`, counted in edges.

    Other arguments: as in `score_units`.
    Source: Goldowsky-Dill et al., 2023, arXiv 2304.05969.
    """
    compared = Comparison(
        Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into), metric, batch_size, baseline
    )
    check_known("norms", norms, get_args(Norms), "form")
    if norms == "frozen" and not compared.is_pretrained:
        raise SpecError("norms", "are frozen in pretrained models only", "leave them live")
    if edges is not None and not edges:
        raise SpecError("edges", "are none", "give some as sender and receiver, or leave them out for all")
    chosen, cells = compared.graph.chosen(edges, "edges"), compared.graph.cells.T.tolist()
    values = _patched(compared, [[cells[at]] for at in chosen.values()], progress, norms)
    method, cost = compared.named("path patching"), compared.passes(len(chosen) + 1)
    return Scores.of_edges(method, compared.graph.units, tuple(chosen), values, cost)


def patch_units(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    baseline: Baseline = "pair",
    metric: Metric | None = None,
    into: Into = "clean",
    positions: AnyPositions | None = None,
    batch_size: int | None = None,
    progress: Counted = None,
) -> Scores:
    """Score every unit by activation patching: how the metric changes if all later units read its baseline.

    Corrupted values in the clean run (`into="clean"`) are called noising, clean ones in the corrupted run denoising.
    With the baseline `mean` or `zero` this is ablation. `score_units` estimates the same from gradients.

    Args:
        progress: as in `effects`, counted in units.

    Other arguments: as in `score_units`.
    Source: Meng et al., 2022, section 2; Heimersheim & Nanda, 2024, arXiv 2404.15255 (noising and denoising).
    """
    compared = Comparison(
        Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into), metric, batch_size, baseline
    )
    units, cells = compared.graph.units, compared.graph.cells.T.tolist()
    values = _patched(compared, [[cell for cell in cells if cell[0] == unit] for unit in range(len(units))], progress)
    return Scores(compared.named("activation patching"), units, values, compared.passes(len(units) + 1))


def _patched(
    compared: Comparison, groups: Sequence[Sequence[Sequence[int]]], progress: Counted, norms: Norms = "live"
) -> Float[Tensor, "member group"]:
    """Return how the metric changes if the edges of each group, given as unit and receiver, are removed."""
    parts = [*compared.parts()]

    def measured(removed: Tensor) -> Tensor:
        return torch.stack([part.metric(part.outputs(removed, norms)) for part in parts]).sum(dim=0)

    plain, changes = measured(compared.none_removed), list[Tensor]()
    with counted("patching", progress) as tell:
        for group in groups:
            removed = compared.none_removed.clone()
            for unit, receiver in group:
                removed[:, unit, receiver] = 1
            changes.append(measured(removed) - plain)
            tell(len(changes), len(groups))
    return torch.stack(changes, dim=1)
