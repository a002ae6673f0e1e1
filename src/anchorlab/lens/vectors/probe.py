"""Linear probes: test whether a label can be read from the values at a site, on held-out sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from anchorlab.errors import SpecError
from anchorlab.lens.grids import Tabled, grid_table, place_axes
from anchorlab.lens.look import PLACES, AnyInputs, AnyModel, AnyPositions, Record, as_positions, look, own_places
from anchorlab.models.model import gather_positions
from anchorlab.rng import torch_generator
from anchorlab.training.trained_run import TrainedRun

if TYPE_CHECKING:
    import polars

HeldOut = Literal["sequences", "positions"]

_REMEDY = "give positions, such as the last tokens: (texts.lengths - 1).unsqueeze(1)"


@dataclass(frozen=True, repr=False)
class Probe(Tabled):
    """The accuracy of linear probes on held-out values, and their controls.

    The axis `position` exists only if each position has its own probe; it counts the positions that were read.

    Shapes
        accuracy: `[member site (position)]`
        shuffled: `[shuffle member site (position)]`, the accuracy with labels shuffled among the values
        untrained: `[member site (position)]`, the accuracy on members that were never trained; None if there are none
        majority: the share of the most frequent label
    """

    sites: tuple[str, ...]
    accuracy: Float[Tensor, "member site *position"]
    shuffled: Float[Tensor, "shuffle member site *position"]
    untrained: Float[Tensor, "member site *position"] | None
    majority: float

    @property
    def table(self) -> "polars.DataFrame":
        """One row per member, site and position: member, site, layer, position, accuracy and its controls.

        `shuffled` is the mean over the shuffles and `shuffled_most` the maximum; `untrained` is null without untrained
        members.
        """
        import polars

        over = ("position",) if self.accuracy.ndim == 3 else ()
        shuffled, untrained = self.shuffled.mean(dim=0), self.accuracy if self.untrained is None else self.untrained
        values = {"accuracy": self.accuracy, "shuffled": shuffled, "shuffled_most": self.shuffled.amax(dim=0)}
        values |= {"untrained": untrained, "majority": torch.tensor(self.majority, dtype=torch.float64)}
        table = grid_table(place_axes(self.sites, over, self.accuracy), values, layers=True)
        none = polars.lit(None, dtype=polars.Float64)
        return table.with_columns(untrained=none) if self.untrained is None else table


def probe(
    model: AnyModel,
    inputs: AnyInputs,
    labels: Int[Tensor, "batch *position"],
    site: str | Sequence[str] = "blocks.*.hook_resid_post",
    *,
    where: Mapping[str, int] | None = None,
    positions: AnyPositions | None = None,
    folds: int = 5,
    held_out: HeldOut = "sequences",
    shuffles: int = 10,
    untrained: AnyModel | None = None,
    shrinkage: float = 0.01,
    seed: int = 0,
    axes: Mapping[str, tuple[str, ...]] | None = None,
) -> Probe:
    """Return how well labels can be read linearly from the values at each matching site, by cross-validation.

    Labels `[batch]` describe whole sequences; each position then has its own probe. Labels `[batch position]` describe
    positions; one probe then reads all positions:

        probe(run, batch.inputs, keys).accuracy  # [member site position]: where is the key known?
        probe(run, batch.inputs, batch.inputs).accuracy  # [member site]: is the token here still known?

    The probe is linear discriminant analysis: the score of a label is linear in the value. It is optimal if the values
    of every label are normally distributed with the same covariance. It has a closed form: each member, fold and
    shuffle takes one solve. Values are scaled to unit variance first.

    Two controls show what an accuracy means. With shuffled labels there is nothing to read: apart from luck, the
    accuracy is at most the share of the most frequent label. Members that were never trained show how much the inputs
    alone reveal, since even a random embedding distinguishes tokens.

    Args:
        model: as in `look`. A run supplies its own untrained members.
        labels: integers, `[batch]`, or `[batch position]` (`[batch scored]` with `positions`); labels below 0
            and labels of padding are left out.
        site: one or several names or patterns, of sites with equally many positions. All axes except `batch` and
            `position` count as the width of the value.
        where: an index for each of some further axes: `{"head": 1}` reads one head.
        positions: the positions to read, `[scored]` or `[batch scored]`, such as the positions of a role; None: all.
        folds: the number of parts into which the sequences are divided; each part is predicted by a probe fitted on the
            others.
        held_out: `positions` divides the positions instead, so that a probe must read positions that it has never seen.
        shuffles: the number of times the labels are shuffled.
        untrained: untrained members to compare with, for a model that is not a run.
        shrinkage: the weight of the identity matrix against the estimated covariance, above 0 and at most 1.
        seed: the seed of the folds and the shuffles.

    The accuracy of a member is NaN if any of its values are not finite, as after divergence.

    Other arguments: as in `look`.
    Source: Alain & Bengio, 2017 (probes); Hewitt & Liang, 2019 (controls); Fisher, 1936 (the discriminant).
    """
    if untrained is None and isinstance(model, TrainedRun):
        untrained = model.experiment.untrained().initial_ensemble()
    if not 0 < shrinkage <= 1:
        raise SpecError("shrinkage", f"{shrinkage:g} is out of range", "give one above 0 and at most 1")
    if shuffles < 1:
        raise SpecError("shuffles", f"{shuffles} leave no control", "give at least 1")
    record = look(model, inputs, site, output=False, axes=axes)
    if positions is not None:
        positions = as_positions(positions, record.inputs, record.lengths)
    for axis in {*(where or {})}.intersection(PLACES) if record.lengths is not None else ():
        raise SpecError(f"where.{axis}", "is not the same place in sequences of different lengths", _REMEDY)
    first = _values(record, next(iter(record)), where, positions)
    checked = _checked_labels(labels, first.shape[1:3])
    if record.lengths is not None and positions is None:
        if checked.ndim == 1 and first.shape[2] > 1:
            raise SpecError("positions", "are missing, and the sequences have different lengths", _REMEDY)
        if checked.ndim == 2:
            checked = checked.masked_fill(~own_places(record.lengths, first.shape[2]), -1)
    for name in record:
        if (count := _values(record, name, where, positions).shape[2]) != first.shape[2]:
            problem = f"{next(iter(record))} has {first.shape[2]} positions, and {name} has {count}"
            raise SpecError("site", problem, "name sites of one kind, such as blocks.*.hook_resid_post")
    reading = _Reading(checked, _folds(checked, folds, held_out, seed), folds, shuffles, shrinkage, seed)
    found = reading.of(record, where, positions)
    control = None
    if untrained is not None:
        before = look(untrained, inputs, site, output=False, axes=axes)
        control = reading.of(before, where, positions, shuffled=False)[0]
    counted = checked[checked >= 0].bincount()
    return Probe(tuple(record), found[0], found[1:], control, float(counted.max() / counted.sum()))


@dataclass(frozen=True)
class _Reading:
    """Labels `[batch (position)]`, the fold of each label in the same shape, the number of folds, and the settings."""

    labels: Tensor
    folds: Tensor
    count: int
    shuffles: int
    shrinkage: float
    seed: int

    def of(
        self,
        record: Record,
        where: Mapping[str, int] | None,
        positions: Tensor | None,
        shuffled: bool = True,
    ) -> Float[Tensor, "labelling member site *position"]:
        """Return the accuracy with the true labels, then with each shuffle of them."""
        whole, known = self.labels.ndim == 1, self.labels >= 0
        labels, folds = self.labels[known], self.folds[known]
        draw = torch_generator(self.seed, "probe", "shuffles")
        orders = [torch.randperm(len(labels), generator=draw) for _ in range(self.shuffles if shuffled else 0)]
        labellings = torch.stack([labels, *(labels[order] for order in orders)])
        accuracies = []
        for site in record:
            values = _values(record, site, where, positions)
            each = values.unbind(dim=2) if whole else [values]
            scores = [self._accuracy(value[:, known], labellings, folds) for value in each]
            accuracies.append(torch.stack(scores, dim=-1) if whole else scores[0])
        return torch.stack(accuracies, dim=2)

    def _accuracy(
        self, rows: Float[Tensor, "member row width"], labellings: Int[Tensor, "labelling row"], folds: Tensor
    ) -> Float[Tensor, "labelling member"]:
        """Return the share of rows whose label is predicted correctly by the probe fitted on the other folds."""
        sound = rows.isfinite().all(dim=-1).all(dim=-1)  # a diverged member must not affect the others
        rows = torch.where(sound[:, None, None], rows, 0).double()
        rows = rows - rows.mean(dim=1, keepdim=True)
        spread = rows.square().mean(dim=1, keepdim=True).sqrt()
        rows = rows / torch.where(spread > 0, spread, 1)
        parts = [folds == fold for fold in range(self.count)]
        # the scatter of all other folds is the total minus the fold's own, so each row is multiplied only once
        scatters = torch.stack([rows[:, part].mT @ rows[:, part] for part in parts], dim=1)
        others = scatters.sum(dim=1, keepdim=True) - scatters  # of all rows outside the fold
        accuracies = []
        for labels in labellings:
            classes = one_hot(labels).double()
            counts = torch.stack([classes[~part].sum(dim=0) for part in parts])
            sums = torch.stack([classes[~part].mT @ rows[:, ~part] for part in parts], dim=1)
            means = sums / counts.clamp(min=1).unsqueeze(-1)  # of each class outside each fold
            # scatter within classes = scatter about 0 minus scatter of the class means, then shrunk to the identity
            between = means.mT @ (counts.unsqueeze(-1) * means)
            within = (others - between) / counts.sum(dim=-1).reshape(-1, 1, 1)
            identity = torch.eye(rows.shape[-1], dtype=rows.dtype, device=rows.device)
            covariance = (1 - self.shrinkage) * within + self.shrinkage * identity
            directions = torch.cholesky_solve(means.mT, self._factor(covariance))
            shares = counts / counts.sum(dim=-1, keepdim=True)  # 0 for a class that is in the fold alone
            # Fisher's discriminant: the score of a class is x·Σ⁻¹μ - μ·Σ⁻¹μ / 2 + log of its share
            offsets = shares.log() - (means.mT * directions).sum(dim=-2) / 2
            right = torch.zeros(len(rows), dtype=torch.float64)
            for fold, part in enumerate(parts):
                scores = rows[:, part] @ directions[:, fold] + offsets[:, fold].unsqueeze(1)
                right += (scores.argmax(dim=-1) == labels[part]).sum(dim=1)
            accuracies.append(torch.where(sound.cpu(), right / len(labels), torch.nan))
        return torch.stack(accuracies)

    def _factor(self, covariance: Float[Tensor, "*lead width width"]) -> Float[Tensor, "*lead width width"]:
        """Return the Cholesky factor, because `torch.linalg.solve` uses LU, which fails once torch's threads change."""
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if bool(failed.any()):
            problem = f"{self.shrinkage:g} leaves a covariance that rounding makes singular"
            raise SpecError("shrinkage", problem, "give a larger one, such as 0.01")
        return factor


def _values(
    record: Record, site: str, where: Mapping[str, int] | None, positions: Tensor | None
) -> Float[Tensor, "member batch position width"]:
    """Return a site's values; a site without positions counts as one position."""
    value = record.at(site, **(where or {}))
    names = [name for name in record.axes(site) if name not in (where or {})]
    if names[:2] != ["member", "batch"]:
        raise SpecError("site", f"{site} has no batch axis", "name a site with a value for each sequence")
    if "position" not in names:
        if positions is not None:
            raise SpecError("positions", f"{site} has the axes {', '.join(names)}", "leave them out")
        if record.lengths is not None and (places := [name for name in names if name in PLACES]):
            problem = f"{site} has the axes {', '.join(places)}, and the sequences have different lengths"
            raise SpecError("site", problem, "read sequences of one length, or a site with positions")
        return value.flatten(2).unsqueeze(2)
    value = value.movedim(names.index("position"), 2)
    value = value.unsqueeze(-1) if value.ndim == 3 else value.flatten(3)
    return value if positions is None else torch.stack([gather_positions(one, positions) for one in value])


def _checked_labels(labels: Tensor, shape: Sequence[int]) -> Int[Tensor, "batch *position"]:
    try:
        labels = torch.as_tensor(labels)
    except (TypeError, ValueError):
        raise SpecError("labels", "are no integers", f"number them, [{shape[0]}] or {list(shape)}") from None
    if labels.is_floating_point() or tuple(labels.shape) not in ((shape[0],), tuple(shape)):
        problem = f"are {'numbers' if labels.is_floating_point() else 'labels'} of shape {tuple(labels.shape)}"
        raise SpecError("labels", problem, f"give integers, [{shape[0]}] or {list(shape)}")
    known = torch.tensor(sorted(set(labels[labels >= 0].tolist())), dtype=labels.dtype)
    if len(known) < 2:
        raise SpecError("labels", "are all the same", "give at least two different ones")
    return torch.where(labels < 0, -1, torch.searchsorted(known, labels.clamp(min=0)))


def _folds(labels: Tensor, folds: int, held_out: HeldOut, seed: int) -> Int[Tensor, "batch *position"]:
    """Return the fold of each label: whole sequences, or positions, in folds whose sizes differ by at most one."""
    if held_out not in ("sequences", "positions"):
        raise SpecError("held_out", f"{held_out!r} cannot be held out", "choose 'sequences' or 'positions'")
    if held_out == "positions" and labels.ndim == 1:
        raise SpecError("held_out", "labels of whole sequences have a probe for each position", "hold out sequences")
    dim = 0 if held_out == "sequences" else 1
    present = (labels >= 0).reshape(len(labels), -1).any(dim=1 - dim)
    count = int(present.sum())
    if not 2 <= folds <= count:
        raise SpecError("folds", f"{folds} do not divide {count} {held_out}", f"give one of 2..{count}")
    found = torch.zeros(len(present), dtype=torch.int64)
    order = torch.randperm(count, generator=torch_generator(seed, "probe", "folds"))
    found[present] = order % folds
    return found if labels.ndim == 1 else found.unsqueeze(1 - dim).expand_as(labels)
