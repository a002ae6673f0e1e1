"""Return the data that a page embeds: the viewer's scripts and style sheet, and each view as JSON."""

import json
from base64 import b64encode
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from anchorlab.findings.view import AttentionView, LiveModel

SCRIPTS = (
    "model.js",
    "oracle.js",
    "parts.js",
    "maps.js",
    "scene.js",
    "circuit.js",
    "pane.js",
    "sequence.js",
    "live.js",
    "viewer.js",
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
    data = {
        "title": view.title,
        "members": view.members,
        "steps": view.steps,
        "examples": [
            {
                "tokens": [{"text": text, "role": role} for text, role in zip(one.texts, one.roles, strict=True)],
                "answer": one.answer,
                "split": one.split,
                "trace": one.trace,
            }
            for one in view.examples
        ],
        "layers": view.layers,
        "heads": view.heads,
        "length": view.length,
        "predicted": view.predicted,
        "weights": b64encode(view.weights).decode(),
        "labels": view.labels,
        "recorded_only": view.recorded_only,
        "causal": view.causal,
        "scores": [asdict(one) for one in view.scores],
        **({"live": _live_data(view.live)} if view.live is not None else {}),
        **({"circuits": [[asdict(path) for path in paths] for paths in view.circuits]} if view.circuits else {}),
    }
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
