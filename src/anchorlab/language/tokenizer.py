"""Open the tokenizer of a model alone, without its weights."""

from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.errors import SpecError, from_extra
from anchorlab.language.model_folder import check_files
from anchorlab.language.packaged import PACKAGED, packaged_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def open_tokenizer(name: str) -> "PreTrainedTokenizerBase":
    """Open a tokenizer by its folder, its name in the hub's cache, or a packaged model's name, such as `smollm2`.

    Nothing is downloaded.

    Errors: `SpecError` if the tokenizer is not on this machine, if a pipe or a device is among its files, and if
    `transformers` is not installed.
    """
    with from_extra("transformers", "language"):
        from transformers import AutoTokenizer
    source = str(packaged_folder(name)) if name in PACKAGED else name
    check_files(Path(source), "tokenizer")
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=True)
    except Exception:  # noqa: BLE001 - damaged files raise errors of several libraries, with one remedy
        problem = f"there is no tokenizer {name} on this machine"
        raise SpecError("tokenizer", problem, "give a folder or a name in the hub's cache") from None
