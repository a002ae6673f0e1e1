"""Run many interventions at one site in one pass, mapped by `vmap`, that begins at the site's block."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from anchorlab.errors import SiteError
from anchorlab.lens.look.access import Access, evaluating
from anchorlab.lens.look.inputs import Subject, fitting, row_ranges
from anchorlab.lens.look.intervene import Moment, intervene
from anchorlab.lens.look.interventions import BORROWING, Intervention, Operand
from anchorlab.lens.look.replay import Streams, replay
from anchorlab.lens.look.sources import Borrower, borrower
from anchorlab.models.model import accepts
from anchorlab.training.executions.member import member_module

_MOST = 64  # maximum number of interventions per pass
_BLOCK = re.compile(r"blocks\.(\d+)\.")


@dataclass(frozen=True)
class _Group:
    """Interventions of one pass, all at one site; `begin` is the index of the first among the site's interventions."""

    site: str
    begin: int
    named: Mapping[str, Intervention]
    borrow: Borrower
    needs_every_position: bool


class MappedPasses:
    """Computes the outputs of one member without intervention and under each of many interventions.

    If the model's forward takes `entering`, a pass begins at the block of its site, with the stream from a pass without
    interventions. The index of the intervention enters at the site: `vmap` runs the computation before the site once,
    and after the site for all interventions together. A transformer computes its last layer only at the scored
    positions, unless an intervention there needs other positions.

    Each instance has its own copy of the module, so several threads can work at once.
    """

    def __init__(self, subject: Subject, member: int) -> None:
        self.weights = subject.ensemble.member_weights(member)
        self.access = Access(member_module(subject.ensemble, member))
        self.subject, self.member = replace(subject, access=self.access), member
        self.begins_anywhere = accepts(self.access.module, "entering")

    def __call__(
        self, grid: Mapping[str, Sequence[Intervention]], batch_size: int
    ) -> Iterator[tuple[str | None, int, range, Float[Tensor, "place row *scored output"]]]:
        """Yield site, index of the first intervention, rows of the batch, and outputs `[place row scored output]`.

        Each `place` is one intervention at the site. For outputs without intervention the site is None. The number of
        sequences times interventions in memory is at most `batch_size`.
        """
        with evaluating(self.access.module):
            groups = [group for site, changes in grid.items() for group in self._groups(site, changes, batch_size)]
        largest = max(len(group.named) for group in groups)
        needed = {_layer(site) for site in grid} - {0} if self.begins_anywhere else ()
        for rows in row_ranges(range(len(self.subject.inputs)), max(1, batch_size // largest)):
            with evaluating(self.access.module):
                output, streams = replay(self.access.module, *self.subject.rows(rows, self.weights), {}, keep=needed)
            yield None, 0, rows, output.unsqueeze(0)
            for group in groups:
                with evaluating(self.access.module):
                    output = self._pass(group, rows, streams)
                yield group.site, group.begin, rows, output

    def _groups(self, site: str, interventions: Sequence[Intervention], batch_size: int) -> Iterator[_Group]:
        needs_every_position = self._needs_every_position(site, interventions[0])
        most = min(_MOST, batch_size)
        for begin in range(0, len(interventions), most):
            group = interventions[begin : begin + most]
            named = {f"interventions.{begin + index}": each for index, each in enumerate(group)}
            borrow = borrower(self.subject, self.weights, named, batch_size)
            yield _Group(site, begin, named, borrow, needs_every_position)

    def _pass(self, group: _Group, rows: range, streams: Streams) -> Tensor:
        moment = Moment(self.member, self.subject.ensemble.size, rows, len(self.subject.inputs))
        borrowed = group.borrow(rows)
        inputs, positions = self.subject.rows(rows, self.weights)
        layer, narrow = _layer(group.site), not group.needs_every_position
        entering = (layer, streams[layer]) if layer in streams else None

        def run(index: Tensor) -> Tensor:
            def change(value: Tensor) -> Tensor:
                axes, named = self.access.axes(group.site, value), group.named.items()
                # `vmap` has no branches: apply every intervention to the one value of this site, and pick by index. The
                # computation before the site does not depend on the index, so it runs once
                changed = [intervene(each, value, axes, moment, borrowed.get(at), at) for at, each in named]
                return torch.stack(changed)[index.reshape(1)].squeeze(0)

            changes = {group.site: change}
            return replay(self.access.module, inputs, positions, changes, entering=entering, narrow=narrow)[0]

        outputs: Tensor = vmap(run)(torch.arange(len(group.named), device=inputs.device))
        return outputs

    def _needs_every_position(self, site: str, intervention: Intervention) -> bool:
        """Return whether the intervention needs positions that its site lacks if only scored positions are computed."""
        operand = intervention.operand
        named = {*intervention.where, *intervention.at, *(operand.axes if isinstance(operand, Operand) else ())}
        seen: list[dict[str, int]] = []

        def see(value: Tensor) -> Tensor:
            seen.append(dict(zip(self.access.axes(site, value), value.shape, strict=True)))
            return value

        inputs = fitting(self.subject.inputs[:1], self.weights)
        # see the site's axes with all positions and with one: an axis that shrinks is missing its other places
        for narrow in (False, True):
            first = torch.zeros(1, dtype=torch.int64, device=inputs.device)
            replay(self.access.module, inputs, first, {site: see}, narrow=narrow)
        if len(seen) != 2:
            raise SiteError(f"site {site!r} is visited {len(seen) / 2:g} times in one pass; it must be visited once")
        narrowed = {axis for axis, size in seen[0].items() if size != seen[1][axis]}
        return bool(narrowed) and (intervention.rule in BORROWING or bool(named & narrowed))


def _layer(site: str) -> int:
    """Return the block of a site; 0 for a site outside the blocks."""
    found = _BLOCK.match(site)
    return int(found[1]) if found else 0
