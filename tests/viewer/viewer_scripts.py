"""The viewer's scripts in an empty page, and the JSON that a page would give them."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from anchorlab.lens import look
from anchorlab.tasks import AnchorFunction, Task, Vocabulary
from anchorlab.tasks.batch import Example, Token
from anchorlab.training.ensemble import Ensemble
from anchorlab.viewer import AttentionView, live_model, view_json
from tests.lens.hand_built import ANCHOR, VOCABULARY

SOLVED = AnchorFunction(vocabulary=Vocabulary(size=VOCABULARY, items=(4, 11), anchors=(ANCHOR,)))
"""The task that `identity_solver` solves."""


def page_with(browser: Any, *names: str) -> Any:
    """An empty page in which some of the viewer's scripts have run; the caller closes its context."""
    page = browser.new_context().new_page()
    for name in names:
        page.add_script_tag(content=(files("anchorlab.viewer") / "scripts" / name).read_text("utf-8"))
    return page


def live_view(ensembles: Sequence[Ensemble | None], task: Task, inputs: Tensor) -> AttentionView:
    """A view of the last ensemble's attention at every step, with the models themselves."""
    shown = ensembles[-1]
    assert shown is not None
    record = look(shown, inputs, record=["blocks.*.attn.hook_pattern"])
    patterns = torch.stack([record[name] for name in record if name.endswith("hook_pattern")], dim=2)
    return AttentionView.of(
        "live",
        [Example(tuple(Token(str(token), "noise") for token in row), (), "", "") for row in inputs.tolist()],
        range(len(ensembles)),
        torch.stack([patterns] * len(ensembles), dim=1),
        members=[f"member {member}" for member in range(shown.size)],
        live=live_model(ensembles, task),
    )


def live_json(view: AttentionView) -> Any:
    """What the page holds under `live`."""
    return json.loads(view_json(view))["live"]
