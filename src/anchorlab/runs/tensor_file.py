"""Write named tensors as safetensors files piece by piece, and read them; the same tensors give the same bytes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from jaxtyping import Shaped


def tensor_pieces(tensors: "Mapping[str, Shaped[torch.Tensor, '...']]") -> Iterator[bytes | memoryview]:
    """Yield the content of a safetensors file: the header, then one piece per tensor.

    The library's own writer needs all tensors contiguous on the CPU at once and refuses views that share memory. An
    ensemble's optimiser state is large and consists of views, so the format is written here; the library reads it.
    Format: 8 bytes of header length, little endian; JSON header padded to a multiple of 8 bytes; data without gaps.

    Errors: `ValueError` for a dtype that the format lacks.
    """
    import torch

    code = {
        torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
        torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
        torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL",
    }  # fmt: skip
    # Widest numbers first, so that every tensor starts at a multiple of its item size.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {}
    end = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in code:
            raise ValueError(f"{name}: a safetensors file has no {tensor.dtype}")
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": code[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        yield tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def read_tensors(path: Path) -> "dict[str, Shaped[torch.Tensor, '...']]":
    """Return the tensors of a safetensors file on the CPU, sorted by name.

    The tensors are copied into torch's own memory, which is always aligned in the same way: the alignment of a mapped
    file can change the last bit of a product.

    Callers check the file for damage first. Errors: `ValueError` if header and data do not fit together.
    """
    from safetensors.torch import load_file

    with _one_kind_of_error():
        found = load_file(path)
    return {name: found[name].clone() for name in sorted(found)}


def check_tensors(path: Path) -> None:
    """Raise `ValueError` if the header and data of a safetensors file do not fit together."""
    from safetensors import safe_open

    with _one_kind_of_error(), safe_open(path, framework="np"):
        pass


@contextmanager
def _one_kind_of_error() -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, KeyError, RuntimeError) as error:  # the library's own checks, and torch's
        raise ValueError(f"is no file of tensors ({' '.join(str(error).split())})") from None
