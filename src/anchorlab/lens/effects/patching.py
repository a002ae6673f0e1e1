"""Activation and path patching: copy values between two runs, and measure how much of the answer they carry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.drawable import plotted
from anchorlab.errors import SpecError
from anchorlab.lens.effects.effects import effects
from anchorlab.lens.effects.pairs import Into, Pairs, logit_difference, recovered_fraction
from anchorlab.lens.grids import Tabled, grid_table, heat_map, place_axes
from anchorlab.lens.look import AnyInputs, AnyModel, AnyPositions, Intervention, Operand, Record, look_at
from anchorlab.progress import Counted

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

Head = tuple[int, int]
"""Layer and head, from 0."""

HeadInput = Literal["q", "k", "v"]


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


@dataclass(frozen=True, repr=False)
class PathPatching(Tabled):
    """The effect of patching each path from a sender to an input of a receiver, as in `Patching`.

    Shapes
        clean, corrupted: `[member]`, the logit difference without a patch
        difference: `[member sender receiver input]`, with one path patched; NaN if there is no path because the sender
            is not in an earlier layer
    """

    senders: tuple[Head, ...]
    receivers: tuple[Head, ...]
    inputs: tuple[HeadInput, ...]
    clean: Float[Tensor, "member"]
    corrupted: Float[Tensor, "member"]
    difference: Float[Tensor, "member sender receiver input"]

    @property
    def recovered(self) -> Float[Tensor, "member sender receiver input"]:
        """(difference - corrupted) / (clean - corrupted), as in `Patching`."""
        return recovered_fraction(self.difference, self.clean, self.corrupted)

    def plot(self) -> "Figure":
        """Draw the recovered fraction as heat maps: senders down, receivers across, a map for each member and input."""
        return plotted(self)

    @property
    def table(self) -> "polars.DataFrame":
        """One row per member and path: member, sender, receiver, input, difference, clean, corrupted, recovered.

        Heads are written as `layer.head`.
        """
        import polars

        heads = [[f"{layer}.{head}" for layer, head in each] for each in (self.senders, self.receivers)]
        axes = {"member": range(len(self.clean)), "sender": heads[0], "receiver": heads[1], "input": self.inputs}
        values = {"difference": self.difference, "clean": self.clean, "corrupted": self.corrupted}
        table = grid_table(axes, values | {"recovered": self.recovered})
        return table.filter(polars.col("difference").is_not_nan())


def patch_paths(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    senders: Sequence[Head],
    receivers: Sequence[Head],
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    inputs: Sequence[HeadInput] = ("q", "k", "v"),
    through_feed_forward: bool = True,
    into: Into = "corrupted",
    positions: AnyPositions | None = None,
    batch_size: int | None = None,
) -> PathPatching:
    """Measure how much of the answer the path from each sender to each input of each receiver restores.

    Patching a head affects everything after it. Patching a path affects only one input of the receiver:

    1. The model reads the corrupted sequences. The sender gets its clean values, and all other heads keep their
       corrupted values. So a change that reaches the receiver comes from the sender and passed through no other head.
    2. The model reads the corrupted sequences again. Only the receiver's queries, keys or values are taken from step 1.

        patch_paths(ensemble, clean, corrupted, senders=[(0, 0), (0, 1)], receivers=[(1, 0)]).recovered

    Args:
        model: as in `look`, with attention of heads: sites `blocks.0.attn.hook_z`, `hook_q`, `hook_k` and `hook_v`.
        senders: heads as (layer, head), all positions together.
        receivers: heads as (layer, head).
        inputs: the inputs of the receivers. If query heads share keys and values, a patch of these affects the whole
            group.
        through_feed_forward: whether feed-forward layers between sender and receiver react to the change, as in the
            source; False: they keep their corrupted outputs, like the heads.

    Other arguments: as in `patch`.
    Source: Wang et al., 2023, section 3.1 and appendix B (the indirect object task); Goldowsky-Dill et al., 2023.
    """
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into)
    for place, name in enumerate(inputs):
        if name not in ("q", "k", "v"):
            raise SpecError(f"inputs.{place}", f"{name!r} is no input of a head", "choose among 'q', 'k' and 'v'")
    kept = ["blocks.*.attn.hook_z", *([] if through_feed_forward else ["blocks.*.hook_mlp_out"])]
    plain = look_at(pairs.base, kept, batch_size=batch_size)
    _check_heads(plain, senders, receivers)

    frozen = [_replace(site, plain[site], plain.axes(site)) for site in plain if site != "output"]
    changed = look_at(
        replace(pairs.base, positions=None, patch_inputs=pairs.source.inputs),
        [f"blocks.{layer}.attn.hook_{name}" for layer in sorted({layer for layer, _ in receivers}) for name in inputs],
        frozen,
        candidates={f"{layer}.{head}": _sent(layer, head) for layer, head in senders},
        output=False,
        batch_size=batch_size,
    )
    members = pairs.base.ensemble.size
    difference = torch.full((members, len(senders), len(receivers), len(inputs)), torch.nan, dtype=torch.float64)
    for place, (layer, head) in enumerate(receivers):
        before = [number for number, (sender, _) in enumerate(senders) if sender < layer]
        heads = plain[f"blocks.{layer}.attn.hook_z"].shape[3]
        for number, name in enumerate(inputs if before else ()):
            site = f"blocks.{layer}.attn.hook_{name}"
            axes = tuple(axis for axis in changed.axes(site) if axis != "candidate")
            own = head * changed[site].shape[-2] // heads  # the index of the group, if heads share keys and values
            received = {
                str(sender): _replace(site, changed[site][:, sender, :, :, [own]], axes, own) for sender in before
            }
            output = look_at(pairs.base, candidates=received, batch_size=batch_size)["output"]
            difference[:, before, place, number] = pairs.difference(output)
    ends = pairs.ends(pairs.difference(plain["output"]), batch_size)
    return PathPatching(tuple(senders), tuple(receivers), tuple(inputs), *ends, difference)


def _sent(layer: int, head: int) -> Intervention:
    return Intervention(site=f"blocks.{layer}.attn.hook_z", where={"head": head}, rule="patch", may_do_nothing=True)


def _replace(site: str, values: Tensor, axes: tuple[str, ...], head: int | None = None) -> Intervention:
    """Return an intervention that replaces a site, or one head of it, by a run's values; axes begin with `member`."""
    where = {} if head is None else {axes[-2]: head}
    operand = Operand(values=values, axes=axes)
    return Intervention(site=site, where=where, rule="replace", operand=operand, may_do_nothing=True)


def _check_heads(plain: Record, senders: Sequence[Head], receivers: Sequence[Head]) -> None:
    layers = sum(site.endswith(".attn.hook_z") for site in plain)
    for field, heads in (("senders", senders), ("receivers", receivers)):
        if not heads:
            raise SpecError(field, "are none", "give heads as (layer, head)")
        for place, (layer, head) in enumerate(heads):
            known = plain[f"blocks.{layer}.attn.hook_z"].shape[3] if 0 <= layer < layers else 0
            if not 0 <= head < known:
                problem = f"there is no head {head} in layer {layer}"
                remedy = f"choose one from 0 to {known - 1}" if known else f"layers go from 0 to {layers - 1}"
                raise SpecError(f"{field}.{place}", problem, remedy)
    if min(layer for layer, _ in senders) >= max(layer for layer, _ in receivers):
        raise SpecError("senders", "are in no layer before a receiver", "give heads of earlier layers")
