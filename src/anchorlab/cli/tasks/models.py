"""`anchorlab models`."""

from inspect import cleandoc
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import Parameter

from anchorlab.cli.options import complete, shared
from anchorlab.cli.terminal.output import Rows, hand_out


def models(
    kind: Annotated[str | None, Parameter(completer=complete.kinds)] = None, /, *, json: shared.Json = False
) -> None:
    """List the kinds of models, or the fields of one kind with their defaults.

    Parameters
    ----------
    kind
        One of the kinds, such as `decoder`; its fields are options of `train`: `--model.kind lstm --model.layers 2`.
    """
    from anchorlab.models import ModelSpec
    from anchorlab.spec import unknown_name

    kinds = dict(sorted(ModelSpec.registry.items()))
    if kind is not None and kind not in kinds:
        raise unknown_name("kind", kind, kinds, "model")
    found = [_data(name, spec) for name, spec in kinds.items() if kind in (None, name)]
    if kind is None:
        hand_out(json, lambda: found, [Rows(("kind", "model"), [(one["kind"], one["model"]) for one in found])])
        return
    paragraphs = cleandoc(kinds[kind].__doc__ or "").split("\n\n")
    rows = [(one["name"], _default(one), one["meaning"]) for one in found[0]["fields"]]
    shown: list[str | Rows] = [" ".join(one.split()) + "\n" for one in paragraphs]
    hand_out(json, lambda: found[0], [*shown, Rows(("field", "default", "meaning"), rows)])


def _data(kind: str, spec: Any) -> dict[str, Any]:
    """Return a kind, its title and its fields other than `kind`, as plain data."""
    fields = [
        {
            "name": name,
            "default": None if field.is_required() else field.get_default(call_default_factory=True),
            "required": field.is_required(),
            "meaning": "; ".join(filter(None, (_choices(field.annotation), field.description))),
        }
        for name, field in spec.model_fields.items()
        if name != "kind"
    ]
    title = cleandoc(spec.__doc__ or f"Registered by {spec.__module__}.").splitlines()[0].removesuffix(".")
    return {"kind": kind, "model": title, "fields": fields}


def _choices(annotation: Any) -> str:
    return " or ".join(map(str, get_args(annotation))) if get_origin(annotation) is Literal else ""


def _default(field: dict[str, Any]) -> str:
    value = "required" if field["required"] else field["default"]
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
