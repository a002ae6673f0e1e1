"""Losses of users, which training minimises in place of the task's own."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float, Shaped
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.spec import Spec, parse_kind, register_kind, spec_of


class Loss(Spec):
    """A loss at each scored position: `loss(outputs, targets)`, which training averages over the scored positions."""

    kind: str

    registry: ClassVar[dict[str, type["Loss"]]] = {}
    registered: ClassVar[bool] = True

    @abstractmethod
    def losses(
        self, outputs: Float[Tensor, "batch scored output"], targets: Shaped[Tensor, "batch scored *output"]
    ) -> Any:
        """Return what the user's function returns."""

    def __call__(
        self, outputs: Float[Tensor, "batch scored output"], targets: Shaped[Tensor, "batch scored *output"]
    ) -> Float[Tensor, "batch scored"]:
        """Return the loss at each scored position. Errors: `SpecError` at `loss` for another shape."""
        each = self.losses(outputs, targets)
        if not isinstance(each, Tensor) or each.shape != outputs.shape[:2]:
            found = f"shape {tuple(each.shape)}" if isinstance(each, Tensor) else f"a {type(each).__name__}"
            problem = f"{self.kind!r} returns {found} for outputs [batch scored output] of shape {tuple(outputs.shape)}"
            raise SpecError("loss", problem, f"return one value at each scored position, {tuple(outputs.shape[:2])}")
        return each


class _Unregistered(Loss):
    registered: ClassVar[bool] = False
    function: Any = Field(exclude=True)

    def losses(self, outputs: Tensor, targets: Tensor) -> Any:
        return self.function(outputs, targets)


def register_loss(kind: str) -> Callable[[Callable[..., Float[Tensor, "batch scored"]]], type[Loss]]:
    """Turn a function `loss(outputs, targets, ...)` into a specification of a loss, registered as `kind`.

    `outputs` are one member's predictions, `[batch scored output]`. `targets` are the right tokens, `[batch scored]`,
    or distributions or vectors, `[batch scored output]`. The function returns the loss at each scored position,
    `[batch scored]`, from these two alone. Its further arguments become the fields of the specification, and need
    defaults, which give their types if they are not annotated:

        @al.training.register_loss("focal")
        def focal(outputs, targets, power: float = 2.0):
            right = outputs.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
            return -((1 - right.exp()) ** power) * right

        al.train("anchor/identity", loss=focal(power=1.0))

    Kind and fields are part of the address of a run, as for a model; the function's code is not.

    Errors: `TypeError` for an argument without a default; `ValueError` for a kind that is already registered.
    """
    return lambda function: register_kind(kind, spec_of(function, kind, Loss, "losses", 2), Loss.registry, "loss")


def _parse(given: Any) -> Any:
    if given is None or isinstance(given, Loss):
        return given
    if isinstance(given, type) and issubclass(given, Loss):
        return given.parse({})
    if callable(given):
        return _Unregistered(kind=getattr(given, "__name__", type(given).__name__), function=given)
    if not isinstance(given, str | Mapping):
        raise SpecError("", f"{type(given).__name__} is not a loss", "give a function, or the kind of a registered one")
    return parse_kind({"kind": given} if isinstance(given, str) else given, "", Loss.registry, "loss")


AnyLoss = Annotated[SerializeAsAny[Loss] | None, BeforeValidator(_parse)]
"""A loss, given as itself, by its kind, as a table with its kind and fields, or as an unregistered function."""


def check_loss(
    loss: Loss, outputs: Float[Tensor, "batch scored output"], targets: Shaped[Tensor, "batch scored *output"]
) -> None:
    """Raise `SpecError` at `loss` unless a loss has the right shape, is finite, and has a gradient."""
    outputs = outputs.clone().requires_grad_()
    try:
        each = loss(outputs, targets)
        again = loss(outputs, targets)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if isinstance(error, SpecError):
            raise
        given = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}"
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise _wrong(loss, f"fails for {given} ({reason})", "return one value at each scored position") from error
    if not each.requires_grad:
        raise _wrong(loss, "has no gradient with respect to the outputs", "compute it by differentiable operations")
    (gradient,) = torch.autograd.grad(each.sum(), outputs)
    for what, value in {"is": each, "has a gradient that is": gradient}.items():
        if not value.isfinite().all():
            raise _wrong(loss, f"{what} not finite for standard normal outputs", "keep it finite, as log_softmax does")
    if not torch.equal(each, again):
        raise _wrong(loss, "gives other values when it is called again", "compute it from outputs and targets alone")


def _wrong(loss: Loss, problem: str, remedy: str) -> SpecError:
    return SpecError("loss", f"{loss.kind!r} {problem}", remedy)
