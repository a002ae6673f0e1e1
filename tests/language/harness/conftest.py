"""The real model in both hands: ours, and the folder that a harness opens by itself, without the hub."""

from pathlib import Path

import pytest

import anchorlab as al
from anchorlab.language.asking import LocalSpeaker


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, harnesses look for the folder's name on the hub, for half a minute."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def speaker(smollm2: Path) -> LocalSpeaker:
    return LocalSpeaker(al.pretrained("smollm2"))
