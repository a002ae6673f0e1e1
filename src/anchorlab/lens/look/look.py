"""Run a model and record the values at named sites, under interventions and weight edits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.look.access import OUTPUT, Access, evaluating
from anchorlab.lens.look.intervene import Moment, intervene
from anchorlab.lens.look.interventions import Intervention
from anchorlab.lens.look.record import Record
from anchorlab.lens.look.sources import Borrowed, borrower, fitting, row_ranges
from anchorlab.models.edits import Remove, Truncate, apply_edits
from anchorlab.models.model import gather_positions
from anchorlab.training.ensemble import Ensemble


def look(
    model: Ensemble | nn.Module,
    inputs: Shaped[Tensor, "batch position *feature"],
    record: Sequence[str] = (),
    interventions: Sequence[Intervention] = (),
    *,
    edits: Sequence[Truncate | Remove] = (),
    candidates: Mapping[str, Sequence[Intervention | Truncate | Remove]] | None = None,
    patch_inputs: Tensor | None = None,
    positions: Int[Tensor, "*batch scored"] | None = None,
    axes: Mapping[str, tuple[str, ...]] | None = None,
    batch_size: int = 512,
) -> Record:
    """Run every member on `inputs` and return the values at the named sites.

        record = look(ensemble, inputs, ["blocks.*.attn.hook_pattern"])
        record["blocks.0.attn.hook_pattern"]  # [member batch head query key]

    A site is recorded after its interventions, so the record holds the value that the model went on with. `"output"`
    is always recorded: `[member batch position output]`, or `[member batch scored output]` with `positions`. If
    candidates are given, the axis `candidate` follows `member`.

    Members run one by one, in evaluation mode and without gradients. The record is kept in memory, and besides it the
    values of `batch_size` sequences at a time. The model is left unchanged.

    Args:
        model: an ensemble; a single module counts as one member.
        inputs: tokens or vectors.
        record: names of sites, or patterns such as `blocks.*.attn.hook_pattern`.
        interventions: changes of values, applied in the order given and before those of a candidate.
        edits: changes of weights, applied before those of a candidate.
        candidates: named lists of further interventions and edits, each run by itself; an empty list is the model with
            `interventions` and `edits` alone.
        patch_inputs: the sequences that the rule `patch` takes values from, in the shape of `inputs`.
        positions: the positions at which the output is recorded, `[scored]` or `[batch scored]`; None: all.
        axes: axis names by site pattern, for a module without `sites` of its own. Its sites are its submodules:
            `"encoder.0"` is the output of that submodule, `"attention[1]"` the second element of a tuple.
        batch_size: how many sequences run at a time.

    Errors: `SiteError` for a site that the model does not have (naming the nearest one), does not visit or visits
    twice, and for an intervention that changed nothing in any member; `SpecError` for a selection or an operand that
    does not fit its site.
    """
    if len(inputs) == 0:
        raise SpecError("inputs", "holds no sequence", "give at least one")
    if batch_size < 1:
        raise SpecError("batch_size", f"{batch_size} is not a number of sequences", "give at least 1")
    ensemble = as_ensemble(model)
    members = ensemble.size if ensemble.weights else 1
    access = Access(ensemble.template, axes or {})
    recorded = {site for at, name in enumerate(record) for site in access.resolve(name, f"record.{at}")} - {OUTPUT}
    branches = _branches(ensemble, access, interventions, edits, candidates)
    collected = _Arrays(members, None if candidates is None else len(branches), len(inputs))

    with evaluating(ensemble.template):
        for member in range(members):
            for place, branch in enumerate(branches):
                weights = branch.ensemble.member_weights(member)
                borrow = borrower(access, weights, inputs, branch.interventions, patch_inputs, batch_size)
                for rows in row_ranges(len(inputs), batch_size):
                    moment = Moment(member, members, rows, len(inputs))
                    visit = _Visit(access, moment, branch, recorded, borrow(rows))
                    present = fitting(inputs[rows.start : rows.stop], weights)
                    output = access.run(weights, present, visit.targets, visit)
                    visit.check_visited()
                    for site, (value, names) in visit.seen.items():
                        collected.put(site, names, value, member, place, rows)
                    collected.put(OUTPUT, *_output(output, positions, rows), member, place, rows)
    for branch in branches:
        branch.check_changed()
    return collected.record(inputs, None if candidates is None else tuple(candidates))


@dataclass
class _Branch:
    """One candidate: its weights, its interventions by name, and the names of those that changed a value."""

    ensemble: Ensemble
    interventions: Mapping[str, Intervention]
    changed: set[str] = field(default_factory=set)

    @property
    def sites(self) -> set[str]:
        return {intervention.site for intervention in self.interventions.values()}

    def check_changed(self) -> None:
        for name, intervention in self.interventions.items():
            if name not in self.changed and not intervention.may_do_nothing:
                raise SiteError(f"{name} ({intervention.describe()}) changed nothing; set may_do_nothing to allow it")


def _branches(
    ensemble: Ensemble,
    access: Access,
    interventions: Sequence[Intervention],
    edits: Sequence[Truncate | Remove],
    candidates: Mapping[str, Sequence[Intervention | Truncate | Remove]] | None,
) -> list[_Branch]:
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
        branches.append(_Branch(edited, named))
    return branches


class _Visit:
    """The tap of one pass: applies the interventions and keeps the values to record."""

    def __init__(self, access: Access, moment: Moment, branch: _Branch, recorded: set[str], borrowed: Borrowed) -> None:
        self.access, self.moment, self.branch, self.recorded, self.borrowed = access, moment, branch, recorded, borrowed
        self.targets = recorded | branch.sites
        self.visited: set[str] = set()
        self.seen: dict[str, tuple[Tensor, tuple[str, ...]]] = {}

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
            # Copied, as the model may change the value in place later.
            self.seen[site] = (value.detach().to("cpu", copy=True), axes)
        return value

    def check_visited(self) -> None:
        for name, intervention in self.branch.interventions.items():
            if intervention.site not in self.visited:
                raise SiteError(f"{name} ({intervention.describe()}) never fired: the model does not visit this site")
        if missing := sorted(self.recorded - self.visited):
            raise SiteError(f"site {missing[0]!r} was not visited by the model, so there is nothing to record")


class _Arrays:
    """The arrays of a record, filled some rows of the batch at a time."""

    def __init__(self, members: int, candidates: int | None, batch: int) -> None:
        self.members, self.candidates, self.batch = members, candidates, batch
        self.arrays: dict[str, Tensor] = {}
        self.axes: dict[str, tuple[str, ...]] = {}

    def put(self, site: str, axes: tuple[str, ...], value: Tensor, member: int, candidate: int, rows: range) -> None:
        batched = axes[:1] == ("batch",)
        if site not in self.arrays:
            size = (self.batch, *value.shape[1:]) if batched else value.shape
            self.arrays[site] = torch.empty(self.members, self.candidates or 1, *size, dtype=value.dtype)
            self.axes[site] = ("member", *(() if self.candidates is None else ("candidate",)), *axes)
        place = self.arrays[site][member, candidate]
        (place[rows.start : rows.stop] if batched else place).copy_(value)

    def record(self, inputs: Tensor, candidates: tuple[str, ...] | None) -> Record:
        single = candidates is None
        arrays = {site: value.squeeze(1) if single else value for site, value in self.arrays.items()}
        return Record(arrays, self.axes, inputs.cpu(), candidates)


def _output(output: Tensor, positions: Tensor | None, rows: range) -> tuple[tuple[str, ...], Tensor]:
    if positions is not None:
        if output.ndim < 3:
            problem = f"the model's output of shape {tuple(output.shape)} has no axis of positions"
            raise SpecError("positions", problem, "leave them out")
        here = positions if positions.ndim == 1 else positions[rows.start : rows.stop]
        # The model still computes every position, so that the sites of the last layer keep all their queries.
        output = gather_positions(output, here.to(output.device))
    place = "position" if positions is None else "scored"
    other = tuple(f"axis_{index}" for index in range(1, output.ndim))
    return {2: ("batch", "output"), 3: ("batch", place, "output")}.get(output.ndim, ("batch", *other)), output


def as_ensemble(model: Ensemble | nn.Module) -> Ensemble:
    """Return an ensemble as it is, and a module as an ensemble of one member."""
    if isinstance(model, Ensemble):
        return model
    named = [*model.named_parameters(), *model.named_buffers()]
    trainable = tuple(name for name, value in model.named_parameters() if value.requires_grad)
    return Ensemble(model, {name: value.detach().unsqueeze(0) for name, value in named}, trainable)
