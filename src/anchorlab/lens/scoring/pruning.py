"""ACDC: remove edges one at a time, from the logits to the embedding, if the metric hardly changes."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.effects.effects import Metric
from anchorlab.lens.effects.pairs import Pairs
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.scoring.comparison import Baseline, Comparison
from anchorlab.lens.scoring.graph import LOGITS
from anchorlab.lens.scoring.scores import Scores
from anchorlab.progress import Counted, counted


def prune_edges(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    threshold: float,
    start: Sequence[tuple[str, str]] | None = None,
    baseline: Baseline = "pair",
    metric: Metric | None = None,
    positions: AnyPositions | None = None,
    batch_size: int | None = None,
    progress: Counted = None,
) -> Scores:
    """Remove every edge whose removal changes the metric by less than a threshold, one at a time, as ACDC does.

    A receiver reads, along a removed edge, the sender's baseline: its output in the corrupted run, as in the source,
    its mean over the clean sequences, or zero. Edges are tried from the logits back to the embedding, each on top of
    all earlier removals, so an edge that matters only together with a removed edge is removed too. All members are
    tried at once, and each keeps edges of its own.

        found = prune_edges(run, clean, corrupted, threshold=0.05)
        found.circuit(0.05, member=0)  # the edges that member 0 keeps

    The score of an edge is the change of the metric when it was tried; an edge is kept if its score is at least the
    threshold. Edges into a unit that nothing reads any more are removed without a pass, with score 0.

    Args:
        threshold: the source's τ.
        start: the edges to try, as sender and receiver, in any order; all others are removed beforehand. None: all.
            The edges with the largest scores in `score_edges` make pruning affordable in a pretrained model.
        metric: as in `score_units`; the score of an edge is the metric's absolute change. None: the divergence of the
            outputs from the whole model's, KL(whole, pruned) in nats, as in the source; the score of an edge is the
            rise of the divergence, or 0 if it falls.
        progress: as in `effects`, counted in edges.

    Other arguments: as in `score_units`.
    Source: Conmy et al., 2023, arXiv 2304.14997, algorithm 1.
    """
    if not threshold > 0:
        raise SpecError("threshold", f"{threshold} removes no edge", "give a positive number")
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, "clean")
    compared = Comparison(pairs, metric, batch_size, baseline)
    graph, removed = compared.graph, compared.none_removed
    chosen, edges, (senders, readers) = graph.chosen(start, "start"), graph.edges, graph.cells.tolist()
    parts = [*compared.parts()]
    whole = [part.outputs(removed) for part in parts]
    removed = removed.clone()
    removed[:, senders, readers] = torch.tensor([float(edge not in chosen) for edge in edges])

    def measured(outputs: Sequence[Tensor]) -> Tensor:
        references = whole if metric is None else [None] * len(parts)
        triples = zip(parts, outputs, references, strict=True)
        return torch.stack([part.metric(found, reference) for part, found, reference in triples]).sum(dim=0)

    exists = torch.zeros(removed.shape[1:], dtype=torch.bool)
    exists[senders, readers] = True

    def is_read(receiver: str) -> bool:
        """Return whether, in any member, something still reads a unit that an input feeds."""
        units = [graph.units.index(unit) for unit in graph.fed[receiver]]
        return bool(((removed[:, units] == 0) & exists[units]).any())

    current = measured(whole if start is None else [part.outputs(removed) for part in parts])
    scores = torch.zeros(len(removed), len(edges), dtype=torch.float64)
    tried_edges = 0
    with counted("pruning", progress) as tell:
        for done, at in enumerate(sorted(chosen.values(), reverse=True), 1):
            edge = edges[at]
            # try the edge in all members at once; each member accepts or refuses it by its own metric
            tried = removed.clone()
            tried[:, senders[at], readers[at]] = 1
            if edge.receiver == LOGITS or is_read(edge.receiver):
                found = measured([part.outputs(tried) for part in parts])
                tried_edges += 1
                scores[:, at] = (found - current).clamp(min=0) if metric is None else (found - current).abs()
                current = torch.where(scores[:, at] < threshold, found, current)
            removed = torch.where((scores[:, at] < threshold)[:, None, None], tried, removed)
            tell(done, len(chosen))
    cost = compared.passes(tried_edges + (1 if start is None else 2))
    return Scores.of_edges(compared.named("ACDC"), graph.units, edges, scores, cost)
