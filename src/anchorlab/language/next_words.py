"""Next words and continuations of a text by a model with edited weights."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.language.encode import text_after, tokenise
from anchorlab.language.model import LanguageModel
from anchorlab.language.start import start_token
from anchorlab.models.edits import AnyEdit, apply_edits
from anchorlab.models.model import predict
from anchorlab.models.precision import at_least_float32

Edits = AnyEdit | Sequence[AnyEdit]


def edited_weights(model: LanguageModel, edits: Edits) -> dict[str, Shaped[Tensor, "..."]]:
    """Apply one edit, or several in order, and return the changed weights by name.

    Errors: `SpecError` for an unknown weight, and for a weight that is not a matrix.
    """
    weights = {name: value.detach().unsqueeze(0) for name, value in model.named_parameters()}
    changed = apply_edits(weights, [edits] if isinstance(edits, AnyEdit) else edits)
    return {name: value[0] for name, value in changed.items() if value is not weights[name]}


def next_words(model: LanguageModel, text: str, k: int = 5, edits: Edits = ()) -> list[tuple[str, float]]:
    """Return the `k` likeliest tokens after a text, each as text and with its probability.

    Errors: `SpecError` for a model without a tokenizer, a text that is too long, edits that do not fit, and more tokens
    than the model predicts.
    """
    outputs = model.get_parameter("unembed.W_U").shape[1]
    if not 1 <= k <= outputs:
        raise SpecError("k", f"{k} tokens", f"choose 1 to {outputs}")
    best = _next(model, _ids(model, text), edited_weights(model, edits)).softmax(-1).topk(k)
    return [(word, float(value)) for word, value in zip(model.words(best.indices), best.values, strict=True)]


def continue_text(model: LanguageModel, text: str, tokens: int = 8, edits: Edits = ()) -> str:
    """Return a text continued by its likeliest next token, `tokens` times or until the context is full.

    Errors: as `next_words`.
    """
    ids, weights = _ids(model, text), edited_weights(model, edits)
    given = ids.shape[1]
    for _ in range(min(tokens, model.context - given)):
        ids = torch.cat([ids, _next(model, ids, weights).argmax()[None, None]], dim=1)
    assert model.tokenizer is not None  # `_ids` refuses a model without one
    return text + text_after(model.tokenizer, ids[0, given:].tolist())


def _ids(model: LanguageModel, text: str) -> Tensor:
    if not text.strip() or text != text.rstrip():
        raise SpecError("text", f"{text!r} does not end in a word", "leave out the space at its end")
    ids = tokenise(model.tokenizer, [text], model.context, start_token(model.tokenizer), "text").inputs
    return ids.to(model.device)


@torch.no_grad()
def _next(model: LanguageModel, ids: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """Return the logits `[token]` after a sequence `[1 position]`."""
    last = torch.tensor([ids.shape[1] - 1], device=ids.device)
    return at_least_float32(predict(model, ids, last, weights or None)[0, 0])
