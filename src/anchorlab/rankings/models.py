"""The compiled models of the benchmark: which there are, and the id under which each is handed out."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from anchorlab.errors import SpecError
from anchorlab.rng import generator, torch_generator
from anchorlab.spec import unknown_name
from anchorlab.theory.compiled import COMPILED, SELECTIVE, SOFT, Compiled, compiled, reordered

_SHOWN = 60  # characters of an unknown name

MODELS = tuple(f"{name}/{variant}" for name in COMPILED for variant in SELECTIVE)
"""All models of the benchmark, as name and variant."""


def chosen(pattern: str) -> tuple[str, ...]:
    """Return the models that a pattern such as `*`, `identity/*`, `*/backup` or `identity` matches.

    A name without a variant means all variants of it.

    Errors: `SpecError` for a pattern that matches none, and for plain models.
    """
    whole = pattern if "/" in pattern or pattern == "*" else f"{pattern}/*"
    if whole.endswith("/plain"):
        raise SpecError("models", "plain ones need all of their units", f"choose among {', '.join(SELECTIVE)}")
    found = tuple(model for model in MODELS if fnmatchcase(model, whole))
    if not found:
        raise unknown_name("models", pattern[:_SHOWN], (*COMPILED, *MODELS), "compiled model to rank")
    return found


def handed_out(pattern: str = "*", *, rotated: bool = True, seed: int = 0) -> Iterator[tuple[str, Compiled]]:
    """Yield the id and the model of all that match a pattern, by name, then by id.

    An id is the name and a number, such as `identity-2`. The seed decides which variant has which number, the order of
    the heads in each layer, the basis and the noise.

    Errors: as `chosen`.
    """
    found = chosen(pattern)
    for name in COMPILED:
        variants = generator(seed, "variants", name).permutation(SELECTIVE).tolist()
        for number, variant in enumerate(variants, start=1):
            if f"{name}/{variant}" in found:
                made = compiled(name, variant, rotated=rotated, seed=seed, sharpness=SOFT)
                yield f"{name}-{number}", reordered(made, torch_generator(seed, "heads", name, variant))
