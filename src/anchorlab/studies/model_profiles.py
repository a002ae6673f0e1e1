"""Profiles of other models: `quick@EleutherAI/pythia-160m@step1000` is `quick`, of that model and revision."""

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from anchorlab.errors import SpecError
from anchorlab.language.endpoint import address_of, is_address, read_address

SIGN = "@"
"""What separates the names of profile, model and revision."""

Setting = TypeVar("Setting")


def of_model(setting: Setting, model: str | None = None, revision: str | None = None) -> Setting:
    """Return a setting with another pretrained model, or with another revision of its own.

    Errors: `SpecError` for a setting without the fields `model` and `revision`, for a name with an `@`, and for an
    address that no server has.
    """
    names = {field.name for field in fields(setting)} if is_dataclass(setting) else set()
    if not {"model", "revision"} <= names or not is_dataclass(setting) or isinstance(setting, type):
        raise SpecError("model", "the study opens no pretrained model", "leave out the model and its revision")
    if model is not None and is_address(model):
        model = ",".join(address_of(*read_address(one)) if is_address(one) else one for one in model.split(","))
    for field, name in (("model", model), ("revision", revision)):
        if name is not None and (SIGN in name or not name):
            raise SpecError(field, f"{name!r} cannot be part of a profile's name", f"give a name without {SIGN}")
    return replace(setting, revision=revision, **({} if model is None else {"model": model}))


def profile_name(profile: str, model: str, revision: str | None) -> str:
    """Return the name of a profile of another model."""
    return SIGN.join(part for part in (profile, model, revision) if part)


def parts(profile: str) -> tuple[str, str | None, str | None]:
    """Return the profile, the model and the revision in a profile's name, None for the profile's own model."""
    base, _, given = profile.partition(SIGN)
    model, _, revision = given.partition(SIGN)
    return base, model or None, revision or None
