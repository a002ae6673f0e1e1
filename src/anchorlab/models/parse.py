"""Parse model specs from plain data, and choose a task's default model."""

from collections.abc import Mapping
from typing import Any

from anchorlab.axes import TaskShape
from anchorlab.models.decoder import DecoderSpec
from anchorlab.models.model import ModelSpec
from anchorlab.models.vectors import VectorSpec
from anchorlab.spec import parse_kind


def parse_model(data: Mapping[str, Any] | ModelSpec, at: str = "model") -> ModelSpec:
    """Build the spec registered for the `kind` in `data`, with the fields in `data`. Errors: as `parse_kind`."""
    if isinstance(data, ModelSpec):
        return data
    return parse_kind(data, at, ModelSpec.registry, "model")


def default_model(shape: TaskShape) -> ModelSpec:
    """Return the paper's model for a task's inputs: the anchor decoder for tokens, the retrieval model for vectors."""
    return DecoderSpec() if shape.inputs == "tokens" else VectorSpec()
