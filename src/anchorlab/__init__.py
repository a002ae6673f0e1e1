"""anchorlab: a laboratory of benchmark functions for studying how language models learn and compute.

Everything here is imported when it is first used, so that `import anchorlab` costs nothing.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anchorlab.handed_down import HandedDown, hand_down

if sys.platform == "win32":  # a store needs kernel locks that Windows lacks
    raise ImportError("anchorlab runs on Linux and macOS; on Windows, install it in WSL (run wsl --install first)")

__version__ = "0.2.0"

_NAMES = {
    "tasks": (
        "AnchorFunction",
        "ModularResidue",
        "Operation",
        "Placement",
        "Task",
        "Vocabulary",
        "register_task",
        "task",
    ),
    "models": ("DecoderSpec", "FNNSpec", "LSTMSpec", "RecallSpec", "VectorSpec", "register_module"),
    "training": (
        "AdamW",
        "Evaluation",
        "Experiment",
        "FixedSample",
        "Members",
        "Recipe",
        "SGD",
        "Stream",
        "WarmupCosine",
        "find_runs",
        "load_pretrained",
        "run",
    ),
    "runs": ("Store",),
    "engine": ("compare", "train"),
    "trained": ("zoo",),
    "lens": ("Intervention", "detect", "effects", "landscape", "look"),
    "language": ("pretrained",),
    "studies": ("Profile", "Study", "at_end", "claim", "curves_against", "run_study", "study"),
    "findings": ("at_least", "at_most", "within"),
    "report": ("attention", "plot", "show", "write_report"),
}
_FACE = {name: package for package, names in _NAMES.items() for name in names}
_SPELLED = {"run": "open_run", "rankings": "truth"}  # `al.engine.run` trains; `al.rankings` is the former name
_SUBPACKAGES = {*_NAMES, "cli", "errors", "interop", "papers", "rankings", "theory", "truth", "viewer"}

__all__ = ["__version__", *_FACE]


def _later(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module, which is imported at the first call."""
    return lambda *values, **choices: getattr(import_module(module), name)(*values, **choices)


hand_down(
    HandedDown(
        plot=_later("anchorlab.report.plots", "draw_value"),
        card=_later("anchorlab.report.cards", "html"),
        study=_later("anchorlab.papers", "study_of"),
        study_title=_later("anchorlab.papers", "title_of"),
        to_hugging_face=_later("anchorlab.language", "to_hugging_face"),
    )
)


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return import_module(f"anchorlab.{_SPELLED.get(name, name)}")
    if name not in _FACE:
        raise AttributeError(f"module 'anchorlab' has no attribute {name!r}{_hint(name)}")
    return getattr(import_module(f"anchorlab.{_FACE[name]}"), _SPELLED.get(name, name))


def _hint(name: str) -> str:
    """Return a hint where to find a name that `al` itself lacks, such as `; write al.tasks.CompositeAnchor`."""
    if name.startswith("_"):  # IPython and inspect look for such names
        return ""
    packages = (*_NAMES, "theory", "truth")
    home = next((package for package in packages if hasattr(import_module(f"anchorlab.{package}"), name)), None)
    return "" if home is None else f"; write al.{home}.{name}"


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from anchorlab.engine import compare, train
    from anchorlab.findings import at_least, at_most, within
    from anchorlab.language import pretrained
    from anchorlab.lens import Intervention, detect, effects, landscape, look
    from anchorlab.models import DecoderSpec, FNNSpec, LSTMSpec, RecallSpec, VectorSpec, register_module
    from anchorlab.report import attention, plot, show, write_report
    from anchorlab.runs import Store
    from anchorlab.studies import Profile, Study, at_end, claim, curves_against, run_study, study
    from anchorlab.tasks import (
        AnchorFunction,
        ModularResidue,
        Operation,
        Placement,
        Task,
        Vocabulary,
        register_task,
        task,
    )
    from anchorlab.trained import zoo
    from anchorlab.training import (
        SGD,
        AdamW,
        Evaluation,
        Experiment,
        FixedSample,
        Members,
        Recipe,
        Stream,
        WarmupCosine,
        find_runs,
        load_pretrained,
    )
    from anchorlab.training import open_run as run
