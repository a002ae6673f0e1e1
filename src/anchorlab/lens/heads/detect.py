"""Apply all detectors at once: a table of every head's scores, and a label for each head."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.grids import grid_table, layers_of
from anchorlab.lens.heads import per_sequence
from anchorlab.lens.heads.chance import chance_of_uniform, check_shares, threshold, uniform_attention
from anchorlab.lens.heads.scores import HeadScores, OffsetScores
from anchorlab.lens.look import Record, own_places
from anchorlab.tasks.batch import Batch

if TYPE_CHECKING:
    import polars

Scores = HeadScores | OffsetScores
"""The result of a detector: a score for each sequence and head, at one offset or at several."""

_PATTERN_AXES = ("batch", "head", "query", "key")

_LABELS = {
    "shift": "shift {}",
    "previous_token": "shift 1",
    "self_attending": "self",
    "next_token": "next",
    "uniform": "uniform",
    "induction": "induction",
    "matching": "matching",
    "first_token": "first token",
    "broadcast_profile": "broadcast from anchor{:+d}",
    "anchor_attending": "broadcast from anchor",
    "broadcast": "broadcast from source",
    "fixed_position": "position {}",
}
"""The label that each detector gives to a head for which it fires, with the offset in place of the braces; of equally
strong detectors, the first one labels the head. So a head that attends to the first token is not called a broadcast,
even if that token is also the source."""

_LABELS_AT_ZERO = {"shift": "self", "broadcast_profile": "broadcast from anchor", "fixed_position": "first token"}


def detect(
    record: Record | Iterable[Record],
    batch: Batch | None = None,
    *,
    anchors: Int[Tensor, "batch"] | None = None,
    keys: Int[Tensor, "batch"] | None = None,
    lengths: Int[Tensor, "batch"] | None = None,
) -> "polars.DataFrame":
    """Score every head of every attention pattern of a record with every detector that applies.

    Returns one row per member, (candidate,) layer, head and detector:

    | detector | offset | value |
    |---|---|---|
    | `shift` | the best shift | `shift` at this offset |
    | `previous_token` | | `shift(1)` |
    | `self_attending` | | `shift(0)` |
    | `next_token` | | `next_token`, if the pattern is not causal |
    | `uniform` | | `uniform` |
    | `induction` | | `induction`, if the inputs are tokens and some token occurs twice in a sequence |
    | `matching` | | `matching`, if `induction` applies |
    | `first_token` | | `first_token` |
    | `fixed_position` | the position with the most attention, from 0 | `fixed_position` there |
    | `anchor_attending` | | `anchor_attending`, if anchors are known |
    | `broadcast_profile` | the best source, relative to the anchor | `broadcast` from it, if anchors are known |
    | `broadcast` | | `broadcast` from the keys, if keys are known |

    and the columns

    | column | |
    |---|---|
    | `chance` | the score of a head that attends at random, on the same inputs and under the same mask |
    | `low`, `high` | the 95 % interval of the value over samples of equally many sequences (`HeadScores.interval`) |
    | `fires` | whether the value is above `threshold(chance)`, halfway from chance to 1 |

    For a detector that takes the best of several offsets, `chance` is the largest of a random head's expected scores at
    these offsets. On a single short sequence, or if all sequences have the same pattern, a random head can score well
    above this level.

    The layer is the first number in a site's name, or the site's place among the patterns of the record.

    Args:
        record: a record with at least one site with the axes batch, head, query and key; or the parts of a record, as
            `look_by_parts` yields them. Of parts, only the scores of each sequence are kept in memory, not the
            patterns.
        batch: the sequences of the record. The first anchor and the first key of each sequence come from the latents
            `anchor_positions` and `key_positions`, if the batch has them.
        anchors: the position of one anchor in each sequence, in place of the batch's.
        keys: the position of one key in each sequence, in place of the batch's.
        lengths: the length of each sequence, if shorter ones are padded on the right; None: the record's own lengths.

    Errors: `SpecError` for attention with weights outside 0..1, as linear attention has.
    """
    if batch is not None:
        if not isinstance(batch, Batch):
            raise SpecError("batch", f"is of type {type(batch).__name__}", "give what task.sample returned")
        anchors = _first(batch, "anchor_positions") if anchors is None else anchors
        keys = _first(batch, "key_positions") if keys is None else keys
    given = {"anchors": anchors, "keys": keys, "lengths": lengths}
    for name, one in given.items():
        if one is not None and one.ndim != 1:
            raise SpecError(name, f"have the shape {list(one.shape)}", "give one of each sequence, as in keys[:, 0]")
    sites: dict[str, _Site] = {}
    end, candidates = 0, None
    for part in _parts(record):
        begin, end, candidates = end, end + len(part.inputs), part.candidates
        if batch is not None and not torch.equal(batch.inputs[begin:end].cpu(), part.inputs):
            raise SpecError("batch", "has other inputs than the record", "give the batch that was looked at")
        own = {name: None if value is None else value[begin:end] for name, value in given.items()}
        here = _Part(part.inputs, **own | ({"lengths": part.lengths} if lengths is None else {}))
        for site in pattern_sites(part):
            pattern = part[site] if candidates is not None else part[site].unsqueeze(1)
            sites.setdefault(site, _Site()).add(pattern, here)
    if not sites:
        raise SiteError("the record holds no attention pattern; record a site such as 'blocks.*.attn.hook_pattern'")
    for field, value in {**given, "batch": batch}.items():
        if value is not None and len(value) != end:
            raise SpecError(field, f"has {len(value)} sequences, and the record {end}", "give one for each")
    return _table(sites, candidates)


def _parts(record: Record | Iterable[Record]) -> Iterator[Record]:
    for part in record if isinstance(record, Iterable) and not isinstance(record, Record) else [record]:
        if not isinstance(part, Record):
            remedy = "record patterns first: al.look(run, batch, record=['blocks.*.attn.hook_pattern'])"
            raise SpecError("record", f"is of type {type(part).__name__}, not a record of attention", remedy)
        yield part


def pattern_sites(record: Record) -> list[str]:
    """Return the sites of attention patterns; scores before the softmax have the same axes."""
    return [site for site in record if record.axes(site)[-4:] == _PATTERN_AXES and "hook_attn_scores" not in site]


class _Part:
    """The sequences of a part of a batch, with their anchors, keys and lengths, `[batch]`, or None if unknown."""

    def __init__(self, inputs: Tensor, anchors: Tensor | None, keys: Tensor | None, lengths: Tensor | None) -> None:
        self.inputs, self.anchors, self.keys, self.lengths = inputs, anchors, keys, lengths
        self._chance: dict[bool, dict[str, Scores]] = {}

    def detectors(self, length: int, causal: bool) -> dict[str, Callable[[Tensor], Scores]]:
        """The detectors that apply, by name; each takes a pattern `[... batch head query key]`."""
        positions = per_sequence.fixed_position_profile
        found: dict[str, Callable[..., Scores]] = {
            "shift": per_sequence.shift_profile,
            "previous_token": partial(per_sequence.shift, k=1),
            "self_attending": partial(per_sequence.shift, k=0),
            "uniform": partial(per_sequence.uniform, causal=causal),
            "first_token": per_sequence.first_token,
            "fixed_position": positions if causal else partial(positions, largest=length - 1, queries="all"),
        }
        if not causal:
            found["next_token"] = per_sequence.next_token
        if not self.inputs.is_floating_point():
            found["induction"] = partial(per_sequence.recurrence, tokens=self.inputs, wanted="followers")
            found["matching"] = partial(per_sequence.recurrence, tokens=self.inputs, wanted="copies")
        if self.anchors is not None:
            found["anchor_attending"] = partial(per_sequence.anchor_attending, anchors=self.anchors)
            found["broadcast_profile"] = partial(per_sequence.broadcast_profile, anchors=self.anchors)
        if self.keys is not None:
            found["broadcast"] = partial(per_sequence.broadcast, sources=self.keys)
        return {name: partial(score, lengths=self.lengths) for name, score in found.items()}

    def chance(self, length: int, causal: bool) -> dict[str, Scores]:
        """Return the expected scores of a random head, by detector."""
        if causal not in self._chance:
            whole = torch.full((len(self.inputs),), length)
            lengths = whole if self.lengths is None else self.lengths
            uniform = uniform_attention(length, causal, lengths.cpu()).unsqueeze(1)
            found = {name: measure(uniform) for name, measure in self.detectors(length, causal).items()}
            found["uniform"] = _uniform_by_chance(lengths, causal)
            self._chance[causal] = found
        return self._chance[causal]


def _uniform_by_chance(lengths: Int[Tensor, "batch"], causal: bool) -> HeadScores:
    """Return `chance_of_uniform` for each sequence; sequences that leave a head no choice have weight 0."""
    known = {n: chance_of_uniform(n, causal) for n in set(lengths.tolist()) if n > 1 or not causal}
    values = torch.tensor([known.get(n, 0.0) for n in lengths.tolist()], dtype=torch.float64)
    return HeadScores(values.unsqueeze(-1), torch.tensor([float(n in known) for n in lengths.tolist()]).double())


class _Site:
    """The scores of one site's heads and of random heads, collected part by part."""

    def __init__(self) -> None:
        self.causal: bool | None = None
        self.scores: dict[str, list[Scores]] = {}
        self.chance: dict[str, list[Scores]] = {}

    def add(self, pattern: Float[Tensor, "member candidate batch head query key"], part: _Part) -> None:
        length, causal = pattern.shape[-1], not bool(pattern.triu(1).any())
        if causal is not (causal if self.causal is None else self.causal):
            raise SpecError("record", "attends to later positions in some parts alone", "give it as one record")
        self.causal = causal
        if part.lengths is None:
            check_shares(pattern)
        else:  # the attention to and from the padding does not count
            own = own_places(part.lengths.cpu(), length).to(pattern.device)
            check_shares(pattern.where(own[:, None, :, None] & own[:, None, None], 0))
        for name, measure in part.detectors(length, causal).items():
            self.scores.setdefault(name, []).append(measure(pattern))
            self.chance.setdefault(name, []).append(part.chance(length, causal)[name])


def _table(sites: dict[str, _Site], candidates: tuple[str, ...] | None) -> "polars.DataFrame":
    import polars

    from anchorlab.lens.heads.table import DetectorTable

    tables = []
    for layer, seen in zip(layers_of([*sites]), sites.values(), strict=True):
        for detector, parts in seen.scores.items():
            found, chance = _join(parts), float(_value(_join(seen.chance[detector])))
            if detector in ("induction", "matching") and isinstance(found, HeadScores) and not found.weights.any():
                continue  # no token occurs twice
            values, (low, high) = _value(found), found.interval
            members, _, heads = map(range, values.shape)
            axes = {"member": members, "candidate": candidates or ("",), "head": heads}
            offset = found.best.double() if isinstance(found, OffsetScores) else torch.full_like(values, torch.nan)
            columns = {"offset": offset, "value": values, "chance": torch.tensor(chance, dtype=torch.float64)}
            columns |= {"low": low, "high": high, "fires": values > threshold(chance)}
            tables.append(grid_table({**axes, "layer": [layer], "detector": [detector]}, columns))
    head = ("member", "layer", "head") if candidates is None else ("member", "candidate", "layer", "head")
    offset_or_none = polars.col("offset").fill_nan(None).cast(polars.Int64)
    values_of = ("value", "chance", "low", "high", "fires")
    return DetectorTable(polars.concat(tables).select(*head, "detector", offset_or_none, *values_of))


def describe(found: "polars.DataFrame") -> "polars.DataFrame":
    """Return one row per member, (candidate,) layer and head of a table of `detect`, with the head's `label`.

    Labels are `shift 1`, `self`, `next`, `uniform`, `induction`, `matching`, `first token`, `broadcast from anchor+1`,
    `broadcast from anchor`, `broadcast from source`, `position 3`, or `-` if no detector fires. If several fire, the
    detector with the largest (value - chance) / (1 - chance), rounded to hundredths, gives the label; among equals, the
    first in this list.
    """
    import polars

    heads = [name for name in ("member", "candidate", "layer", "head") if name in found.columns]
    labels = [
        _label(detector, offset) if fires else "-"
        for detector, offset, fires in found.select("detector", "offset", "fires").iter_rows()
    ]
    way = ((polars.col("value") - polars.col("chance")) / (1 - polars.col("chance"))).round(2)
    # In most tasks keys are next to anchors; a head that broadcasts from both is labelled by the anchor.
    by_anchor = (polars.col("fires") & (polars.col("detector") == "broadcast_profile")).any().over(heads)
    named = polars.col("fires") & ~(by_anchor & (polars.col("detector") == "broadcast"))
    rank = polars.col("detector").replace_strict(list(_LABELS), list(range(len(_LABELS))))
    return (
        found.with_columns(polars.Series("label", labels), way=polars.when(named).then(way).otherwise(-1), rank=rank)
        .group_by(heads, maintain_order=True)
        .agg(polars.col("label").sort_by("way", "rank", descending=[True, False]).first())
    )


def _first(batch: Batch, latent: str) -> Int[Tensor, "batch"] | None:
    """Return the first anchor or key of each sequence; None if any sequence lacks it."""
    positions = batch.latents.get(latent)
    if positions is None or positions.shape[1] == 0 or bool((positions[:, 0] < 0).any()):
        return None
    return positions[:, 0]


def _join(parts: list[Scores]) -> Scores:
    return type(parts[0]).join(parts)  # type: ignore[arg-type]  # all parts are of one kind


def _value(found: Scores) -> Float[Tensor, "*lead head"]:
    return found.value if isinstance(found, OffsetScores) else found.mean


def _label(detector: str, offset: int | None) -> str:
    if offset == 0 and detector in _LABELS_AT_ZERO:
        return _LABELS_AT_ZERO[detector]
    return _LABELS[detector].format(offset)
