"""Fixtures of the real language model; every test that uses them has the marker `language`."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.smollm2 import smollm2_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "smollm2" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.language)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct."""
    try:
        return smollm2_folder()
    except SpecError:
        pytest.skip("needs SmolLM2-135M: make language")


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2: Path) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2, local_files_only=True)
