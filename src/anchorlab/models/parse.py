"""Parse model specs from plain data, and choose a task's default model."""

from collections.abc import Mapping
from typing import Any

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.models.decoder import DecoderSpec
from anchorlab.models.model import ModelSpec
from anchorlab.models.vectors import VectorSpec
from anchorlab.spec import unknown_name


def parse_model(data: Mapping[str, Any] | ModelSpec, at: str = "model") -> ModelSpec:
    """Build the spec that is registered for the `kind` in `data`, with the fields in `data`.

    Errors: `SpecError` below `at` for a missing or unknown kind (with the nearest known one), and for an unknown field
    or an invalid value.
    """
    if isinstance(data, ModelSpec):
        return data
    kinds = ModelSpec.registry
    if not isinstance(data, Mapping) or "kind" not in data:
        raise SpecError(f"{at}.kind", "is missing", f"known: {', '.join(sorted(kinds))}")
    kind = data["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        raise unknown_name(f"{at}.kind", str(kind), kinds, "model")
    return kinds[kind].parse(dict(data), at)


def default_model(shape: TaskShape) -> ModelSpec:
    """Return the paper's model for a task's inputs: the anchor decoder for tokens, the retrieval model for vectors."""
    return DecoderSpec() if shape.inputs == "tokens" else VectorSpec()
