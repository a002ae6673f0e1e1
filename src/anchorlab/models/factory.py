"""Register a user's own module: turn the function that builds it into a model spec."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, cast

from pydantic import create_model
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.models.model import ModelSpec, register_model


def register_module(kind: str) -> Callable[[Callable[..., nn.Module]], type[ModelSpec]]:
    """Turn a function `factory(shape, ...) -> nn.Module` into a model spec, registered as `kind`.

    Any module that maps inputs to `[batch position output]` is accepted. The function's further arguments become the
    fields of the spec, and need defaults, which give their types if they are not annotated:

        @al.register_module("mean-pool")
        def mean_pool(shape, width: int = 64):
            return MeanPool(shape.input_size, width, shape.output_size)

        al.train("anchor/identity", model=mean_pool(width=32))

    Errors: `TypeError` for an argument without a default; `ValueError` for a kind that is already registered.
    """

    def register(factory: Callable[..., nn.Module]) -> type[ModelSpec]:
        fields: dict[str, Any] = {"kind": (Literal[kind], kind)}
        for name, parameter in list(inspect.signature(factory, eval_str=True).parameters.items())[1:]:
            if parameter.default is parameter.empty:
                raise TypeError(f"{factory.__name__}: argument {name!r} needs a default")
            annotation = type(parameter.default) if parameter.annotation is parameter.empty else parameter.annotation
            fields[name] = (annotation, parameter.default)

        def build(self: ModelSpec, shape: TaskShape) -> nn.Module:
            return factory(shape, **{name: getattr(self, name) for name in fields if name != "kind"})

        spec = cast(Any, create_model(factory.__name__, __base__=ModelSpec, __module__=factory.__module__, **fields))
        spec.build = build
        spec.__doc__, spec.__qualname__ = factory.__doc__, factory.__qualname__
        spec.__abstractmethods__ = frozenset()
        return register_model(kind)(spec)

    return register
