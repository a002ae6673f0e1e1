"""Many interventions at one site in one pass, which begins at the site's block and is mapped over them by `vmap`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import vmap

from anchorlab.errors import SiteError
from anchorlab.lens.look.access import Access, evaluating
from anchorlab.lens.look.intervene import Moment, intervene
from anchorlab.lens.look.interventions import BORROWING, Intervention, Operand
from anchorlab.lens.look.sources import Borrowed, borrower, fitting, row_ranges
from anchorlab.models.model import accepts, gather_positions
from anchorlab.models.sites import Tap
from anchorlab.models.transformer import Transformer
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.member import member_module

_MOST = 64  # interventions per pass
_BLOCK = re.compile(r"blocks\.(\d+)\.")


@dataclass(frozen=True)
class _Group:
    """The interventions of one pass: all at one site, the first of them being number `begin` of the site."""

    site: str
    begin: int
    named: Mapping[str, Intervention]
    borrow: Callable[[range], Borrowed]
    needs_every_position: bool


class MappedPasses:
    """The outputs of one member without intervention and under each of many interventions.

    A pass through a transformer begins at the block of its site, with the stream of the model without interventions.
    The index of the intervention enters at the site: `vmap` computes what comes before once, and what comes after for
    all interventions together. The last layer is computed at the scored positions only, unless an intervention there
    concerns other positions.

    Each instance has its own copy of the module, so several threads can work at once.

    Args:
        ensemble: the members.
        member: the member to run.
        inputs: all sequences, `[batch position]` or `[batch position feature]`.
        positions: the scored positions, `[scored]` or `[batch scored]`.
        patch_inputs: the sequences that the rule `patch` takes values from, in the shape of `inputs`.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        member: int,
        inputs: Tensor,
        positions: Tensor,
        patch_inputs: Tensor | None,
    ) -> None:
        self.weights, self.member, self.members = ensemble.member_weights(member), member, ensemble.size
        self.inputs, self.positions, self.patch_inputs = inputs, positions, patch_inputs
        self.access = Access(member_module(ensemble, member))
        self.rest = member_module(ensemble, member)
        self.blocks = list(self.rest.blocks) if isinstance(self.rest, Transformer) else []

    def __call__(
        self, grid: Mapping[str, Sequence[Intervention]], batch_size: int
    ) -> Iterator[tuple[str | None, int, range, Tensor]]:
        """Yield site, number of the first intervention, rows of the batch, and outputs `[place row scored output]`.

        Each `place` is one intervention at the site. The site is None for outputs without intervention. At most
        `batch_size` sequences times interventions are in memory at a time.
        """
        with evaluating(self.access.module):
            groups = [group for site, changes in grid.items() for group in self._groups(site, changes, batch_size)]
        largest = max(len(group.named) for group in groups)
        for rows in row_ranges(len(self.inputs), max(1, batch_size // largest)):
            with evaluating(self.access.module), evaluating(self.rest):
                output, streams = self._untouched(rows)
            yield None, 0, rows, output.unsqueeze(0)
            for group in groups:
                with evaluating(self.access.module), evaluating(self.rest):
                    output = self._pass(group, rows, streams)
                yield group.site, group.begin, rows, output

    def _groups(self, site: str, interventions: Sequence[Intervention], batch_size: int) -> Iterator[_Group]:
        needs_every_position = self._needs_every_position(site, interventions[0])
        for begin in range(0, len(interventions), _MOST):
            group = interventions[begin : begin + _MOST]
            named = {f"interventions.{begin + index}": each for index, each in enumerate(group)}
            borrow = borrower(self.access, self.weights, self.inputs, named, self.patch_inputs, batch_size)
            yield _Group(site, begin, named, borrow, needs_every_position)

    def _untouched(
        self, rows: range
    ) -> tuple[Float[Tensor, "row scored output"], dict[int, Float[Tensor, "row position width"]]]:
        """The outputs without interventions, and the stream before each block but the first."""
        streams: dict[int, Tensor] = {}

        def tap(name: str, value: Tensor) -> Tensor:
            if self.blocks and name.endswith(".hook_resid_pre"):
                streams[_layer(name)] = value
            return value

        inputs, positions = self._present(rows)
        return _run(self.access.module, inputs, positions, tap), streams

    def _pass(self, group: _Group, rows: range, streams: Mapping[int, Tensor]) -> Tensor:
        moment = Moment(self.member, self.members, rows, len(self.inputs))
        borrowed = group.borrow(rows)
        inputs, positions = self._present(rows)
        layer = _layer(group.site) if self.blocks else 0
        if self.blocks:
            self.rest.blocks = nn.ModuleList(self.blocks[layer:])

        def run(index: Tensor) -> Tensor:
            def tap(name: str, value: Tensor) -> Tensor:
                if layer and name == "hook_embed":
                    return streams[layer]
                if layer and name == "hook_pos_embed":
                    return torch.zeros_like(value)
                if name != group.site:
                    return value
                axes = self.access.axes(name, value)
                named = group.named.items()
                changed = [intervene(each, value, axes, moment, borrowed.get(at), at) for at, each in named]
                return torch.stack(changed)[index.reshape(1)].squeeze(0)

            if not group.needs_every_position:
                return _run(self.rest, inputs, positions, tap)
            return gather_positions(_run(self.rest, inputs, None, tap), positions)

        outputs: Tensor = vmap(run)(torch.arange(len(group.named), device=inputs.device))
        return outputs

    def _present(self, rows: range) -> tuple[Tensor, Tensor]:
        here = slice(rows.start, rows.stop)
        inputs = fitting(self.inputs[here], self.weights)
        return inputs, (self.positions if self.positions.ndim == 1 else self.positions[here]).to(inputs.device)

    def _needs_every_position(self, site: str, intervention: Intervention) -> bool:
        """Whether the intervention needs positions that the site lacks when only scored positions are computed."""
        operand = intervention.operand
        named = {*intervention.where, *intervention.at, *(operand.axes if isinstance(operand, Operand) else ())}
        seen: list[dict[str, int]] = []

        def tap(name: str, value: Tensor) -> Tensor:
            if name == site:
                seen.append(dict(zip(self.access.axes(name, value), value.shape, strict=True)))
            return value

        inputs = fitting(self.inputs[:1], self.weights)
        for positions in (None, torch.zeros(1, dtype=torch.int64, device=inputs.device)):
            _run(self.access.module, inputs, positions, tap)
        if len(seen) != 2:
            raise SiteError(f"site {site!r} is visited {len(seen) / 2:g} times in one pass; it must be visited once")
        narrowed = {axis for axis, size in seen[0].items() if size != seen[1][axis]}
        return bool(narrowed) and (intervention.rule in BORROWING or bool(named & narrowed))


def _run(module: nn.Module, inputs: Tensor, positions: Tensor | None, tap: Tap) -> Tensor:
    """The outputs at the positions, or at all positions for None."""
    output: Tensor
    if positions is not None and accepts(module, "positions"):
        output = module(inputs, positions=positions, tap=tap)
        return output
    output = module(inputs, tap=tap)
    return gather_positions(output, positions)


def _layer(site: str) -> int:
    """The block of a site; 0 for a site outside the blocks."""
    found = _BLOCK.match(site)
    return int(found[1]) if found else 0
