"""Claims under coarser weights: a model quantised further, and how the claims' values change."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import torch

from anchorlab.findings import Table
from anchorlab.language import LanguageModel, edited_weights, wrap
from anchorlab.models import Quantise
from anchorlab.studies.claim import Measure, Measurement

Bits = Literal[8, 4]
BITS: tuple[Bits, ...] = (8, 4)
"""The precisions to which weights are quantised again."""

Seen = TypeVar("Seen")


def requantised(model: LanguageModel, bits: Bits) -> LanguageModel:
    """Return a copy of a model with every matrix of its blocks quantised, and the embeddings unchanged."""
    theirs = model.hugging_face
    # a copy of the module would have this package's hooks already, and run them twice
    fresh = type(theirs)(copy.deepcopy(theirs.config))
    fresh.load_state_dict(theirs.state_dict())
    fresh = fresh.to(device=theirs.device, dtype=theirs.dtype)
    copied = wrap(fresh, model.tokenizer, f"{model.name}, {bits} bits")
    weights = edited_weights(model, [Quantise(weight="blocks", bits=bits)])
    with torch.no_grad():
        for name, value in copied.named_parameters():
            if name in weights:
                value.copy_(weights[name])
    return copied


def precision_table(measures: Sequence[Measure[Seen]], seen: Seen, coarser: Mapping[Bits, Seen]) -> Table:
    """Return each claim's value, those under coarser precisions, and whether these are inside its 95 % interval."""
    columns = ["claim", "value", "interval"]
    for bits in coarser:
        columns += [f"{bits} bits", f"{bits} bits: change", f"{bits} bits: interval"]
    return Table(
        title="The claims with weights quantised again",
        caption="Every matrix of the blocks is rounded to multiples of a scale, one for each 32 inputs (as GGUF's Q8_0 "
        "and Q4_0 do), then everything is measured again under the same truncation. The last column of each precision "
        "says whether the new value is inside the claim's 95 % interval.",
        columns=tuple(columns),
        rows=tuple(_row(measure, seen, tuple(coarser.values())) for measure in measures),
    )


def _row(measure: Measure[Any], seen: Any, coarser: Sequence[Any]) -> tuple[str | float | None, ...]:
    own = _measured(measure, seen)
    interval = None if own.interval is None else f"{own.interval[0]:.3g} to {own.interval[1]:.3g}"
    row: list[str | float | None] = [measure.statement, own.value, interval]
    for one in coarser:
        value = _measured(measure, one).value
        change = None if value is None or own.value is None else value - own.value
        row += [value, change, _where(value, own)]
    return tuple(row)


def _where(value: float | None, own: Measurement) -> str | None:
    if value is None or own.value is None:
        return None
    if own.interval is None:
        return "no interval"
    return "inside" if own.interval[0] <= value <= own.interval[1] else "outside"


def _measured(measure: Measure[Any], seen: Any) -> Measurement:
    found = measure(seen)
    return found if isinstance(found, Measurement) else Measurement(None if found is None else float(found))  # type: ignore[arg-type]
