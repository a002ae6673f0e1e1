"""The sum of a^t t over t, in closed form."""

from anchorlab.errors import SpecError


def weighted_geometric_sum(base: float, terms: int) -> float:
    """Return the sum of a^t t for t from 1 to T, with a = `base` and T = `terms`.

    a (1 - a^T) / (a - 1)^2 + a^(T + 1) T / (a - 1). Source: truncated weights, Lemma E.2.

    Errors: `SpecError` for a = 1, where the lemma's formula is undefined, and for fewer than 1 term.
    """
    if base == 1:
        raise SpecError("base", "1 has no closed form here", "use terms * (terms + 1) / 2")
    if terms < 1:
        raise SpecError("terms", f"{terms} terms make no sum", "give 1 or more")
    return base * (1 - base**terms) / (base - 1) ** 2 + base ** (terms + 1) * terms / (base - 1)
