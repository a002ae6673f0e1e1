"""Activation patching: put values of one run into another, and see how much of the answer comes with them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look.access import Access
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions, as_ensemble, as_positions, as_sequences
from anchorlab.lens.look.interventions import Intervention
from anchorlab.lens.look.look import look
from anchorlab.lens.sweep.places import heat_map, place_columns
from anchorlab.lens.sweep.sweep import sweep
from anchorlab.tasks.batch import Batch

if TYPE_CHECKING:
    import polars

_ROUNDING = 1e-6
"""Two logit differences that are closer than this, relative to their size, do not tell clean from corrupted."""


@dataclass(frozen=True)
class Patching:
    """What each patch brings back: the logit difference, and its way from the corrupted to the clean run.

    The logit difference is the logit of the clean answer minus that of the corrupted one, averaged over all sequences
    and scored positions.

    Shapes
        clean, corrupted: `[member]`, the logit difference without a patch
        difference: `[member site ...]`, under each patch, with one further axis for each name in `over`
    """

    sites: tuple[str, ...]
    over: tuple[str, ...]
    clean: Float[Tensor, "member"]
    corrupted: Float[Tensor, "member"]
    difference: Float[Tensor, "member site *place"]

    @property
    def recovered(self) -> Float[Tensor, "member site *place"]:
        """(difference - corrupted) / (clean - corrupted): 1 as in the clean run, 0 as in the corrupted one.

        Below 0 and above 1 a patch leads beyond the two runs. NaN for a member that answers both alike.
        """
        shape = (-1, *(1,) * (self.difference.ndim - 1))
        whole = self.clean - self.corrupted
        alike = whole.abs() <= _ROUNDING * (self.clean.abs() + self.corrupted.abs())
        whole = torch.where(alike, torch.nan, whole)
        return (self.difference - self.corrupted.reshape(shape)) / whole.reshape(shape)

    def map(self, member: int | None = None) -> Float[Tensor, "row place"]:
        """Return the recovered fraction as a heat map, of one member or the mean over all (`Sweep.map`).

        Errors: `SpecError` for a member that is not there, and for a mean over heads of several members.
        """
        return heat_map(self.recovered, self.over, member, "map(member=0)")

    @property
    def table(self) -> "polars.DataFrame":
        """One row per member and patch: member, site, layer, places, difference, clean, corrupted, recovered."""
        import polars

        columns = place_columns(self.sites, self.over, self.difference.shape)
        each = self.difference[0].numel()
        columns["difference"] = self.difference.flatten().tolist()
        columns["clean"] = self.clean.repeat_interleave(each).tolist()
        columns["corrupted"] = self.corrupted.repeat_interleave(each).tolist()
        columns["recovered"] = self.recovered.flatten().tolist()
        return polars.DataFrame(columns)


def patch(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    site: str = "blocks.*.attn.hook_z",
    over: str | Sequence[str] = ("head", "position"),
    where: Mapping[str, Any] | None = None,
    at: Mapping[str, Any] | None = None,
    into: Literal["corrupted", "clean"] = "corrupted",
    positions: AnyPositions | None = None,
    axes: Mapping[str, tuple[str, ...]] | None = None,
    batch_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Patching:
    """Return how much of the answer comes back with the value of each place, one place at a time.

    Every corrupted sequence has a clean partner of the same length with another answer. The model reads the corrupted
    one, while the value at one place is that of the clean one:

        patch(ensemble, clean, corrupted).recovered  # [member site head position]
        patch(ensemble, clean, corrupted, site="blocks.*.hook_resid_pre", over="position")  # the stream

    A place that recovers 1 holds all that separates the two answers, as far as it matters later. `into="clean"` does
    the opposite: corrupted values go into the clean run, and what falls towards 0 is needed.

    Args:
        model: as in `look`.
        clean: as the inputs of `look`. A batch of a task brings its answers and scored positions with it.
        corrupted: likewise, one sequence for each clean one.
        answers: the right tokens of the clean sequences, one per scored position; None: those of the batch.
        corrupted_answers: the tokens to compare them with, such as the right ones of the corrupted sequences.
        site: a name or a pattern; the places are all sites that match, times the indices of the axes in `over`.
        over: a name or names of axes that every such site has; `()` patches a site as a whole.
        where: further indices, as in `Intervention`: `{"head": 1}`.
        at: places that differ between sequences, such as those of a role: `{"position": keys}`.
        into: the run that values are put into; they come from the other one.
        positions: the scored positions, `[scored]` or `[batch scored]`; None: those of the clean batch, else the last.
        axes: as in `look`.
        batch_size: as in `sweep`.
        progress: as in `sweep`.

    Errors: those of `sweep`; `SpecError` for sequences without partners, for answers that are missing, are no tokens
    or do not fit the positions, and for answers that are the same in both runs.
    Source: Meng et al., 2022, section 2 (causal tracing); Zhang & Nanda, 2024 (logit difference and its fraction).
    """
    runs = _Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, axes)
    if into not in ("corrupted", "clean"):
        raise SpecError("into", f"{into!r} is no run", "choose 'corrupted' or 'clean'")
    base, source = (runs.corrupted, runs.clean) if into == "corrupted" else (runs.clean, runs.corrupted)
    swept = sweep(
        model,
        base,
        runs.answers,
        Intervention(site=site, rule="patch", where=dict(where or {}), at=dict(at or {})),
        over,
        positions=runs.positions,
        metrics={"difference": logit_difference},
        patch_inputs=source,
        axes=axes,
        batch_size=batch_size,
        progress=progress,
    )
    output = look(model, source, positions=runs.positions, axes=axes, batch_size=batch_size)["output"]
    other = torch.stack([logit_difference(one, runs.answers).double().mean() for one in output])
    ends = (other, swept.baseline[0]) if into == "corrupted" else (swept.baseline[0], other)
    return Patching(swept.sites, swept.over, *ends, swept.values[0])


def logit_difference(
    output: Float[Tensor, "sequence scored output"], answers: Int[Tensor, "sequence scored 2"]
) -> Float[Tensor, "sequence scored"]:
    """Return the logit of the first answer minus that of the second."""
    right, wrong = output.gather(-1, answers).unbind(dim=-1)
    return right - wrong


@dataclass(frozen=True)
class _Pairs:
    """Clean and corrupted sequences, both answers `[batch scored 2]`, and the scored positions."""

    clean: Tensor
    corrupted: Tensor
    answers: Int[Tensor, "batch scored 2"]
    positions: Int[Tensor, "*batch scored"]

    @classmethod
    def of(
        cls,
        model: AnyModel,
        clean: AnyInputs,
        corrupted: AnyInputs,
        answers: Tensor | None,
        corrupted_answers: Tensor | None,
        positions: AnyPositions | None,
        axes: Mapping[str, tuple[str, ...]] | None,
    ) -> "_Pairs":
        access = Access(as_ensemble(model).template, axes or {})
        left, right = as_sequences(clean, access, "clean"), as_sequences(corrupted, access, "corrupted")
        if left.shape != right.shape:
            problem = f"have shape {tuple(right.shape)}, and the clean ones {tuple(left.shape)}"
            raise SpecError("corrupted", problem, "give one of the same length for each")
        if positions is None:
            positions = clean.positions if isinstance(clean, Batch) else left.shape[1] - 1
        places = as_positions(positions, left)
        shape = (len(left), places.shape[-1])
        both = [
            _tokens(given if given is not None else getattr(side, "answers", None), shape, field)
            for field, given, side in (
                ("answers", answers, clean),
                ("corrupted_answers", corrupted_answers, corrupted),
            )
        ]
        if torch.equal(*both):
            raise SpecError("corrupted_answers", "are those of the clean sequences", "corrupt what the answer rests on")
        return cls(left, right, torch.stack(both, dim=-1), places)


def _tokens(given: Any, shape: tuple[int, int], field: str) -> Int[Tensor, "batch scored"]:
    if given is None:
        raise SpecError(field, "are missing", "give tokens [batch scored], or a batch of a task")
    found = torch.as_tensor(given)
    if found.is_floating_point() or tuple(found.shape) != shape:
        problem = f"are {'no tokens' if found.is_floating_point() else 'tokens'} of shape {tuple(found.shape)}"
        raise SpecError(field, problem, f"give one token for each scored position, {list(shape)}")
    return found
