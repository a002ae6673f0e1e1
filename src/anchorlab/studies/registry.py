"""The studies there are, each in a module of its own that is imported when it is asked for."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from anchorlab.spec import unknown_name
from anchorlab.studies.study import Study

STUDIES: Mapping[str, str] = MappingProxyType(
    {
        "anchor/identity": "Identity: test accuracy against train size (Fig 4); shift and broadcast heads (Fig 13)",
        "truncation/feedforward-noise": "Noisy recall: the second feed-forward layer stores the noise (Fig 3)",
        "retrieval/depth": "Retrieval: loss against depth, with and without implicit curriculum (Fig 4)",
    }
)
"""Every study with one line for people; `family/name` lives in `studies/family/name.py` as `STUDY`."""


def study(name: str) -> Study:
    """A study by name. Errors: `SpecError` with the nearest known name for an unknown one."""
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES, "study")
    module = import_module("anchorlab.studies." + name.replace("/", ".").replace("-", "_"))
    found: Study = module.STUDY
    return found
