"""Return the data that a page embeds: the viewer's scripts and style sheet, and each view as JSON."""

import json
from base64 import b64encode
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from anchorlab.findings.view import AttentionView, LiveModel

SCRIPTS = tuple(
    f"{name}.js"
    for name in ("model", "oracle", "parts", "maps", "scene", "circuit", "pane", "sequence", "live", "viewer")
)
"""The viewer's scripts, in the order of execution."""

_FOLDER = files("anchorlab.viewer") / "scripts"


def viewer_script() -> str:
    """Return all scripts of the viewer as one."""
    return "\n".join((_FOLDER / name).read_text("utf-8") for name in SCRIPTS)


def viewer_style() -> str:
    """Return the viewer's style sheet."""
    return (_FOLDER / "viewer.css").read_text("utf-8")


def view_json(view: AttentionView) -> str:
    """Return a view as JSON that is safe inside a script element; bytes are in base64."""
    names = ("title", "members", "steps", "examples", "layers", "heads", "length", "predicted", "weights", "labels")
    data = {name: getattr(view, name) for name in (*names, "recorded_only", "causal", "scores")}
    data["examples"] = [
        {
            "tokens": [{"text": text, "role": role} for text, role in zip(one.texts, one.roles, strict=True)],
            "answer": one.answer,
            "split": one.split,
            "trace": one.trace,
        }
        for one in view.examples
    ]
    data |= {"weights": b64encode(view.weights).decode(), "scores": [asdict(one) for one in view.scores]}
    if view.live is not None:
        data["live"] = _live_data(view.live)
    if view.circuits:
        data["circuits"] = [[asdict(path) for path in paths] for paths in view.circuits]
    return script_json(data)


def script_json(data: Any) -> str:
    """Return JSON that is safe inside a script element: text such as `</script>` cannot end it."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _live_data(live: LiveModel) -> dict[str, Any]:
    return {
        "architecture": asdict(live.architecture),
        "weights": [asdict(weight) for weight in live.weights],
        "data": [[None if one is None else b64encode(one).decode() for one in member] for member in live.data],
        "oracle": json.loads(live.oracle) if live.oracle else None,
        "texts": live.texts,
    }
