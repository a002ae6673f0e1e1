"""The passes of a look: every member under every candidate, a part of the batch at a time."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.look.access import OUTPUT, Access, evaluating
from anchorlab.lens.look.intervene import Moment, intervene
from anchorlab.lens.look.interventions import Intervention
from anchorlab.lens.look.record import Record
from anchorlab.lens.look.sources import Borrower, borrower, fitting, positions_of
from anchorlab.models.edits import AnyEdit, apply_edits
from anchorlab.models.model import gather_positions
from anchorlab.training.ensemble import Ensemble


@dataclass
class Branch:
    """One candidate: its weights, its interventions by name, and the names of all that changed a value."""

    ensemble: Ensemble
    interventions: Mapping[str, Intervention]
    changed: set[str] = field(default_factory=set)

    @property
    def sites(self) -> set[str]:
        """The sites of its interventions."""
        return {intervention.site for intervention in self.interventions.values()}

    def check_changed(self) -> None:
        """Raise `SiteError` for an intervention that changed nothing, unless `may_do_nothing` allows it."""
        for name, intervention in self.interventions.items():
            if name not in self.changed and not intervention.may_do_nothing:
                raise SiteError(f"{name} ({intervention.describe()}) changed nothing; set may_do_nothing to allow it")


def branches_of(
    ensemble: Ensemble,
    access: Access,
    interventions: Sequence[Intervention],
    edits: Sequence[AnyEdit],
    candidates: Mapping[str, Sequence[Intervention | AnyEdit]] | None,
) -> list[Branch]:
    """Return a branch for each candidate, or a single one for None."""
    if candidates is not None and not candidates:
        raise SpecError("candidates", "none is given", "name at least one, or leave candidates out")
    branches = []
    for name, changes in ({"": ()} if candidates is None else candidates).items():
        own_edits = [change for change in changes if not isinstance(change, Intervention)]
        all_edits = [*edits, *own_edits]
        edited = ensemble.with_weights(apply_edits(ensemble.weights, all_edits)) if all_edits else ensemble
        named = {f"interventions.{at}": each for at, each in enumerate(interventions)}
        named |= {f"candidates.{name}.{at}": each for at, each in enumerate(changes) if isinstance(each, Intervention)}
        for at, intervention in named.items():
            if access.resolve(intervention.site, f"{at}.site") != [intervention.site]:
                raise SiteError(f"{at}.site: {intervention.site!r} is a pattern; name one site for each intervention")
        branches.append(Branch(edited, named))
    return branches


@dataclass(frozen=True)
class Passes:
    """Everything that one look needs to run.

    Fields
        access: the module and its sites
        members: the number of members
        branches: the candidates, or one branch without them
        inputs: all sequences
        recorded: the sites to record; may include `"output"`
        positions: the positions at which to record the output, `[scored]` or `[batch scored]`; None: all
        asked: the positions to pass to the module; None: it computes its output at all positions
        patch_inputs: the sequences that the rule `patch` takes values from
        batch_size: the number of sequences that run at a time
    """

    access: Access
    members: int
    branches: Sequence[Branch]
    inputs: Tensor
    recorded: Collection[str]
    positions: Tensor | None
    asked: Tensor | None
    patch_inputs: Tensor | None
    batch_size: int

    def fill(self, arrays: "Arrays", rows: range, begin: int) -> None:
        """Run every member under every candidate on some rows, and copy the recorded values into the arrays.

        `begin` is the batch row of the arrays' first row.
        """
        place = range(rows.start - begin, rows.stop - begin)
        with evaluating(self.access.module):
            for member in range(self.members):
                for candidate, branch in enumerate(self.branches):
                    weights = branch.ensemble.member_weights(member)
                    borrowed = self._borrowers[member, candidate](rows)
                    visit = _Visit(self, rows, member, candidate, borrowed, arrays, place)
                    present = fitting(self.inputs[rows.start : rows.stop], weights)
                    output = self.access.run(weights, present, visit.targets, visit, positions_of(self.asked, rows))
                    visit.check_visited()
                    if OUTPUT in self.recorded:
                        names, value = self._output(output, rows)
                        arrays.put(OUTPUT, names, value, member, candidate, place)

    @cached_property
    def _borrowers(self) -> Mapping[tuple[int, int], Borrower]:
        found = {}
        for member in range(self.members):
            for candidate, branch in enumerate(self.branches):
                weights = branch.ensemble.member_weights(member)
                given = (self.access, weights, self.inputs, branch.interventions, self.patch_inputs, self.batch_size)
                found[member, candidate] = borrower(*given)
        return found

    def _output(self, output: Tensor, rows: range) -> tuple[tuple[str, ...], Tensor]:
        here = positions_of(self.positions, rows)
        if here is not None:
            if output.ndim < 3:
                problem = f"the model's output of shape {tuple(output.shape)} has no axis of positions"
                raise SpecError("positions", problem, "leave them out")
            output = output if self.asked is not None else gather_positions(output, here.to(output.device))
        place = "position" if here is None else "scored"
        other = tuple(f"axis_{index}" for index in range(1, output.ndim))
        return {2: ("batch", "output"), 3: ("batch", place, "output")}.get(output.ndim, ("batch", *other)), output


class _Visit:
    """The tap of one pass: applies the interventions and keeps the values to record."""

    def __init__(
        self,
        passes: Passes,
        rows: range,
        member: int,
        candidate: int,
        borrowed: Mapping[str, Tensor],
        arrays: "Arrays",
        place: range,
    ) -> None:
        self.access, self.recorded, self.branch = passes.access, passes.recorded, passes.branches[candidate]
        self.moment = Moment(member, passes.members, rows, len(passes.inputs))
        self.candidate, self.borrowed, self.arrays, self.place = candidate, borrowed, arrays, place
        self.targets = (set(passes.recorded) - {OUTPUT}) | self.branch.sites
        self.visited: set[str] = set()

    def __call__(self, site: str, value: Tensor) -> Tensor:
        if site in self.visited:
            raise SiteError(f"site {site!r} is visited twice in one pass, so that its name is ambiguous")
        self.visited.add(site)
        axes = self.access.axes(site, value)
        if axes[:1] == ("batch",) and len(value) != len(self.moment.rows):
            shape, batch = tuple(value.shape), len(self.moment.rows)
            raise SiteError(f"site {site!r} has shape {shape}, whose first axis is not the batch of {batch}")
        for name, intervention in self.branch.interventions.items():
            if intervention.site == site:
                before = value
                value = intervene(intervention, value, axes, self.moment, self.borrowed.get(name), name)
                if name not in self.branch.changed and not torch.equal(before, value):
                    self.branch.changed.add(name)
        if site in self.recorded:
            # Copied immediately, because the model may change the value in place later.
            self.arrays.put(site, axes, value.detach(), self.moment.member, self.candidate, self.place)
        return value

    def check_visited(self) -> None:
        for name, intervention in self.branch.interventions.items():
            if intervention.site not in self.visited:
                raise SiteError(f"{name} ({intervention.describe()}) never fired: the model does not visit this site")
        if missing := sorted(self.targets - self.visited):
            raise SiteError(f"site {missing[0]!r} was not visited by the model, so there is nothing to record")


class Arrays:
    """The arrays of a record, filled part by part."""

    def __init__(self, members: int, candidates: int | None, batch: int) -> None:
        self.members, self.candidates, self.batch = members, candidates, batch
        self.arrays: dict[str, Tensor] = {}
        self.axes: dict[str, tuple[str, ...]] = {}

    def put(self, site: str, axes: tuple[str, ...], value: Tensor, member: int, candidate: int, rows: range) -> None:
        """Copy a site's value for some rows to its place in the site's array."""
        batched = axes[:1] == ("batch",)
        if site not in self.arrays:
            size = (self.batch, *value.shape[1:]) if batched else value.shape
            self.arrays[site] = torch.empty(self.members, self.candidates or 1, *size, dtype=value.dtype)
            self.axes[site] = ("member", *(() if self.candidates is None else ("candidate",)), *axes)
        place = self.arrays[site][member, candidate]
        (place[rows.start : rows.stop] if batched else place).copy_(value)

    def record(self, inputs: Tensor, candidates: tuple[str, ...] | None) -> Record:
        """Return the record; the output, if recorded, is its last array."""
        single = candidates is None
        arrays = {site: value.squeeze(1) if single else value for site, value in self.arrays.items()}
        return Record(arrays, self.axes, inputs.cpu(), candidates)
