"""Check the record of a run (the content of its `spec.json`), so that readers can rely on its fields."""

import json
from typing import Any


def checked_record(data: Any, address: str) -> dict[str, Any]:
    """Return `data` as the record of the run at an address.

    Errors: `ValueError` that says what is wrong with the record.
    """
    match data:
        case {"address": str(own), "spec": dict(), "label": str(), "environments": list(environments)}:
            pass
        case _:
            raise ValueError("written by another version of anchorlab")
    if own != address:
        raise ValueError(f"belongs to the run {own[:40]}")
    if not is_environments(environments):
        raise ValueError("does not say where it was computed")
    try:
        data["label"].encode()
        json.dumps([data["spec"], environments], allow_nan=False)
    except ValueError:
        raise ValueError("holds a number or a sign that JSON does not have") from None
    made_by = data.get("made_by", [])
    if not (isinstance(made_by, list) and all(isinstance(one, dict) for one in made_by)):
        raise ValueError("does not say where it was computed")
    return dict(data)


def is_environments(data: Any) -> bool:
    """Return whether data is a list of environments, as `environment` returns them."""
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        return False
    return all(value is None or isinstance(value, str) for one in data for value in one.values())
