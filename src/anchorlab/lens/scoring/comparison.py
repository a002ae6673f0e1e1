"""The arguments that all scoring methods share: a model, pairs of sequences, and a metric of outputs and answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.effects import Metric, Pairs, logit_difference
from anchorlab.lens.look import row_ranges, sequences_at_a_time
from anchorlab.lens.scoring.graph import receivers_of
from anchorlab.lens.scoring.passes import ENTERING, embedded, mapped, split_pass, unit_outputs
from anchorlab.lens.vectors.attribution import transformer
from anchorlab.models.transformer import Transformer
from anchorlab.training.ensemble import Ensemble


@dataclass(frozen=True)
class Comparison:
    """A transformer, checked pairs of sequences, and the metric to score by; None: the difference of both logits."""

    pairs: Pairs
    metric: Metric | None
    batch_size: int | None

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

    def parts(self) -> Iterator["Part"]:
        """Yield the pairs in parts that fit into memory with the streams of all receivers and members."""
        base, source = self.pairs.base, self.pairs.source
        copies = self.ensemble.size * len(receivers_of(self.template)) * (2 * len(self.template.blocks) + 2)
        size = sequences_at_a_time(base, given=self.batch_size, kept=[ENTERING], copies=copies)
        weights = self.ensemble.weights
        for rows in row_ranges(range(len(base.inputs)), size):
            (here, positions), (there, _) = base.rows(rows, weights), source.rows(rows, weights)
            stream, end = (mapped(self.ensemble, embedded, shared=[each]) for each in (here, there))
            answers = self.pairs.answers[rows.start : rows.stop].to(positions.device)
            yield Part(self, stream, end, positions, answers)

    def measure(
        self, output: Float[Tensor, "row scored output"], answers: Int[Tensor, "row scored 2"]
    ) -> Float[Tensor, ""]:
        """Return these rows' share of the metric's mean over all sequences and scored positions."""
        found = (self.metric or logit_difference)(output, answers)
        if not found.is_floating_point():
            raise SpecError("metric", f"returns {found.dtype}, which has no derivative", "use a metric of real numbers")
        return found.sum() / self.count


@dataclass(frozen=True)
class Part:
    """Some of the pairs, with the streams that enter block 0 in the run to change and in the other run."""

    compared: Comparison
    stream: Float[Tensor, "member row position width"]
    end: Float[Tensor, "member row position width"]
    positions: Int[Tensor, "*row scored"]
    answers: Int[Tensor, "row scored 2"]

    @cached_property
    def others(self) -> Float[Tensor, "member unit row position width"]:
        """What the units write in the other run."""
        written: Tensor = mapped(self.compared.ensemble, unit_outputs, [self.end])
        return written

    def steps(self, count: int) -> Iterator[Float[Tensor, "member row position width"]]:
        """Yield the streams of a number of steps from the other run to the one to change, which is the first."""
        for step in range(count, 0, -1):
            yield self.stream if step == count else torch.lerp(self.end, self.stream, step / count)

    def outputs(self, removed: Float[Tensor, "member unit receiver"]) -> Float[Tensor, "member row scored output"]:
        """Return every member's outputs with some of its edges removed."""
        stacked = [self.stream, removed.to(self.stream), self.others]
        found: Tensor = mapped(self.compared.ensemble, split_pass, stacked, [self.positions])[0]
        return found

    def metric(
        self,
        outputs: Float[Tensor, "member row scored output"],
        whole: Float[Tensor, "member row scored output"] | None = None,
    ) -> Float[Tensor, "member"]:
        """Return the share of these pairs in each member's metric, or in the divergence from the whole model."""
        if whole is None:
            return torch.stack([self.compared.measure(each.double(), self.answers) for each in outputs]).cpu()
        pruned, own = (each.double().log_softmax(dim=-1) for each in (outputs, whole))
        divergence = (own.exp() * (own - pruned)).sum(dim=(1, 2, 3))
        return divergence.cpu() / self.compared.count


def checked_steps(steps: int) -> int:
    """Return the number of steps unchanged, if it is at least 1."""
    if steps < 1:
        raise SpecError("steps", f"{steps} are no path between two runs", "give at least 1")
    return steps
