"""Measure the landscape of a model: its loss and accuracy with every subset of its units."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import cast, get_args

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.func import vmap

from anchorlab.errors import SpecError
from anchorlab.lens.landscape.landscape import Landscape, Replacement, checked_finite
from anchorlab.lens.landscape.subsets import membership
from anchorlab.lens.landscape.units import BlockUnits, Kind, chosen_units, have_roles, role_map
from anchorlab.lens.look import AnyModel, Intervention, Subject, as_ensemble, row_ranges, sequences_at_a_time
from anchorlab.lens.look.access import Access, evaluating
from anchorlab.lens.look.sources import Borrowed, borrower
from anchorlab.lens.own_task import check_fits, own_task
from anchorlab.lens.threads import Tally, in_threads
from anchorlab.lens.vectors.attribution import transformer
from anchorlab.models.cpu import fast_float32
from anchorlab.models.model import gather_positions
from anchorlab.models.transformer import Transformer
from anchorlab.progress import Counted, counted
from anchorlab.rng import child_seed
from anchorlab.spec import check_known
from anchorlab.tasks.batch import Batch
from anchorlab.tasks.task import Task
from anchorlab.training.executions.member import member_module
from anchorlab.training.feed import map_batch

_ROWS, _AT_A_TIME = 64, 4096
_PLAIN_ROWS = 256  # sequences per pass without interventions


def landscape(
    model: AnyModel,
    units: Kind | Sequence[str] = "heads",
    replace: Replacement = "mean",
    *,
    task: Task | str | None = None,
    split: str | None = None,
    sequences: int = 256,
    seed: int = 0,
    progress: Counted = None,
) -> Landscape:
    """Measure the loss and the accuracy of every member with every subset of its units.

        found = al.landscape(run, units="all")
        found.minimal(0.1)  # for each member, all smallest sets that suffice

    All units outside of the subset are replaced; everything that is not a unit stays as it is. So subset 0 has all
    units replaced, and the last is the model itself. A head is replaced at the site `hook_z`, its output before the
    output map, and a feed-forward layer at `hook_mlp_out`, its output.

    A head may be several units, one for each role of positions: `0.1@anchor-1` is head 0.1 at the positions of the role
    `anchor 1` in each sequence (`Task.roles`), and `0.1@other` at positions without a role, so that the units of a head
    together make up the head. A position with several roles counts as the first. Replacements come from the same
    position, not from the same role: the values at one role share what the head does for the role, such as bringing
    the anchor to every key, so their mean would keep exactly that.

    Nothing is searched or approximated: 2^n subsets of n units are computed. Everything before the first unit's
    block is computed once, and every other block once for every subset of the units below it.

    Args:
        model: a run, an ensemble or a module of a transformer.
        units: `heads`; `all`, heads and feed-forward layers; `roles`, every head at every role, without those that can
            change nothing; or the names of some, such as `["0.0", "0.1@anchor-1", "1.mlp"]`.
        replace: `mean`, the unit's mean over all sequences at the same position; `resample`, its value in another
            sequence; or `zero`.
        task: gives the sequences and the loss; a task or its name. A run knows its own.
        split: the split to draw sequences from; None: the last.
        seed: the seed of the sequences and of resampling.
        progress: as in `effects`, counted in subsets times sequences.
    """
    check_known("replace", replace, get_args(Replacement), "replacement")
    least = 2 if replace == "resample" else 1
    if sequences < least:
        raise SpecError("sequences", f"{sequences} are too few", f"give at least {least}")
    ensemble, task = as_ensemble(model), own_task(model, task)
    template = transformer(ensemble)
    check_fits(ensemble, task)
    batch = task.sample(split or task.splits[-1], sequences, child_seed(seed, "landscape"))
    roles = role_map(task, batch) if have_roles(units) else None
    names, blocks = chosen_units(template, units, roles)
    subject = Subject.of(ensemble, batch.inputs, batch.positions)
    size = sequences_at_a_time(subject, passes=min(torch.get_num_threads(), ensemble.size), most=_AT_A_TIME)
    at_a_time = min(size, _ROWS)

    def by_member(member: int) -> Float[Tensor, "metric subset"]:
        """Return the loss and the accuracy of one member with each subset."""
        passes = SubsetPasses(subject, member, blocks, replace, seed, None if roles is None else roles.cells)
        found = torch.zeros(2, 2 ** len(names), dtype=torch.float64)
        for rows in row_ranges(range(sequences), at_a_time):
            for sets, outputs in passes(rows, max(1, size // len(rows))):
                found[:, sets] += _sums(task, batch, rows, outputs).cpu()
                tally(len(sets) * len(rows))
        return found / (batch.targets.shape[:2].numel() if batch.weights is None else batch.weights.sum())

    with fast_float32(), counted("measuring subsets", progress) as tell:
        tally = Tally(tell, ensemble.size * sequences * 2 ** len(names))
        loss, accuracy = torch.stack(in_threads(by_member, ensemble.size), dim=1)
    return Landscape(names, checked_finite(loss), accuracy, replace)


def _sums(
    task: Task, batch: Batch, rows: range, outputs: Float[Tensor, "set row scored output"]
) -> Float[Tensor, "metric set"]:
    """Return the sums of loss and accuracy over the scored positions of some rows; NaN without an accuracy."""

    def part(value: Tensor) -> Tensor:
        shared = value is batch.positions and value.ndim == 1
        return value.to(outputs.device) if shared else value[rows.start : rows.stop].to(outputs.device)

    some = map_batch(batch, part)

    def sums(output: Tensor) -> Tensor:
        loss = task.losses(output, some.targets)
        accuracy = task.metrics(output, some).get("accuracy", torch.full_like(loss, torch.nan))
        both = torch.stack([loss.double(), accuracy.double()])
        return (both if some.weights is None else both * some.weights).sum(dim=(1, 2))

    return vmap(sums, out_dims=1)(outputs)


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
        cells: Int[Tensor, "batch position"] | None,
    ) -> None:
        self.weights = subject.ensemble.member_weights(member)
        self.module = cast(Transformer, member_module(subject.ensemble, member))
        self.subject, self.units, self.cells = replaced(subject, access=Access(self.module)), units, cells
        self.first = next(block.layer for block in units if block.count)
        seeded = {"seed": seed} if replacement == "resample" else {}
        changes = {site: Intervention(site=site, rule=replacement, **seeded) for block in units for site in block.sites}
        with evaluating(self.module):
            self.borrow = borrower(self.subject, self.weights, changes, _PLAIN_ROWS)

    def __call__(
        self, rows: range, most: int
    ) -> Iterator[tuple[Int[Tensor, "set"], Float[Tensor, "set row scored output"]]]:
        """Yield the numbers of at most `most` subsets, and the outputs of some rows under each; every subset once."""
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
            # the numbers of the subsets of this block's units, `[feed_forward heads]`: bits of the heads, then one bit
            # for the feed-forward layer, moved up by the number of units below
            own = (heads + (feed_forward << len(block.heads)).unsqueeze(-1)) << shift
            # as many subsets below at a time as fit: each has a stream, and meets every subset of this block's units
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

        `heads` are subsets of the heads that are units. A feed-forward unit is replaced at index 0, kept at index 1.
        """
        others = {site: self._other(site, rows, last) for site in block.sites}
        # the unit that each head belongs to at each position: a head split by roles is a unit for each role
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

        # nested maps share work: attention before the taps depends on the stream alone and is computed once per stream;
        # only what follows a replaced value is computed for every subset
        by_stream = vmap(run, (None, None, 0))
        by_heads = vmap(by_stream, (None, 0, None))
        by_feed_forward = vmap(by_heads, (0, None, None))
        outputs: Tensor = by_feed_forward(feed_forward_kept.to(streams.device), units_kept.to(streams.device), streams)
        return outputs

    def _other(self, site: str, rows: _Rows, last: bool) -> Tensor:
        """Return what replaces a site's values, at the scored positions in the last block, else everywhere."""
        if site not in rows.borrowed:
            return torch.zeros(())
        values = rows.borrowed[site].expand(len(rows.inputs), *rows.borrowed[site].shape[1:])
        return gather_positions(values, rows.positions) if last else values
