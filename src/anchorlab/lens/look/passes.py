"""The passes of a look: every member under every candidate, a part of the batch at a time."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.look.access import OUTPUT, evaluating
from anchorlab.lens.look.inputs import Subject, fitting, positions_of, row_ranges
from anchorlab.lens.look.intervene import Moment, intervene
from anchorlab.lens.look.interventions import Intervention
from anchorlab.lens.look.padding import counted_from_own_ends
from anchorlab.lens.look.record import Record
from anchorlab.lens.look.sources import Borrowed, Borrower, borrower
from anchorlab.memory import memory
from anchorlab.models.edits import AnyEdit, apply_edits
from anchorlab.models.model import gather_positions
from anchorlab.training.ensemble import Ensemble

Put = Callable[[str, tuple[str, ...], Shaped[Tensor, "..."]], None]
"""Copies a value, by its site and axes, to its place in a record."""


@dataclass
class Branch:
    """One candidate: its weights, its interventions by name, and the names of those that changed a value."""

    ensemble: Ensemble
    interventions: Mapping[str, Intervention]
    changed: set[str] = field(default_factory=set)


def branches_of(
    subject: Subject,
    interventions: Sequence[Intervention],
    edits: Sequence[AnyEdit],
    candidates: Mapping[str, Sequence[Intervention | AnyEdit]] | None,
) -> list[Branch]:
    """Return a branch for each candidate, or a single branch if `candidates` is None."""
    if candidates is not None and not candidates:
        raise SpecError("candidates", "none is given", "name at least one, or leave candidates out")
    ensemble, branches = subject.ensemble, []
    for name, changes in ({"": ()} if candidates is None else candidates).items():
        all_edits = [*edits, *(change for change in changes if not isinstance(change, Intervention))]
        edited = ensemble.with_weights(apply_edits(ensemble.weights, all_edits)) if all_edits else ensemble
        named = {f"interventions.{at}": each for at, each in enumerate(interventions)}
        named |= {f"candidates.{name}.{at}": each for at, each in enumerate(changes) if isinstance(each, Intervention)}
        for at, intervention in named.items():
            if subject.access.resolve(intervention.site, f"{at}.site") != [intervention.site]:
                raise SiteError(f"{at}.site: {intervention.site!r} is a pattern; name one site for each intervention")
            named[at] = counted_from_own_ends(intervention, subject.lengths, at)
        branches.append(Branch(edited, named))
    return branches


@dataclass(frozen=True)
class Passes:
    """Everything that one look needs to run; without candidates there is one branch, and `candidates` is None.

    `recorded` may include `"output"`. `asked` are the positions to pass to the module; None: all.
    """

    subject: Subject
    branches: Sequence[Branch]
    candidates: tuple[str, ...] | None
    recorded: Collection[str]
    asked: Int[Tensor, "*batch scored"] | None
    batch_size: int

    def records(self, whole: bool) -> Iterator[Record]:
        """Yield one record of all sequences, or one for every `batch_size` sequences; then check the interventions."""
        inputs = self.subject.inputs
        everyone = range(len(inputs))
        for part in [everyone] if whole else row_ranges(everyone, self.batch_size):
            arrays = Arrays(self.subject.ensemble.size, self.candidates, part)
            for rows in row_ranges(part, self.batch_size):
                self._fill(arrays, rows)
            yield arrays.record(inputs[part.start : part.stop], self.subject.lengths)
        for branch in self.branches:
            for name, one in branch.interventions.items():
                if name not in branch.changed and not one.may_do_nothing:
                    raise SiteError(f"{name} ({one.describe()}) changed nothing; set may_do_nothing to allow it")

    def _fill(self, arrays: "Arrays", rows: range) -> None:
        subject = self.subject
        with evaluating(subject.access.module):
            for (member, candidate), borrow in self._borrowers.items():
                branch = self.branches[candidate]
                weights = branch.ensemble.member_weights(member)
                moment = Moment(member, subject.ensemble.size, rows, len(subject.inputs))
                put = partial(arrays.put, member=member, candidate=candidate, rows=rows)
                visit = _Visit(self, branch, moment, borrow(rows), put)
                present = fitting(subject.inputs[rows.start : rows.stop], weights)
                positions = positions_of(self.asked, rows)
                output = subject.access.run(weights, present, visit.targets, visit, positions)
                visit.check_visited()
                if OUTPUT in self.recorded:
                    put(OUTPUT, *self._output(output, rows))

    @cached_property
    def _borrowers(self) -> Mapping[tuple[int, int], Borrower]:
        """For each member and candidate, by index, the function that gives what the interventions borrow."""
        return {
            (member, candidate): borrower(
                self.subject, branch.ensemble.member_weights(member), branch.interventions, self.batch_size
            )
            for member in range(self.subject.ensemble.size)
            for candidate, branch in enumerate(self.branches)
        }

    def _output(self, output: Tensor, rows: range) -> tuple[tuple[str, ...], Shaped[Tensor, "row *axes"]]:
        """Return the axes of the output and its value at the scored positions."""
        here = positions_of(self.subject.positions, rows)
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

    def __init__(self, passes: Passes, branch: Branch, moment: Moment, borrowed: Borrowed, put: Put) -> None:
        self.access, self.recorded, self.branch = passes.subject.access, passes.recorded, branch
        self.moment, self.borrowed, self.put = moment, borrowed, put
        self.targets = (set(passes.recorded) - {OUTPUT}) | {one.site for one in branch.interventions.values()}
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
            self.put(site, axes, value.detach())  # copied immediately: the model may change the value in place later
        return value

    def check_visited(self) -> None:
        for name, intervention in self.branch.interventions.items():
            if intervention.site not in self.visited:
                raise SiteError(f"{name} ({intervention.describe()}) never fired: the model does not visit this site")
        if missing := sorted(self.targets - self.visited):
            raise SiteError(f"site {missing[0]!r} was not visited by the model, so there is nothing to record")


class Arrays:
    """The arrays of a record of some rows of the batch, filled part by part."""

    def __init__(self, members: int, candidates: tuple[str, ...] | None, rows: range) -> None:
        self.members, self.candidates, self.rows = members, candidates, rows
        self.arrays: dict[str, Tensor] = {}
        self.axes: dict[str, tuple[str, ...]] = {}

    def put(
        self, site: str, axes: tuple[str, ...], value: Shaped[Tensor, "..."], member: int, candidate: int, rows: range
    ) -> None:
        """Copy a site's value for some rows of the batch to its place in the site's array."""
        batched = axes[:1] == ("batch",)
        if site not in self.arrays:
            size = (len(self.rows), *value.shape[1:]) if batched else value.shape
            variants = 1 if self.candidates is None else len(self.candidates)
            shape = (self.members, variants, *size)
            held = sum(array.nbytes for array in self.arrays.values())
            if held + prod(shape) * value.element_size() > memory():  # the system would grant it, and kill us later
                remedy = "name fewer sites, give fewer inputs, or use look_by_parts"
                raise SpecError("record", f"{site} does not fit into the memory", remedy)
            self.arrays[site] = torch.empty(shape, dtype=value.dtype)
            self.axes[site] = ("member", *(() if self.candidates is None else ("candidate",)), *axes)
        place, begin = self.arrays[site][member, candidate], self.rows.start
        (place[rows.start - begin : rows.stop - begin] if batched else place).copy_(value)

    def record(self, inputs: Shaped[Tensor, "batch ..."], lengths: Int[Tensor, "all_batch"] | None) -> Record:
        """Return the record of these inputs; the output, if recorded, is its last array."""
        lengths = None if lengths is None else lengths[self.rows.start : self.rows.stop]
        arrays = {site: value.squeeze(1) if self.candidates is None else value for site, value in self.arrays.items()}
        return Record(arrays, self.axes, inputs.cpu(), self.candidates, lengths)
