"""The outputs of one member under every subset of its units; what subsets have in common is computed once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.func import vmap

from anchorlab.lens.landscape.subsets import membership
from anchorlab.lens.landscape.units import BlockUnits
from anchorlab.lens.look.access import Access, evaluating
from anchorlab.lens.look.inputs import Subject, row_ranges
from anchorlab.lens.look.interventions import Intervention
from anchorlab.lens.look.sources import Borrowed, borrower
from anchorlab.models.model import gather_positions
from anchorlab.models.transformer import Transformer
from anchorlab.training.executions.member import member_module

Replacement = Literal["mean", "resample", "zero"]
"""What replaces a unit's output: its mean over all sequences at the same position, another sequence's, or zero."""

_ROWS = 256  # sequences per pass without interventions


@dataclass(frozen=True)
class _Rows:
    """Some rows of the batch: their inputs and scored positions, the values that replace units by site, and roles."""

    inputs: Shaped[Tensor, "row position *feature"]
    positions: Int[Tensor, "*row scored"]
    borrowed: Borrowed
    cells: Int[Tensor, "row position"] | None


class SubsetPasses:
    """Computes the outputs of one member with some of its units kept and all other units replaced.

    A block depends only on the units in it and below. So the passes form a tree: a block runs once for each subset of
    the units below it. `vmap` computes what precedes a replaced value, such as the attention of all heads, once for all
    subsets of the block's own units. The last block is computed only at the scored positions. `cells` are the roles of
    the positions, if units have roles.
    """

    def __init__(
        self,
        subject: Subject,
        member: int,
        units: Sequence[BlockUnits],
        replacement: Replacement,
        seed: int,
        cells: Int[Tensor, "batch position"] | None = None,
    ) -> None:
        self.weights = subject.ensemble.member_weights(member)
        self.module = cast(Transformer, member_module(subject.ensemble, member))
        self.subject, self.units, self.cells = replace(subject, access=Access(self.module)), units, cells
        self.first = next(block.layer for block in units if block.count)
        seeded = {"seed": seed} if replacement == "resample" else {}
        changes = {site: Intervention(site=site, rule=replacement, **seeded) for block in units for site in block.sites}
        with evaluating(self.module):
            self.borrow = borrower(self.subject, self.weights, changes, _ROWS)

    def __call__(
        self, rows: range, most: int
    ) -> Iterator[tuple[Int[Tensor, "set"], Float[Tensor, "set row scored output"]]]:
        """Yield the numbers of some subsets, and the outputs of some rows under each; every subset occurs once.

        At most `most` subsets are computed at a time.
        """
        inputs, positions = self.subject.rows(rows, self.weights)
        cells = None if self.cells is None else self.cells[rows.start : rows.stop].to(inputs.device)
        with evaluating(self.module):
            present = _Rows(inputs, positions, self.borrow(rows), cells)
            entering = self.module(inputs, leaving=self.first).unsqueeze(0)
        yield from self._from(self.first, torch.zeros(1, dtype=torch.int64), entering, 0, present, most)

    def _from(
        self, layer: int, below: Tensor, streams: Tensor, shift: int, rows: _Rows, most: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield subsets and outputs, given the subsets of the units below a block and the streams that they lead to.

        `shift` is the number of units below; the streams are `[below row position width]`.
        """
        block, last = self.units[layer], layer == len(self.units) - 1
        feed_forward = torch.arange(1 + block.feed_forward)
        for chosen in row_ranges(range(2 ** len(block.heads)), max(1, most // len(feed_forward))):
            heads = torch.arange(chosen.start, chosen.stop)
            own = (heads + (feed_forward << len(block.heads)).unsqueeze(-1)) << shift
            for some in row_ranges(range(len(below)), max(1, most // own.numel())):
                part = slice(some.start, some.stop)
                with evaluating(self.module):
                    outputs = self._block(block, heads, streams[part], rows, last).flatten(0, 2)
                sets = (own.unsqueeze(-1) + below[part]).flatten()
                if last:
                    yield sets, outputs
                else:
                    yield from self._from(layer + 1, sets, outputs, shift + block.count, rows, most)

    def _block(
        self, block: BlockUnits, heads: Tensor, streams: Tensor, rows: _Rows, last: bool
    ) -> Float[Tensor, "feed_forward heads below row position width"]:
        """Return the streams after a block, or the outputs of the last, for subsets of its units and several streams.

        `heads` are subsets of the heads that are units. A feed-forward layer that is a unit is replaced, then kept.
        """
        others = {site: self._other(site, rows, last) for site in block.sites}
        cells = gather_positions(rows.cells, rows.positions) if last and rows.cells is not None else rows.cells
        owners = block.owners(cells).to(streams.device)
        units_kept = torch.ones(len(heads), len(block.heads) + 1, dtype=torch.bool)  # the last: heads without a unit
        units_kept[:, :-1] = membership(len(block.heads)).T[heads]
        feed_forward_kept = torch.arange(1 + block.feed_forward) == int(block.feed_forward)

        def run(feed_forward: Tensor, heads: Tensor, stream: Tensor) -> Tensor:
            kept = {block.mixed: heads[owners].unsqueeze(-1), block.written: feed_forward}

            def tap(site: str, value: Tensor) -> Tensor:
                return torch.where(kept[site], value, others[site].to(value)) if site in others else value

            positions, leaving = (rows.positions, None) if last else (None, block.layer + 1)
            after: Tensor = self.module(rows.inputs, positions, tap, (block.layer, stream), leaving)
            return after

        by_stream = vmap(run, (None, None, 0))
        by_heads = vmap(by_stream, (None, 0, None))
        by_feed_forward = vmap(by_heads, (0, None, None))
        outputs: Tensor = by_feed_forward(feed_forward_kept.to(streams.device), units_kept.to(streams.device), streams)
        return outputs

    def _other(self, site: str, rows: _Rows, last: bool) -> Tensor:
        """Return the values that replace a site's, at the scored positions in the last block, else everywhere."""
        if site not in rows.borrowed:
            return torch.zeros(())
        values = rows.borrowed[site].expand(len(rows.inputs), *rows.borrowed[site].shape[1:])
        return gather_positions(values, rows.positions) if last else values
