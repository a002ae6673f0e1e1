"""Activation patching: copy values from one run into another, and measure how much of the answer they carry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.drawable import plotted
from anchorlab.lens.effects.effects import effects
from anchorlab.lens.effects.pairs import Into, Pairs, logit_difference, recovered_fraction
from anchorlab.lens.grids import Tabled, grid_table, heat_map, place_axes
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.look.interventions import Intervention
from anchorlab.progress import Counted

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Patching(Tabled):
    """The effect of each patch: the logit difference, and how far it moves from the corrupted to the clean run.

    The logit difference is the clean answer's logit minus the corrupted answer's logit, averaged over all sequences and
    scored positions.

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
        """(difference - corrupted) / (clean - corrupted): 1 as in the clean run, 0 as in the corrupted run.

        Values below 0 or above 1 lie beyond the two runs. NaN for a member with the same logit difference in both runs.
        """
        return recovered_fraction(self.difference, self.clean, self.corrupted)

    def map(self, member: int | None = None) -> Float[Tensor, "row place"]:
        """Return the recovered fraction as a heat map, of one member or the mean over all (`Effects.map`)."""
        return heat_map(self.recovered, self.over, member, "map(member=0)")

    def plot(self, member: int | None = None) -> "Figure":
        """Draw the recovered fraction as heat maps: layers down, places across, a map for each member or for one."""
        return plotted(self, member=member)

    @property
    def table(self) -> "polars.DataFrame":
        """One row per member and patch: member, site, layer, places, difference, clean, corrupted, recovered."""
        values = {"difference": self.difference, "clean": self.clean, "corrupted": self.corrupted}
        axes = place_axes(self.sites, self.over, self.difference)
        return grid_table(axes, values | {"recovered": self.recovered}, layers=True)


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
    """Measure how much of the clean answer each place restores, one place at a time.

    Every corrupted sequence has a clean partner of the same length with another answer. The model reads the corrupted
    sequence, while the value at one place is replaced by its value in the clean run:

        patch(ensemble, clean, corrupted).recovered  # [member site head position]
        patch(ensemble, clean, corrupted, site="blocks.*.hook_resid_pre", over="position")  # the stream

    A place that recovers 1 holds all the information that separates the two answers, as far as later layers use it.
    `into="clean"` does the opposite: corrupted values go into the clean run, and a place that falls towards 0 is
    necessary.

    Args:
        clean: the clean sequences, as the inputs of `look`. A batch of a task includes its answers and scored
            positions.
        corrupted: the corrupted sequences, one for each clean sequence.
        answers: the right tokens of the clean sequences, one per scored position; None: the batch's answers.
        corrupted_answers: the tokens to compare with, such as the right tokens of the corrupted sequences; None: the
            batch's answers.
        site: a name or a pattern; the places are all sites that match, times the indices of the axes in `over`.
        over: a name or names of axes that every such site has; `()` patches a site as a whole.
        where: further indices, as in `Intervention`: `{"head": 1}`.
        at: places that differ between sequences, such as the positions of a role: `{"position": keys}`.
        into: the run that receives values; they come from the other run.
        positions: the scored positions, `[scored]` or `[batch scored]`; None: the clean batch's scored positions, else
            the last of each sequence.

    Other arguments: as in `look` and `effects`.
    Source: Meng et al., 2022, section 2 (causal tracing); Zhang & Nanda, 2024 (logit difference and its fraction).
    """
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into, axes)
    swept = effects(
        model,
        pairs.base,
        pairs.answers,
        Intervention(site=site, rule="patch", where=dict(where or {}), at=dict(at or {})),
        over,
        positions=pairs.base.positions,
        metrics={"difference": logit_difference},
        patch_inputs=pairs.source,
        axes=axes,
        batch_size=batch_size,
        progress=progress,
    )
    return Patching(swept.sites, swept.over, *pairs.ends(swept.baseline[0], batch_size), swept.values[0])
