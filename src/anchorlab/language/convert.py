"""Write a packaged language model to the cache: `python -m anchorlab.language.convert smollm2`, once on a machine.

Packages ship the models as GGUF with 4-bit weights, which take at least 15 seconds to read. The converted float32
safetensors load in a second. Only this conversion needs the packages.
"""

import hashlib
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from anchorlab.cache import cache_folder
from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.language.packaged import PACKAGED, remedy
from anchorlab.runs.lock import locked
from anchorlab.spec import check_known

_LONGEST_WAIT = 600.0  # seconds to wait for another process; a conversion takes 25 to 90


def convert(name: str) -> Path:
    """Write a model of `PACKAGED` to the cache, unless it is there already, and return its folder.

    The folder appears complete or not at all, even if the conversion is killed or several run at once.

    Errors: `SpecError` for an unknown name, a missing package, and a file whose checksum is not the published one;
    `StoreError` if the cache cannot be written.
    """
    check_known("model", name, PACKAGED, "packaged model")
    folder = cache_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{name}.lock"), _LONGEST_WAIT):
        if not folder.is_dir():
            partial = folder.with_name(f"{name}.partial")
            shutil.rmtree(partial, ignore_errors=True)  # left by a killed conversion
            partial.mkdir()
            gguf = partial / f"{name}.gguf"
            join(name, gguf)
            _save(name, gguf, partial)
            gguf.unlink()
            partial.rename(folder)
    return folder


def join(name: str, path: Path) -> None:
    """Join a model's GGUF file from its packages' files, without importing the packages: some lack a dependency.

    Errors: `SpecError` for a missing package, and if the checksum of a part or of the whole is not the published one.
    """
    whole = hashlib.sha256()
    with path.open("wb") as joined:
        for part in PACKAGED[name].parts:
            content = (_installed(part.package, name).parent / part.file).read_bytes()
            _check(name, part.file, hashlib.sha256(content).hexdigest(), part.sha256)
            whole.update(content)
            joined.write(content)
    _check(name, path.name, whole.hexdigest(), PACKAGED[name].sha256)


def _check(name: str, file: str, found: str, published: str) -> None:
    if found != published:
        raise SpecError(name, f"{file} has the SHA-256 {found:.12}..., not {published:.12}...", remedy(name))


def _save(name: str, weights: Path, folder: Path) -> None:
    """Write the weights of a GGUF file in float32 as safetensors, and its tokenizer, to `folder`."""
    for package in ("transformers", "gguf", "accelerate"):
        _installed(package, name)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place, options = weights.parent, {"gguf_file": weights.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(place, trust_remote_code=False, **options)
    # the weights are plain float32 by now, but transformers does not save what came from a quantised file
    del model.hf_quantizer, model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options).save_pretrained(folder)


def _installed(package: str, name: str) -> Path:
    """Return the path of a package's `__init__.py`. Errors: `SpecError` if it is missing."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SpecError(name, f"the package {package.replace('_', '-')} is not installed", remedy(name))
    return Path(found.origin)


def main(names: list[str]) -> None:
    """Convert the named models, and print the folder and the licence of each."""
    for name in names:
        try:
            folder = convert(name)
        except AnchorlabError as error:
            sys.exit(str(error))
        print(f"{PACKAGED[name].title}: {folder}; licence: {PACKAGED[name].licence}")


if __name__ == "__main__":
    main(sys.argv[1:])
