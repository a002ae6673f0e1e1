"""The arguments of a look: a model and the sequences that it reads, converted to one form and checked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from anchorlab.errors import SpecError
from anchorlab.lens.look.access import Access, evaluating
from anchorlab.lens.look.hooked import opened
from anchorlab.lens.look.padding import check_unread, last_places, stated_lengths
from anchorlab.models.input_checks import check_range, numbers_text, readable, whole
from anchorlab.models.model import Weights
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.trained_run import TrainedRun


@runtime_checkable
class HasInputs(Protocol):
    """Any value with sequences in `inputs`: a batch of a task, tokenised texts, a record.

    If it also has `lengths`, as tokenised texts do, shorter sequences are padded on the right, and the padding does not
    count.
    """

    @property
    def inputs(self) -> Shaped[Tensor, "..."]:
        """The sequences."""
        ...


AnyModel = Ensemble | TrainedRun | nn.Module
"""An ensemble; a run, which counts as its members at the end of training; or a module, which counts as one member."""

AnyInputs = Shaped[Tensor, "..."] | HasInputs | np.ndarray | Sequence[Any] | Mapping[str, Any]
"""Tokens `[batch position]` or vectors `[batch position feature]`: a tensor, a batch, an array, lists of numbers, texts
from `LanguageModel.tokenise`, or what a tokenizer of transformers returns, with padding on the right."""

AnyPositions = Shaped[Tensor, "..."] | np.ndarray | Sequence[Any] | int
"""Positions `[scored]` or `[batch scored]`; one number is one position."""

One = TypeVar("One")


@dataclass(frozen=True)
class Subject:
    """A model and the sequences that it reads, all checked.

    Fields
        positions: the scored positions, `[scored]` or `[batch scored]`; None: all
        patch_inputs: the sequences that the rule `patch` takes values from, in the shape of `inputs`
        lengths: how many tokens of each sequence are its own, before the padding; None: all
    """

    ensemble: Ensemble
    access: Access
    inputs: Shaped[Tensor, "batch position *feature"]
    positions: Int[Tensor, "*batch scored"] | None = None
    patch_inputs: Shaped[Tensor, "..."] | None = None
    lengths: Int[Tensor, "batch"] | None = None

    @classmethod
    def of(
        cls,
        model: AnyModel,
        inputs: AnyInputs,
        positions: AnyPositions | None = None,
        axes: Mapping[str, tuple[str, ...]] | None = None,
        patch_inputs: AnyInputs | None = None,
    ) -> "Subject":
        """Check the arguments of `look`."""
        ensemble = as_ensemble(model)
        access = Access(ensemble.template, axes or {})
        for pattern in access.given_axes if access.own_sites is None else ():
            access.resolve(pattern, "axes")
        found = as_sequences(inputs, access)
        others = None if patch_inputs is None else as_sequences(patch_inputs, access, "patch_inputs")
        lengths = common_lengths({"inputs": (inputs, found), "patch_inputs": (patch_inputs, others)}, ensemble, access)
        scored = None if positions is None else as_positions(positions, found, lengths)
        return cls(ensemble, access, found, scored, others, lengths)

    def first(self) -> "Subject":
        """Return the subject with only its first member and its first sequence."""
        return Subject(self.ensemble.select([0]), self.access, self.inputs[:1])

    @property
    def scored(self) -> Int[Tensor, "*batch scored"]:
        """The scored positions; if none were given, the last position of each sequence before its padding."""
        return last_places(self.inputs, self.lengths) if self.positions is None else self.positions

    def rows(self, rows: range, weights: Weights) -> tuple[Shaped[Tensor, "row ..."], Int[Tensor, "*row scored"]]:
        """Return some sequences and their scored positions, on the device of the weights."""
        inputs = fitting(self.inputs[rows.start : rows.stop], weights)
        positions = positions_of(self.scored, rows)
        assert positions is not None
        return inputs, positions.to(inputs.device)


def as_ensemble(model: AnyModel) -> Ensemble:
    """Return an ensemble unchanged, a run as its members at the end, and a module as an ensemble of one member."""
    if isinstance(model, Ensemble):
        return model
    if isinstance(model, TrainedRun):
        return model.ensemble()
    if not isinstance(model, nn.Module):
        remedy = "open it with al.pretrained" if isinstance(model, str) else "give an ensemble, a run or a module"
        if isinstance(model, str) and model.endswith(".toml"):
            remedy = f"train the grid of a file with `anchorlab sweep {model}`"
        raise SpecError("model", f"{_kind(model)} is not a model", remedy)
    model = opened(model)
    named = [*model.named_parameters(), *model.named_buffers()]
    trainable = tuple(name for name, value in model.named_parameters() if value.requires_grad)
    return Ensemble(model, {name: value.detach().unsqueeze(0) for name, value in named}, trainable)


def as_sequences(inputs: AnyInputs, access: Access, field: str = "inputs") -> Shaped[Tensor, "batch *axes"]:
    """Return inputs as the tensor of sequences that a module reads.

    The inputs are checked only for a module with its own sites, because only its input format is known.
    """
    found = as_tensor(inputs, field)
    if found.ndim == 0 or len(found) == 0:
        raise SpecError(field, "holds no sequence", "give at least one")
    return found if access.own_sites is None else readable(found, access.module, field)


def common_lengths(
    given: Mapping[str, tuple[Any, Shaped[Tensor, "batch position *feature"] | None]],
    ensemble: Ensemble,
    access: Access,
) -> Int[Tensor, "batch"] | None:
    """Return how many tokens of each sequence, and of its partner, are not padding; None if all are.

    `given` has, by argument, the value given and the sequences in it. Values without lengths take the others' lengths.
    """
    weights = ensemble.member_weights(0)

    def run(one: Tensor) -> Tensor:
        with evaluating(access.module):
            return access.run(weights, fitting(one, weights), (), lambda site, value: value)

    common, width = None, 0
    for field, (value, found) in given.items():
        lengths = None if found is None else stated_lengths(value, found, field)
        if lengths is None or found is None:
            continue
        if common is not None and not torch.equal(lengths, common):
            raise SpecError(f"{field}.lengths", "differ from the partners' lengths", "give texts of the same length")
        if bool((lengths < found.shape[1]).any()) and common is None:
            check_unread(lengths, found, run, field)
        common, width = lengths, found.shape[1]
    return None if common is None or bool((common == width).all()) else common


def as_positions(
    positions: AnyPositions, inputs: Shaped[Tensor, "batch ..."], lengths: Int[Tensor, "batch"] | None = None
) -> Int[Tensor, "*batch scored"]:
    """Return positions as a tensor `[scored]` or `[batch scored]`; a single number counts as one position."""
    found = as_tensor(positions, "positions")
    found = found.unsqueeze(0) if found.ndim == 0 else found
    if not whole(found) or found.ndim > 2 or (found.ndim == 2 and len(found) != len(inputs)):
        shape = f"{numbers_text(found)} of shape {tuple(found.shape)}"
        raise SpecError("positions", f"are {shape}", f"give integers, [scored] or [{len(inputs)} scored]")
    if inputs.ndim > 1:
        check_range(found, inputs.shape[1], "positions", "a position", "give positions of the sequences, from 0")
    if lengths is not None and bool((found >= lengths.to(found.device).unsqueeze(1)).any()):
        problem = f"hold one in the padding; the sequences have {int(lengths.min())} to {int(lengths.max())} tokens"
        raise SpecError("positions", problem, "give each its own, such as the last, (lengths - 1).unsqueeze(1)")
    return found.long()


def as_list(given: One | Sequence[One], kind: type[One] | tuple[type[One], ...], field: str, remedy: str) -> list[One]:
    """Return values of a given type as a list; a single value becomes a list of one."""
    if isinstance(given, kind):
        return [given]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise SpecError(field, f"{_kind(given)} is not a list", remedy)
    found = list(given)
    for at, each in enumerate(found):
        if not isinstance(each, kind):
            raise SpecError(f"{field}.{at}", f"{_kind(each)} does not belong here", remedy)
    return found


def fitting(inputs: Shaped[Tensor, "..."], weights: Weights) -> Shaped[Tensor, "..."]:
    """Return the inputs on the device of the weights, and vectors also in the precision of the weights."""
    floating = next((value for value in weights.values() if value.is_floating_point()), None)
    if floating is None:
        return inputs
    return inputs.to(floating.device, floating.dtype if inputs.is_floating_point() else inputs.dtype)


def positions_of(positions: Int[Tensor, "*batch scored"] | None, rows: range) -> Int[Tensor, "*row scored"] | None:
    """Return the scored positions of some rows of the batch, from `[scored]` or `[batch scored]`."""
    return positions if positions is None or positions.ndim == 1 else positions[rows.start : rows.stop]


def row_ranges(rows: range, batch_size: int) -> Iterator[range]:
    """Return rows of a batch as consecutive ranges of at most `batch_size` rows."""
    return (rows[begin : begin + batch_size] for begin in range(0, len(rows), batch_size))


def as_tensor(given: Any, field: str) -> Shaped[Tensor, "..."]:
    """Return inputs, or other numbers, as a tensor."""
    given = given.inputs if isinstance(given, HasInputs) else given
    given = given["input_ids"] if isinstance(given, Mapping) and "input_ids" in given else given
    if isinstance(given, Tensor):
        return given
    texts = [given, *given] if isinstance(given, list | tuple) else [given]
    if any(isinstance(text, str | bytes) for text in texts):
        raise SpecError(field, "are text", "give token ids, for a language model model.tokenise(texts)")
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        lengths = {len(row) for row in given if isinstance(row, list | tuple)} if isinstance(given, list) else set()
        if len(lengths) > 1:
            problem = f"have sequences of {min(lengths)} to {max(lengths)} positions"
            raise SpecError(field, problem, "give sequences of one length") from None
        raise SpecError(field, f"{_kind(given)} is not numbers", "give a tensor, a batch or lists of numbers") from None


def _kind(value: Any) -> str:
    return repr(value) if isinstance(value, str) and len(value) < 60 else type(value).__name__
