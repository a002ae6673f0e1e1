"""Pairs of clean and corrupted sequences, and the logit difference between their answers."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look import AnyInputs, AnyModel, AnyPositions, Subject, as_ensemble, as_positions, look_at
from anchorlab.lens.look.access import Access
from anchorlab.lens.look.inputs import as_sequences, common_lengths
from anchorlab.lens.look.padding import last_places
from anchorlab.models.input_checks import check_range
from anchorlab.models.precision import at_least_float32
from anchorlab.tasks.batch import Batch

Into = Literal["corrupted", "clean"]
"""The run that receives values; they come from the other run."""

_ROUNDING = 1e-6
"""The largest relative distance at which the logit differences of the clean and the corrupted run count as equal."""


def recovered_fraction(
    difference: Float[Tensor, "member *place"], clean: Float[Tensor, "member"], corrupted: Float[Tensor, "member"]
) -> Float[Tensor, "member *place"]:
    """Return (difference - corrupted) / (clean - corrupted); NaN if clean and corrupted are equal up to rounding."""
    shape = (-1, *(1,) * (difference.ndim - 1))
    whole = clean - corrupted
    alike = whole.abs() <= _ROUNDING * (clean.abs() + corrupted.abs())
    whole = torch.where(alike, torch.nan, whole)
    return (difference - corrupted.reshape(shape)) / whole.reshape(shape)


def logit_difference(
    output: Float[Tensor, "*sequence scored output"], answers: Int[Tensor, "*sequence scored 2"]
) -> Float[Tensor, "*sequence scored"]:
    """Return the logit of the first answer minus the logit of the second."""
    check_range(answers, output.shape[-1], "answers", "a token", "give tokens that the model predicts")
    right, wrong = at_least_float32(output.gather(-1, answers)).unbind(dim=-1)
    return right - wrong


@dataclass(frozen=True)
class Pairs:
    """The run that receives values (`base`) and the run that supplies them (`source`), and both answers.

    The first answer is always the clean answer, whichever run is the base.
    """

    base: Subject
    source: Subject
    answers: Int[Tensor, "batch scored 2"]
    into: Into

    @classmethod
    def of(
        cls,
        model: AnyModel,
        clean: AnyInputs,
        corrupted: AnyInputs,
        answers: Int[Tensor, "batch scored"] | None,
        corrupted_answers: Int[Tensor, "batch scored"] | None,
        positions: AnyPositions | None,
        into: Into,
        axes: Mapping[str, tuple[str, ...]] | None = None,
    ) -> "Pairs":
        """Check the arguments of `patch`, and return the pairs."""
        if into not in ("corrupted", "clean"):
            raise SpecError("into", f"{into!r} is no run", "choose 'corrupted' or 'clean'")
        ensemble = as_ensemble(model)
        access = Access(ensemble.template, axes or {})
        left, right = as_sequences(clean, access, "clean"), as_sequences(corrupted, access, "corrupted")
        if left.shape != right.shape:
            problem = f"have shape {tuple(right.shape)}, and the clean ones {tuple(left.shape)}"
            raise SpecError("corrupted", problem, "give one of the same length for each")
        lengths = common_lengths({"clean": (clean, left), "corrupted": (corrupted, right)}, ensemble, access)
        if positions is None:
            positions = clean.positions if isinstance(clean, Batch) else last_places(left, lengths)
            for field, side in (("clean", clean), ("corrupted", corrupted if corrupted_answers is None else None)):
                if isinstance(side, Batch) and not torch.equal(side.asked, positions.expand(len(left), -1)):
                    problem = "has scores that pad its rows, or at other positions than the clean sequences"
                    raise SpecError(field, problem, "give positions, and both answers there")
        places = as_positions(positions, left, lengths)
        shape = (len(left), places.shape[-1])
        both = [
            _tokens(given if given is not None else getattr(side, "answers", None), shape, field)
            for field, given, side in (("answers", answers, clean), ("corrupted_answers", corrupted_answers, corrupted))
        ]
        if torch.equal(*both):
            raise SpecError("corrupted_answers", "equal the clean answers", "corrupt what the answer rests on")
        if alike := int((both[0] == both[1]).all(dim=-1).sum()):
            problem = f"pairs with equal answers measure nothing: {alike} of {len(left)}"
            warnings.warn(f"{problem}; corrupt what the answer rests on", stacklevel=3)
        inputs = (right, left) if into == "corrupted" else (left, right)
        base, source = (Subject(ensemble, access, one, places, lengths=lengths) for one in inputs)
        return cls(base, source, torch.stack(both, dim=-1), into)

    def difference(self, output: Float[Tensor, "*lead batch scored output"]) -> Float[Tensor, "*lead"]:
        """Return the logit difference of outputs at the scored positions, averaged over sequences and positions."""
        answers = self.answers.expand(*output.shape[:-1], 2)
        return logit_difference(output, answers).double().mean(dim=(-1, -2))

    def ends(
        self, base: Float[Tensor, "member"], batch_size: int | None
    ) -> tuple[Float[Tensor, "member"], Float[Tensor, "member"]]:
        """Return the logit differences of the clean and the corrupted run, given the base run's."""
        source = self.difference(look_at(self.source, batch_size=batch_size)["output"])
        return (source, base) if self.into == "corrupted" else (base, source)


def _tokens(given: Any, shape: tuple[int, int], field: str) -> Int[Tensor, "batch scored"]:
    if given is None:
        raise SpecError(field, "are missing", "give tokens [batch scored], or a batch of a task")
    found = torch.as_tensor(given)
    if found.is_floating_point() or tuple(found.shape) != shape:
        problem = f"are {'no tokens' if found.is_floating_point() else 'tokens'} of shape {tuple(found.shape)}"
        raise SpecError(field, problem, f"give one token for each scored position, {list(shape)}")
    return found
