"""Some of the pairs of a comparison, on which edges are removed: what runs, and what removed edges carry."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens.scoring.comparison import Comparison, Rows
from anchorlab.lens.scoring.passes import embedded, mapped, split_pass, unit_outputs


@dataclass(frozen=True)
class Part:
    """Some pairs, the streams that enter block 0 in the run to change, and what the units write in the other run."""

    compared: Comparison
    rows: Rows
    stream: Float[Tensor, "member row position width"]
    others: Float[Tensor, "member unit row position width"]

    @classmethod
    def of(cls, compared: Comparison, rows: Rows) -> "Part":
        """Return some pairs with the streams and the outputs of units that passes over them need."""
        stream, end = (mapped(compared.ensemble, embedded, shared=[each]) for each in (rows.base, rows.source))
        return cls(compared, rows, stream, mapped(compared.ensemble, unit_outputs, [end]))

    def outputs(self, removed: Float[Tensor, "member unit receiver"]) -> Float[Tensor, "member row scored output"]:
        """Return every member's outputs with some of its edges removed."""
        stacked = [self.stream, removed.to(self.stream), self.others]
        found: Tensor = mapped(self.compared.ensemble, split_pass, stacked, [self.rows.positions])[0]
        return found

    def metric(
        self,
        outputs: Float[Tensor, "member row scored output"],
        whole: Float[Tensor, "member row scored output"] | None = None,
    ) -> Float[Tensor, "member"]:
        """Return the share of these pairs in each member's metric, or in the divergence from the whole model."""
        if whole is None:
            return torch.stack([self.compared.measure(each.double(), self.rows.answers) for each in outputs]).cpu()
        pruned, own = (each.double().log_softmax(dim=-1) for each in (outputs, whole))
        divergence = (own.exp() * (own - pruned)).sum(dim=(1, 2, 3))
        return divergence.cpu() / self.compared.count
