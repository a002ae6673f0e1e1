"""The arguments that all scoring methods share: a model, pairs of sequences, a baseline, and a metric of outputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.effects.effects import Metric, one_each
from anchorlab.lens.effects.pairs import Pairs, logit_difference
from anchorlab.lens.look import Subject, own_places, row_ranges, sequences_at_a_time
from anchorlab.lens.scoring import passes
from anchorlab.lens.scoring.graph import Graph, graph_of
from anchorlab.lens.scoring.hooked import Norms, hooked_pass
from anchorlab.lens.scoring.passes import ENTERING, Values, mapped
from anchorlab.lens.scoring.scores import Passes
from anchorlab.lens.vectors.attribution import stack
from anchorlab.models.stack import Stack
from anchorlab.models.transformer import Transformer
from anchorlab.spec import check_known
from anchorlab.training.ensemble import Ensemble

Baseline = Literal["pair", "mean", "zero"]
"""What takes the place of a unit's output: its output in the other run, its mean over all sequences of the changed run
at the same position, or zero."""


@dataclass(frozen=True)
class Comparison:
    """A model, checked pairs of sequences, the metric to score by, and what takes the place of a unit's output.

    With `metric` None it is the difference of both answers' logits. The gradients of `steps` runs are averaged.
    """

    pairs: Pairs
    metric: Metric | None
    batch_size: int | None
    baseline: Baseline
    steps: int = 1

    def __post_init__(self) -> None:
        check_known("baseline", self.baseline, get_args(Baseline), "baseline")
        if self.steps < 1:
            raise SpecError("steps", f"{self.steps} are no path between two runs", "give at least 1")

    @property
    def ensemble(self) -> Ensemble:
        """The members."""
        return self.pairs.base.ensemble

    @property
    def template(self) -> Stack:
        """The members' architecture: a transformer of this package or a pretrained model."""
        return stack(self.ensemble)

    @cached_property
    def graph(self) -> Graph:
        """The members' units, inputs and edges."""
        return graph_of(self.template)

    @cached_property
    def none_removed(self) -> Float[Tensor, "member unit receiver"]:
        """Zeros: the value of `removed` that removes no edge."""
        return torch.zeros(self.ensemble.size, len(self.graph.units), len(self.graph.receivers))

    @property
    def is_pretrained(self) -> bool:
        """Whether the model is pretrained, so that hooks give its inputs streams of their own."""
        return not isinstance(self.template, Transformer)

    @property
    def count(self) -> int:
        """The number of scored positions of all sequences."""
        return self.pairs.answers[..., 0].numel()

    def named(self, method: str) -> str:
        """Return the name of a method with its steps, if there are several, and its baseline, if this is not `pair`."""
        steps = f", {self.steps} steps" if self.steps > 1 else ""
        return method + steps + ("" if self.baseline == "pair" else f", {self.baseline}")

    def passes(self, forward: int, backward: int = 0) -> Passes:
        """Return a method's passes, with one more for the values of a baseline other than zero."""
        return Passes(forward + (self.baseline != "zero"), backward)

    def parts(self) -> Iterator["Part"]:
        """Yield the pairs in parts that fit into memory with the streams of all receivers and members."""
        base = self.pairs.base
        if self.is_pretrained:
            copies = 4 * len(self.graph.units)
        else:
            copies = self.ensemble.size * len(self.graph.receivers) * (2 * len(self.template.blocks) + 2)
        size = sequences_at_a_time(base, given=self.batch_size, kept=[ENTERING], copies=copies)
        every = [*row_ranges(range(len(base.inputs)), size)]
        means = self._means(every) if self.baseline == "mean" else {}
        for rows in every:
            stream, positions = self._stream(base, rows), base.rows(rows, self.ensemble.weights)[1]
            answers = self.pairs.answers[rows.start : rows.stop].to(positions.device)
            if self.baseline == "pair":
                source = self._stream(self.pairs.source, rows)
                others = mapped(self.ensemble, passes.plain_pass, [source], [positions])[1]
            elif self.baseline == "mean":
                others = {site: mean.to(stream).expand(-1, len(rows), *mean.shape[2:]) for site, mean in means.items()}
            else:
                others = mapped(self.ensemble, passes.no_change, [stream])
            yield Part(self, stream, others, positions, answers)

    def _stream(self, subject: Subject, rows: range) -> Float[Tensor, "member row position width"]:
        """Return what enters block 0 for some sequences."""
        inputs = subject.rows(rows, self.ensemble.weights)[0]
        stream: Tensor = mapped(self.ensemble, passes.embedded, shared=[inputs])
        return stream

    def _means(self, every: Sequence[range]) -> Values:
        """Return the means of what the units write over sequences, `[member 1 position *unit]`, without padding."""
        base, sums = self.pairs.base, dict[str, Tensor]()
        width = base.inputs.shape[1]
        own = own_places(torch.full((len(base.inputs),), width) if base.lengths is None else base.lengths, width)
        for rows in every:
            positions = base.rows(rows, self.ensemble.weights)[1]
            values: Values = mapped(self.ensemble, passes.plain_pass, [self._stream(base, rows)], [positions])[1]
            for site, value in values.items():
                here = own[rows.start : rows.stop].to(value).reshape(len(rows), width, *(1,) * (value.ndim - 3))
                sums[site] = sums.get(site, 0) + (value * here).sum(dim=1, keepdim=True, dtype=torch.float64)
        counts = own.sum(dim=0).clamp_min(1)
        return {site: total / counts.to(total).reshape(-1, *(1,) * (total.ndim - 3)) for site, total in sums.items()}

    def measure(
        self, output: Float[Tensor, "row scored output"], answers: Int[Tensor, "row scored 2"]
    ) -> Float[Tensor, ""]:
        """Return these rows' share of the metric's mean over all sequences and scored positions."""
        return self.each(output, answers).sum() / self.count

    def each(
        self, output: Float[Tensor, "row scored output"], answers: Int[Tensor, "row scored 2"]
    ) -> Float[Tensor, "row scored"]:
        """Return the metric at every scored position."""
        found = one_each("metric", (self.metric or logit_difference)(output, answers), answers)
        if not found.is_floating_point():
            raise SpecError("metric", f"returns {found.dtype}, which has no derivative", "use a metric of real numbers")
        if output.requires_grad and not found.requires_grad:
            raise SpecError("metric", "has no derivative by the outputs", "use a differentiable function of them")
        return found


@dataclass(frozen=True)
class Part:
    """Some of the pairs, with the stream that enters block 0 in the run to change, and what replaces units, by site."""

    compared: Comparison
    stream: Float[Tensor, "member row position width"]
    values: Values
    positions: Int[Tensor, "*row scored"]
    answers: Int[Tensor, "row scored 2"]

    @cached_property
    def others(self) -> Float[Tensor, "member unit row position width"]:
        """The values that replace what each unit adds to the stream."""
        written: Tensor = mapped(self.compared.ensemble, passes.unit_outputs, [self.values])
        return written

    def steps(self) -> Iterator[Float[Tensor, "member row position width"]]:
        """Yield the stream of each step, the first in the run to change, the others between it and the baseline."""
        count = self.compared.steps
        for step in range(count, 0, -1):
            yield self.stream if step == count else torch.lerp(self.values[ENTERING], self.stream, step / count)

    def outputs(
        self, removed: Float[Tensor, "member unit receiver"], norms: Norms = "live"
    ) -> Float[Tensor, "member row scored output"]:
        """Return every member's outputs with some of its edges removed."""
        stacked = [self.stream, removed.to(self.stream), self.others]
        split = partial(hooked_pass, norms=norms) if self.compared.is_pretrained else passes.split_pass
        with torch.no_grad():
            found: Tensor = mapped(self.compared.ensemble, split, stacked, [self.positions])[0]
        return found

    def by_pair(self, outputs: Float[Tensor, "member row scored output"]) -> Float[Tensor, "member row"]:
        """Return each member's metric on each pair, mean over scored positions."""
        return torch.stack([self.compared.each(one.double(), self.answers).mean(dim=-1) for one in outputs]).cpu()

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
