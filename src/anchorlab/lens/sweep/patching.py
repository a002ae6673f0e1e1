"""Activation patching: put values of one run into another, and see how much of the answer comes with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.look.interventions import Intervention
from anchorlab.lens.look.look import look
from anchorlab.lens.sweep.pairs import Into, Pairs, logit_difference, recovered_fraction
from anchorlab.lens.sweep.places import heat_map, place_columns
from anchorlab.lens.sweep.sweep import sweep
from anchorlab.progress import Counted
from anchorlab.shown import plotted

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure


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
        return recovered_fraction(self.difference, self.clean, self.corrupted)

    def map(self, member: int | None = None) -> Float[Tensor, "row place"]:
        """Return the recovered fraction as a heat map, of one member or the mean over all (`Sweep.map`).

        Errors: `SpecError` for a member that is not there, and for a mean over heads of several members.
        """
        return heat_map(self.recovered, self.over, member, "map(member=0)")

    def plot(self, member: int | None = None) -> "Figure":
        """Draw the recovered fraction as heat maps: layers down, places across, a map for each member or for one.

        Errors: as `map`; `SpecError` for more members than a figure has room for.
        """
        return plotted(self, member=member)

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
    into: Into = "corrupted",
    positions: AnyPositions | None = None,
    axes: Mapping[str, tuple[str, ...]] | None = None,
    batch_size: int | None = None,
    progress: Counted = None,
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
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into, axes)
    swept = sweep(
        model,
        pairs.base,
        pairs.answers,
        Intervention(site=site, rule="patch", where=dict(where or {}), at=dict(at or {})),
        over,
        positions=pairs.positions,
        metrics={"difference": logit_difference},
        patch_inputs=pairs.source,
        axes=axes,
        batch_size=batch_size,
        progress=progress,
    )
    record = look(model, pairs.source, positions=pairs.positions, axes=axes, batch_size=batch_size)
    ends = pairs.ends(swept.baseline[0], pairs.difference(record["output"]))
    return Patching(swept.sites, swept.over, *ends, swept.values[0])
