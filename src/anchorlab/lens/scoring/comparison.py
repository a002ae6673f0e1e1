"""The arguments that all scoring methods share: a model, pairs of sequences, and a metric of outputs and answers."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.effects.effects import Metric
from anchorlab.lens.effects.pairs import Pairs, logit_difference
from anchorlab.lens.look.first_sequence import checked_size, sequences_at_a_time
from anchorlab.lens.look.inputs import fitting, positions_of, row_ranges
from anchorlab.lens.scoring.graph import receivers_of
from anchorlab.lens.scoring.passes import ENTERING
from anchorlab.lens.vectors.attribution import transformer
from anchorlab.models.transformer import Transformer
from anchorlab.training.ensemble import Ensemble


@dataclass(frozen=True)
class Rows:
    """Some of the pairs: the sequences that run, those whose values they receive, and what is scored."""

    base: Shaped[Tensor, "row position *feature"]
    source: Shaped[Tensor, "row position *feature"]
    positions: Int[Tensor, "*row scored"]
    answers: Int[Tensor, "row scored 2"]


@dataclass(frozen=True)
class Comparison:
    """A transformer, checked pairs of sequences, and the metric whose changes are scored."""

    pairs: Pairs
    metric: Metric
    batch_size: int | None

    @classmethod
    def of(cls, pairs: Pairs, metric: Metric | None, batch_size: int | None) -> "Comparison":
        """Return a comparison, by the logit difference without a `metric`."""
        transformer(pairs.base.ensemble)
        return cls(pairs, logit_difference if metric is None else metric, batch_size)

    @property
    def ensemble(self) -> Ensemble:
        """The members."""
        return self.pairs.base.ensemble

    @property
    def template(self) -> Transformer:
        """The members' architecture."""
        return transformer(self.ensemble)

    @property
    def count(self) -> int:
        """The number of scored positions of all sequences."""
        return self.pairs.answers[..., 0].numel()

    def rows(self) -> Iterator[Rows]:
        """Yield the pairs in parts that fit into memory with the streams of all receivers and members."""
        base, count = self.pairs.base, len(self.pairs.base.inputs)
        size = self.batch_size
        if size is None:
            copies = self.ensemble.size * len(receivers_of(self.template)) * (2 * len(self.template.blocks) + 2)
            size = sequences_at_a_time(base, kept=[ENTERING], copies=copies)
        weights = self.ensemble.weights
        for rows in row_ranges(range(count), checked_size(size)):
            at = slice(rows.start, rows.stop)
            here, there = (fitting(each.inputs[at], weights) for each in (base, self.pairs.source))
            positions = positions_of(base.scored, rows)
            assert positions is not None
            device = next(iter(weights.values())).device
            yield Rows(here, there, positions.to(device), self.pairs.answers[at].to(device))

    def measure(
        self, output: Float[Tensor, "row scored output"], answers: Int[Tensor, "row scored 2"]
    ) -> Float[Tensor, ""]:
        """Return these rows' share of the metric's mean over all sequences and scored positions."""
        found = self.metric(output, answers)
        if not found.is_floating_point():
            raise SpecError("metric", f"returns {found.dtype}, which has no derivative", "use a metric of real numbers")
        return found.sum() / self.count


def checked_steps(steps: int) -> int:
    """Return the number of steps unchanged, if it is at least 1."""
    if steps < 1:
        raise SpecError("steps", f"{steps} are no path between two runs", "give at least 1")
    return steps


def entering_streams(
    steps: int, base: Float[Tensor, "member row position width"], source: Float[Tensor, "member row position width"]
) -> Iterator[Float[Tensor, "member row position width"]]:
    """Yield the streams of the given number of steps from source to base, without the source, the base first."""
    for step in range(steps, 0, -1):
        yield base if step == steps else torch.lerp(source, base, step / steps)
