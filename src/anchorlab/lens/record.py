"""Records: what was seen at the sites of a model, as arrays with named axes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

from torch import Tensor

from anchorlab.errors import SiteError
from anchorlab.spec import unknown_name


@dataclass(frozen=True, repr=False)
class Record:
    """What a look saw: one array per site, with `member`, then `candidate` where there were some, as leading axes.

    `record["blocks.0.attn.hook_pattern"]` is a tensor and `record.axes(...)` names its axes, such as
    `("member", "batch", "head", "query", "key")`; `"output"`, what the model returned, is always there. `inputs` are
    the sequences looked at, `[batch position]` or `[batch position feature]`. All arrays lie in main memory.
    """

    arrays: Mapping[str, Tensor]
    axis_names: Mapping[str, tuple[str, ...]]
    inputs: Tensor
    candidates: tuple[str, ...] | None = None

    def __getitem__(self, site: str) -> Tensor:
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
        """The axis names of a site's array; `SiteError` for a site that was not recorded."""
        self[site]
        return self.axis_names[site]

    def candidate(self, name: str) -> "Record":
        """The record of one candidate, without the candidate axis; `SpecError` for an unknown one."""
        if self.candidates is None or name not in self.candidates:
            raise unknown_name("candidate", name, self.candidates or (), "candidate")
        index = self.candidates.index(name)
        arrays = {site: value.select(self.axes(site).index("candidate"), index) for site, value in self.arrays.items()}
        axes = {site: tuple(axis for axis in names if axis != "candidate") for site, names in self.axis_names.items()}
        return Record(arrays, axes, self.inputs)

    def __repr__(self) -> str:
        return "\n".join(["Record", *(f"  {site}: {self._shape(site)}" for site in self.arrays)])

    def _repr_html_(self) -> str:
        rows = (f"<tr><td><code>{escape(site)}</code></td><td>{self._shape(site)}</td></tr>" for site in self.arrays)
        return f"<table><tr><th>site</th><th>axes</th></tr>{''.join(rows)}</table>"

    def _shape(self, site: str) -> str:
        return ", ".join(f"{axis} {size}" for axis, size in zip(self.axes(site), self[site].shape, strict=True))
