"""Records: the values at a model's sites, as arrays with named axes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from anchorlab.drawable import Drawable, plotted
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.look.inputs import AnyInputs, as_tensor
from anchorlab.lens.look.padding import PLACES, stated_lengths
from anchorlab.spec import unknown_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Record(Drawable):
    """The values that `look` recorded: one array per site.

    `record["blocks.0.attn.hook_pattern"]` is a tensor, and `record.axes(...)` names its axes, such as
    `("member", "batch", "head", "query", "key")`. The first axis is `member`, and the second is `candidate` if
    candidates were given. `"output"` is the model's output, unless `look` was called without it. All arrays are on the
    CPU.

    Fields
        arrays: by site, `[member ...]` or `[member candidate ...]` with the site's own axes after these
        axis_names: by site, the names of all axes of its array
        inputs: the sequences that the model read, `[batch position]` or `[batch position feature]`
        candidates: the names of the candidates in the order of their axis; None if none were given
        lengths: how many tokens of each sequence are its own; the values behind them belong to the padding. None: all
    """

    arrays: Mapping[str, Shaped[Tensor, "member ..."]]
    axis_names: Mapping[str, tuple[str, ...]]
    inputs: Shaped[Tensor, "batch ..."]
    candidates: tuple[str, ...] | None = None
    lengths: Int[Tensor, "batch"] | None = None

    def __getitem__(self, site: str) -> Shaped[Tensor, "..."]:
        if site not in self.arrays:
            raise SiteError(str(unknown_name("record", site, self.arrays, "site")))
        return self.arrays[site]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __contains__(self, site: object) -> bool:
        return site in self.arrays

    def __len__(self) -> int:
        return len(self.arrays)

    def axes(self, site: str) -> tuple[str, ...]:
        """Return the axis names of a site's array."""
        self[site]
        return self.axis_names[site]

    def at(self, site: str, /, **index: int) -> Shaped[Tensor, "..."]:
        """Return a site's array at one index of each named axis, without these axes.

            record.at("blocks.0.attn.hook_pattern", member=0, head=1)  # [batch query key]

        Negative indices count from the end; negative places are refused if sequences differ in length.
        """
        value, names = self[site], self.axes(site)
        for axis, place in index.items():
            if axis not in names:
                remedy = f"{site} has the axes {', '.join(names)}"
                raise SpecError(f"at.{axis}", f"unknown axis {axis!r}", remedy)
            size = value.shape[names.index(axis)]
            if not -size <= place < size:
                raise SpecError(f"at.{axis}", f"index {place} is out of range", f"{site} has {self._shape(site)}")
            if place < 0 and axis in PLACES and self.lengths is not None:
                problem = f"{place} is not the same place in sequences of different lengths"
                raise SpecError(f"at.{axis}", problem, "count from 0; the last places are record.lengths - 1")
        return value[tuple(index.get(axis, slice(None)) for axis in names)]

    def plot(self, site: str, /, *, tokens: Sequence[str] | None = None, **index: int) -> "Figure":
        """Draw a site's values for one member and one sequence as heat maps, one for each head and candidate.

            record.plot("blocks.0.attn.hook_pattern", member=1, batch=4)

        Without an index, `member` and `batch` are at 0. The last two of the remaining axes, apart from heads and
        candidates, form the rows and columns. `tokens` are the texts of the sequence's positions; None: its token ids.
        The padding behind a shorter sequence is left out.
        """
        return plotted(self._own(index.get("batch", 0)), site=site, tokens=tokens, index=index)

    def candidate(self, name: str) -> "Record":
        """Return the record of one candidate, without the candidate axis."""
        if self.candidates is None or name not in self.candidates:
            raise unknown_name("candidate", name, self.candidates or (), "candidate")
        index = self.candidates.index(name)
        arrays = {site: self.at(site, candidate=index) for site in self}
        axes = {site: tuple(axis for axis in names if axis != "candidate") for site, names in self.axis_names.items()}
        return Record(arrays, axes, self.inputs, None, self.lengths)

    def _own(self, sequence: int) -> "Record":
        """Return the record without the padding of one sequence."""
        if self.lengths is None or not -len(self.lengths) <= sequence < len(self.lengths):
            return self
        own = slice(int(self.lengths[sequence]))
        arrays = {
            site: self[site][tuple(own if axis in PLACES else slice(None) for axis in self.axes(site))] for site in self
        }
        return Record(arrays, self.axis_names, self.inputs[:, own], self.candidates)

    def __repr__(self) -> str:
        rows = sites_by_layer(self)
        lines = (f"  {site}{f', layers {layers}' if layers else ''}: {axes}" for site, layers, axes in rows)
        return "\n".join(["Record", *lines])

    def _shape(self, site: str) -> str:
        return ", ".join(f"{axis} {size}" for axis, size in zip(self.axes(site), self[site].shape, strict=True))


def sites_by_layer(record: Record) -> list[tuple[str, str, str]]:
    """Return the sites of a record as text: site, layers and axes.

    Sites that differ only in their layer form one pattern with its layers, such as `blocks.*.attn.hook_pattern` and
    `0..29`; for any other site the layers are empty.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for site in record:
        axes = record._shape(site)
        groups.setdefault((re.sub(r"\d+", "*", site, count=1), axes), []).append(site)
    return [
        (pattern, _layers(sites), axes) if len(sites) > 1 else (sites[0], "", axes)
        for (pattern, axes), sites in groups.items()
    ]


def _layers(sites: Sequence[str]) -> str:
    """Return the first numbers in the names of sites, as a range if they have no gap."""
    numbers = sorted(int(found.group()) for site in sites if (found := re.search(r"\d+", site)))
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}..{numbers[-1]}"
    return ", ".join(map(str, numbers))


def record_patterns(patterns: Sequence[Any], inputs: AnyInputs) -> Record:
    """Return a record of the attention patterns of any model, for detectors: one member, one site per layer.

    `patterns` has one array `[batch head query key]` per layer, of any type that `torch.as_tensor` accepts, such as
    the `attentions` of a Hugging Face model. `inputs` are the model's tokens, `[batch position]`, as in `look`. The
    record's sites are `blocks.0.attn.hook_pattern` and so on.
    """
    layers = [_pattern(at, given) for at, given in enumerate(patterns)]
    tokens = as_tensor(inputs, "inputs")
    wanted = (len(tokens), tokens.shape[-1], tokens.shape[-1])
    shapes = sorted({tuple(one.shape) for one in layers})
    if len(shapes) != 1 or len(shapes[0]) != 4 or (shapes[0][0], *shapes[0][2:]) != wanted:
        problem = f"has layers of shape {shapes} for {wanted[0]} sequences of {wanted[1]}"
        raise SpecError("patterns", problem, "give [batch head query key] for each layer")
    sites = {f"blocks.{layer}.attn.hook_pattern": pattern[None] for layer, pattern in enumerate(layers)}
    axes = dict.fromkeys(sites, ("member", "batch", "head", "query", "key"))
    lengths = stated_lengths(inputs, tokens, "inputs")
    padded = lengths is not None and bool((lengths < tokens.shape[1]).any())
    return Record(sites, axes, tokens, lengths=lengths if padded else None)


def _pattern(at: int, given: Any) -> Tensor:
    if given is None:
        raise SpecError(f"patterns.{at}", "is None", "load the model with attn_implementation='eager'")
    return torch.as_tensor(given).detach().float().cpu()
