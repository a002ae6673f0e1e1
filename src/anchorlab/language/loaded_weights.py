"""Check that a model's files hold exactly its weights: transformers draws missing weights at random and only warns."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import SpecError
from anchorlab.language.checkpoints import CONSTANTS
from anchorlab.printable import printable

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAMED = 3  # names that a message gives of each kind


def check_loaded(source: str, report: Mapping[str, Collection[Any]], others: Sequence[str] = ()) -> None:
    """Raise `SpecError` if weights were missing in a model's files, had another shape, or were left over.

    A weight that the model ties to another one may be missing. Constants that older versions of transformers saved,
    such as masks, may be left over.

    Args:
        source: the model's name, for errors
        report: transformers' report on loading, by `output_loading_info`
        others: names of further tensors in the files that the model does not read
    """
    left = sorted({*map(str, report["unexpected_keys"]), *others})
    shapes = {str(name): f"{tuple(found)} in place of {tuple(own)}" for name, found, own in report["mismatched_keys"]}
    problems = (
        ("lacks", sorted(map(str, report["missing_keys"]))),
        ("has in another shape", [f"{name} {shape}" for name, shape in sorted(shapes.items())]),
        ("holds what the model does not read:", [name for name in left if not name.endswith(CONSTANTS)]),
    )
    if said := "; ".join(f"{problem} {_listed(names)}" for problem, names in problems if names):
        raise SpecError("model", f"{source} {said}", "give a folder that holds the weights of its own configuration")


def left_in_gguf(path: Path, model: "PreTrainedModel") -> list[str]:
    """Return the tensors of a GGUF file that transformers passes over without a report."""
    from gguf import GGUFReader
    from transformers.modeling_gguf_pytorch_utils import TensorProcessor, get_gguf_hf_weights_map

    known = get_gguf_hf_weights_map(model, TensorProcessor())
    return [tensor.name for tensor in GGUFReader(path).tensors if tensor.name not in known]


def _listed(names: Sequence[str]) -> str:
    """Return the first names, made printable: they come from files of other people."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(f"{printable(name):.80}" for name in names[:_NAMED]) + more
