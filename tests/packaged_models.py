"""Fixtures of the real language models; every test that uses them has the marker `language`.

All these tests run in one process, which opens each model once and starts one server.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.packaged import PACKAGED, packaged_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def pytest_itemcollected(item: pytest.Item) -> None:
    if not PACKAGED.keys().isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.language)
        item.add_marker(pytest.mark.xdist_group("language"))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct."""
    return _folder("smollm2")


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """The folder of Gemma 3 270M."""
    return _folder("gemma3")


def _folder(name: str) -> Path:
    try:
        return packaged_folder(name)
    except SpecError:
        pytest.skip(f"needs {PACKAGED[name].title}: make {PACKAGED[name].target}")


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2: Path) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2, local_files_only=True)
