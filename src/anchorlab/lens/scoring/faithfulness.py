"""How much of a metric the edges with the largest scores keep, compared with random edges."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.effects.effects import Metric
from anchorlab.lens.effects.pairs import Into, Pairs, recovered_fraction
from anchorlab.lens.grids import Tabled, grid_table
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.scoring.comparison import Baseline, Comparison
from anchorlab.lens.scoring.scores import Scores
from anchorlab.progress import Counted, counted
from anchorlab.rng import torch_generator

if TYPE_CHECKING:
    import polars

SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The shares of edges at which a curve is measured, as in Mueller et al., 2025 (MIB), section 3.2."""


@dataclass(frozen=True, repr=False)
class Faithfulness(Tabled):
    """The metric of a model that keeps only the edges with the largest scores, or as many random edges.

    Fields
        sizes: the numbers of edges kept
        edges: the number of all edges of the model

    Shapes
        metric: `[member size pair]`, averaged over the scored positions of each pair
        random: `[member size control pair]`, the same for random edges
    """

    sizes: tuple[int, ...]
    edges: int
    metric: Float[Tensor, "member size pair"]
    random: Float[Tensor, "member size control pair"]

    @property
    def values(self) -> Float[Tensor, "member size"]:
        """The faithfulness: 0 without any edge, 1 with all; NaN if edges make no difference.

        (metric - metric without edges) / (metric of the whole model - metric without edges), of means over pairs.
        """
        return self._share(self.metric.mean(dim=-1))

    @property
    def random_values(self) -> Float[Tensor, "member size"]:
        """The faithfulness of random edges, from the mean over pairs and controls."""
        return self._share(self.random.mean(dim=(-1, -2)))

    @property
    def area(self) -> Float[Tensor, "member"]:
        """The area under the faithfulness against the share of edges, from 0 to 1 (MIB's CPR): 1 if no edge is needed.

        Source: Mueller et al., 2025, arXiv 2504.13151, equation (3).
        """
        return self._area(self.values)

    @property
    def random_area(self) -> Float[Tensor, "member"]:
        """The area under the faithfulness of random edges."""
        return self._area(self.random_values)

    def least(self, share: float, member: int = 0) -> int | None:
        """Return the smallest measured size from which the faithfulness stays at least at `share`, or None."""
        enough = self.values[member] >= share
        lasting = enough.flip(0).cummin(dim=0).values.flip(0)
        return next((size for size, is_enough in zip(self.sizes, lasting.tolist(), strict=True) if is_enough), None)

    @property
    def table(self) -> "polars.DataFrame":
        """One row per member and size, with the faithfulness of the largest scores and of random edges."""
        axes = {"member": range(len(self.metric)), "edges": self.sizes}
        return grid_table(axes, {"faithfulness": self.values, "random": self.random_values})

    def _share(self, metric: Float[Tensor, "member size"]) -> Float[Tensor, "member size"]:
        ends = self.metric.mean(dim=-1)
        return recovered_fraction(metric, ends[:, -1], ends[:, 0])

    def _area(self, values: Float[Tensor, "member size"]) -> Float[Tensor, "member"]:
        return torch.trapezoid(values, torch.tensor(self.sizes, dtype=values.dtype) / self.edges, dim=1)


def faithfulness(
    model: AnyModel,
    found: Scores,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    sizes: Sequence[int] | None = None,
    controls: int = 3,
    seed: int = 0,
    baseline: Baseline = "pair",
    metric: Metric | None = None,
    into: Into = "clean",
    positions: AnyPositions | None = None,
    batch_size: int | None = None,
    progress: Counted = None,
) -> Faithfulness:
    """Measure how much of a metric remains with only the edges of the largest scores, for several numbers of edges.

    All other edges carry the sender's baseline. A circuit that explains the model keeps its metric with few edges, and
    random edges do not.

        found = score_edges(model, clean, corrupted, answers, wrong, steps=5)
        curve = faithfulness(model, found, clean_2, corrupted_2, answers_2, wrong_2)  # on other pairs
        curve.least(0.8), curve.area, curve.random_area

    Args:
        found: scores of edges, as from `score_edges`, on other pairs, so that they are not fitted to these pairs.
        sizes: the numbers of edges, besides none and all; None: the shares `SHARES` of all edges.
        controls: how many random sets of edges are measured for each size; 0 leaves the random values NaN.
        seed: the seed of the random edges.
        progress: as in `effects`, counted in sets of edges.

    Other arguments: as in `score_units`.
    Source: Hanna, Pezzelle & Belinkov, 2024, arXiv 2403.17806, section 3 (normalised faithfulness).
    """
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into)
    compared = Comparison(pairs, metric, batch_size, baseline)
    edges, cells = compared.graph.edges, compared.graph.cells
    if found.edges != edges or found.edge_values is None or len(found.edge_values) != compared.ensemble.size:
        raise SpecError("found", "has not the edges of this model", "give scores of `score_edges` of the same model")
    if sizes is None:
        sizes = [round(share * len(edges)) for share in SHARES]
    every = tuple(sorted({0, *sizes, len(edges)}))
    if every[0] < 0 or every[-1] > len(edges):
        raise SpecError("sizes", f"hold {every[0] if every[0] < 0 else every[-1]}", f"choose from 0 to {len(edges)}")
    if controls < 0:
        raise SpecError("controls", f"{controls} is no number of sets", "give 0 or more")
    best = found.edge_values.abs().argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    ranks = [best]
    for control in range(controls):
        drawn = torch.rand(best.shape, generator=torch_generator(seed, "random edges", control))
        ranks.append(drawn.argsort(dim=1).argsort(dim=1))
    parts = [*compared.parts()]

    def measured(kept: Bool[Tensor, "member edge"]) -> Float[Tensor, "member pair"]:
        removed = compared.none_removed.clone()
        removed[:, *cells] = (~kept).float()
        rows = [part.by_pair(part.outputs(removed)) for part in parts]
        return torch.cat(rows, dim=1)

    sets = len(every) * len(ranks)
    values: list[Tensor] = []
    with counted("removing edges", progress) as tell:
        for size in every:
            for rank in ranks:
                # without edges, and with all, every set is the same
                same = size in (0, len(edges)) and rank is not best
                values.append(values[-1] if same else measured(rank < size))
                tell(len(values), sets)
    stacked = torch.stack(values, dim=1)
    found_values = stacked.view(len(stacked), len(every), len(ranks), -1)
    return Faithfulness(every, len(edges), found_values[:, :, 0], found_values[:, :, 1:])
