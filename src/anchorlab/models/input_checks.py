"""Check that a module can read its inputs: tokens of its vocabulary, or vectors of its number of features."""

from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from anchorlab.errors import SpecError, one_sequence, too_long
from anchorlab.models.embedding import TokenEmbedding, VectorEmbedding


def readable(
    inputs: Shaped[Tensor, "..."], module: nn.Module, field: str = "inputs"
) -> Shaped[Tensor, "batch position *feature"]:
    """Return inputs that a module can read, tokens as int64.

    A module without one of anchorlab's embeddings is not checked, since its input format is unknown.

    Errors: `SpecError` at `field` for ids outside the vocabulary, too many positions, inputs of another shape, and
    tokens in place of vectors or the reverse.
    """
    embed, places = getattr(module, "embed", None), getattr(module, "pos_embed", None)
    if isinstance(embed, VectorEmbedding):
        features = len(embed.W_E)
        remedy = f"give vectors [batch position feature] of {features} features"
        if not inputs.is_floating_point():
            raise SpecError(field, f"are {numbers_text(inputs)}, and the model reads vectors", remedy)
        if inputs.ndim == 2 and inputs.shape[-1] == features:
            raise one_sequence(field)
        if inputs.ndim != 3 or inputs.shape[-1] != features:
            raise SpecError(field, f"have shape {tuple(inputs.shape)}", remedy)
        return inputs
    if inputs.ndim == 1:
        raise one_sequence(field)
    if not isinstance(embed, TokenEmbedding):
        return inputs
    if not whole(inputs) or inputs.ndim != 2:
        problem = f"are {numbers_text(inputs)} of shape {tuple(inputs.shape)}, and the model reads tokens"
        raise SpecError(field, problem, "give integers [batch position]")
    check_range(inputs, len(embed.W_E), field, "a token", "give tokens of the model's own task")
    if places is not None and inputs.shape[1] > len(places.W_pos):
        raise too_long(field, inputs.shape[1], len(places.W_pos))
    return inputs.long()


def check_range(numbers: Shaped[Tensor, "..."], size: int, field: str, what: str, remedy: str) -> None:
    """Raise `SpecError` at `field` unless all numbers are from 0 to `size - 1`; `what` names one, such as `a token`."""
    if numbers.numel() and (int(numbers.min()) < 0 or int(numbers.max()) >= size):
        wrong = int(numbers.min()) if int(numbers.min()) < 0 else int(numbers.max())
        raise SpecError(field, f"hold {wrong}, {what} outside 0..{size - 1}", remedy)


def lengths_of_mask(
    mask: Any, sequences: Shaped[Tensor, "batch position *feature"], field: str
) -> Int[Tensor, "batch"]:
    """Return the number of tokens that an `attention_mask` of transformers keeps in each sequence.

    Errors: `SpecError` at `field` for a mask of another shape, and for padding anywhere but on the right: only
    padding on the right does not change what a causal model computes.
    """
    kept = torch.as_tensor(mask).cpu() != 0
    if kept.shape != sequences.shape[:2]:
        raise SpecError(field, f"has shape {tuple(kept.shape)}", f"give shape {tuple(sequences.shape[:2])}")
    lengths = kept.sum(dim=1)
    if not torch.equal(kept, torch.arange(kept.shape[1]) < lengths.unsqueeze(1)):
        problem = "leaves out tokens before others, such as padding on the left"
        raise SpecError(field, problem, "pad on the right, as model.tokenise(texts) does")
    return lengths


def whole(values: Shaped[Tensor, "..."]) -> bool:
    """Return whether a tensor holds integers, by its dtype."""
    return not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)


def numbers_text(values: Shaped[Tensor, "..."]) -> str:
    """Return the kind of numbers in a tensor for messages, such as `integers` or `float32`."""
    return "integers" if values.dtype in (torch.int64, torch.int32) else str(values.dtype).removeprefix("torch.")
