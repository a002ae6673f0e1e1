"""Fourier analysis of cyclic tasks such as addition modulo p: which frequencies a model uses, and its loss on them.

Over the numbers n = 0, ..., p - 1, the waves of frequency k are cos(2πkn/p) and sin(2πkn/p), for k from 0 (a constant)
to p // 2. In another cyclic group, such as products modulo a prime, n counts along the cycle.

Source: Nanda et al., Progress measures for grokking via mechanistic interpretability (2023), sections 4.1 and 5.1.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.errors import SpecError


def frequency_norms(values: Float[Tensor, "*lead number feature"]) -> Float[Tensor, "*lead frequency"]:
    """Return the norm of the component of `values` at each frequency, in float64.

        frequency_norms(run.ensemble().weights["embed.W_E"][:, :p])  # [member frequency], of an embedding

    The squares of the norms sum to the squared norm of `values`. The source has a norm for each cosine and each sine;
    here both waves of a frequency count together, so that the norm does not depend on the phase.

    Args:
        values: one row for each number, such as rows of an embedding, or `mean_by_sum` of logits
    """
    count = values.shape[-2]
    power: Tensor = torch.fft.rfft(values.double(), dim=-2, norm="ortho").abs().square().sum(dim=-1)
    power[..., 1 : (count + 1) // 2] *= 2  # of the complex waves k and p - k, rfft has one
    return power.sqrt()


def key_frequencies(norms: Float[Tensor, "*lead frequency"], share: float = 0.9) -> Bool[Tensor, "*lead frequency"]:
    """Return a mask of the key frequencies, the fewest whose squared norms sum to at least `share` of the total.

    Frequency 0 counts in neither sum. No frequency is key if all norms are 0, or if one is not finite. The source names
    the key frequencies of its models by eye, from the embedding and the logits.

    Args:
        norms: from `frequency_norms`
        share: above 0, up to 1
    """
    if not 0 < share <= 1:
        raise SpecError("share", f"{share} is not a share", "give a number above 0 and up to 1")
    power = norms[..., 1:].double().square()
    largest, order = power.sort(dim=-1, descending=True)
    before = largest.cumsum(dim=-1) - largest
    needed = before < share * power.sum(dim=-1, keepdim=True)
    return torch.zeros_like(norms, dtype=torch.bool).scatter(-1, order + 1, needed)


def mean_by_sum(logits: Float[Tensor, "*lead first second output"]) -> Float[Tensor, "*lead sum output"]:
    """Return the mean logits over all pairs with the same sum modulo p: their projection on functions of the sum."""
    if logits.ndim < 3 or logits.shape[-3] != logits.shape[-2]:
        problem = f"have shape {tuple(logits.shape)}"
        raise SpecError("logits", problem, "give every pair (a, b): [... first second output], as many of each")
    numbers = torch.arange(logits.shape[-2], device=logits.device)
    return logits[..., numbers, (numbers.unsqueeze(1) - numbers) % len(numbers), :].mean(dim=-2)


def restricted_loss(
    logits: Float[Tensor, "*lead first second output"],
    answers: Int[Tensor, "first second"],
    keys: Bool[Tensor, "*lead frequency"],
    scored: Bool[Tensor, "first second"] | None = None,
) -> Float[Tensor, "*lead"]:
    """Return the cross-entropy of logits reduced to their constant and key waves, cos and sin of 2πk(a + b)/p.

    It falls while a model learns to add, before its test loss falls. Section 5.1 counts 20 terms for five frequencies:
    for each, the four products of a wave of a and a wave of b. Like the authors' notebook, this function keeps only the
    two combinations of these products that are waves of a + b, and drops the waves of a - b.

    With many key frequencies and most pairs in training, a model that only memorises has a low restricted loss, too:
    the mean over all pairs with the same sum reveals the answer.

    Args:
        logits: of all pairs (a, b), in cyclic order
        answers: the right output for each pair
        keys: from `key_frequencies`, usually of the trained embedding; frequency 0 is kept in any case
        scored: the pairs that count; None: all, as in the source
    """
    return _loss(_waves(logits, keys, constant=True), answers, scored)


def excluded_loss(
    logits: Float[Tensor, "*lead first second output"],
    answers: Int[Tensor, "first second"],
    keys: Bool[Tensor, "*lead frequency"],
    scored: Bool[Tensor, "first second"] | None = None,
) -> Float[Tensor, "*lead"]:
    """Return the cross-entropy of the logits without their key waves, cos and sin of 2πk(a + b)/p.

    It rises while a model comes to rely on these waves; for a model that memorises, it stays near the training loss.

    Args:
        logits, answers, keys: as in `restricted_loss`; frequency 0 is never removed
        scored: the pairs that count; the source scores the training pairs. None: all
    """
    return _loss(logits.double() - _waves(logits, keys, constant=False), answers, scored)


def _waves(
    logits: Float[Tensor, "*lead first second output"], keys: Bool[Tensor, "*lead frequency"], constant: bool
) -> Float[Tensor, "*lead first second output"]:
    """Return the components of the logits at the key frequencies of the sum, with or without frequency 0."""
    count = logits.shape[-2]
    if keys.dtype != torch.bool or keys.shape[-1:] != (count // 2 + 1,):
        problem = f"are {keys.dtype} of shape {tuple(keys.shape)}"
        raise SpecError("keys", problem, f"give one truth value for each of the {count // 2 + 1} frequencies")
    kept = keys.clone()
    kept[..., 0] = constant
    waves = torch.fft.rfft(mean_by_sum(logits.double()), dim=-2) * kept.unsqueeze(-1)
    numbers = torch.arange(count, device=logits.device)
    of_sum: Tensor = torch.fft.irfft(waves, n=count, dim=-2)
    return of_sum[..., (numbers.unsqueeze(1) + numbers) % count, :]


def _loss(
    logits: Float[Tensor, "*lead first second output"],
    answers: Int[Tensor, "first second"],
    scored: Bool[Tensor, "first second"] | None,
) -> Float[Tensor, "*lead"]:
    """Return the mean cross-entropy over the scored pairs; in float64, as float32 rounds small losses to 0."""
    for name, value in (("answers", answers), ("scored", answers if scored is None else scored)):
        if value.shape != logits.shape[-3:-1]:
            shown, wanted = tuple(value.shape), tuple(logits.shape[-3:-1])
            raise SpecError(name, f"have shape {shown}", f"give one for each pair, {wanted}")
    if scored is not None and scored.dtype != torch.bool:
        raise SpecError("scored", f"are {scored.dtype}", "give one truth value for each pair")
    if scored is not None and not bool(scored.any()):
        raise SpecError("scored", "names no pair", "score at least one, or leave it out")
    loss = -logits.log_softmax(dim=-1).gather(-1, answers.expand(logits.shape[:-1]).unsqueeze(-1)).squeeze(-1)
    return loss.flatten(-2).mean(dim=-1) if scored is None else loss[..., scored].mean(dim=-1)
