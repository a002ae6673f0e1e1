"""The studies there are, each in a module of its own that is imported when it is asked for."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from importlib import import_module
from types import MappingProxyType

from anchorlab.spec import unknown_name
from anchorlab.studies.study import Study

STUDIES: Mapping[str, str] = MappingProxyType(
    {
        "anchor/composite": "Composite: learned operations (Fig 6); mapping sequences and accuracy by depth (Fig 7)",
        "anchor/frequency": "Frequency: what changes less with the anchor is learned first (Fig 18)",
        "anchor/identity": "Identity: test accuracy against train size (Fig 4); shift and broadcast heads (Fig 13)",
        "anchor/learners": "Identity: the data that a transformer, an LSTM and a fully connected network need (Fig 4)",
        "anchor/order": "Classification: the embeddings of the items lie in the order of their values (Fig 5)",
        "anchor/multi-anchor": "Multi-anchor: ten operations on unseen keys; the edges are hardest (Fig 12)",
        "anchor/recitation": "Recitation: what follows is learned with less data than what comes before (Fig 10)",
        "anchor/working-memory": "Working memory: the intermediate result is held until the second anchor (Fig 8)",
        "anchor/phase-diagram": "Composite, one pair mislabelled: composing or memorising, by depth and initialisation",
        "anchor/statistical": "Statistical output: the distribution of labels is learned (Fig 11)",
        "anchor/synonym": "Synonyms: pairs never trained are learned from an anchor that does the same (Fig 9)",
        "anchor/nine-tasks": "Nine tasks: each is fitted and generalises (Fig 3)",
        "anchor/two-distances": "Two distances: two shifts in layer 1, and a source that follows the anchor (Fig 14)",
        "anchor/structures": "Structures: which components of a decoder the identity task needs (Fig 15)",
        "anchor/simplified": "Simplified model: two attention products carry the key to the end (Fig 16)",
        "anchor/condensation": "Condensation: heads of one layer are alike, by number and initialisation (Fig 19)",
        "anchor/mechanism": "Mechanism: how two layers solve the identity task, part by part (Fig 20-27)",
        "truncation/feedforward-noise": "Noisy recall: the second feed-forward layer stores the noise (Fig 3)",
        "truncation/noise-first": "Noisy recall: the noise is learned first, the recall later (Fig 4)",
        "truncation/avoided-noise": "Noisy recall: attention avoids the noise (Fig 5)",
        "truncation/memories": "Noisy recall: which memory each weight matrix holds (Fig 7, 8)",
        "truncation/feedforward-choices": "Noisy recall: which layer holds the noise, by kinds of layers (Fig 9-12)",
        "truncation/one-step": "One gradient step: what feed-forward and attention learn of the noise (Theorem 1)",
        "truncation/attention-gradient": "One gradient step: how attention begins to avoid the noise (appendix A.2)",
        "truncation/associative-memory": "Associative memory: the smallest singular value stores the noise (Fig 6)",
        "truncation/rank-one-noise": "Associative memory: rank one forgets the noise as t^(-1/2) (Theorem 2)",
        "retrieval/information-flow": "Retrieval: the layers that information needs along a chain (Theorem 1)",
        "retrieval/depth": "Retrieval: loss against depth, with and without implicit curriculum (Fig 4)",
        "retrieval/plateau": "Retrieval: what it takes to leave the plateau of guessing, one choice at a time",
        "retrieval/circuits": "Retrieval: the attention paths that models use, found by replacing the rest (Fig 5)",
        "retrieval/emergence": "Retrieval: when each attention path emerges, beside the losses (Fig 6, 7)",
    }
)
"""Every study with one line for people; `family/name` lives in `studies/family/name.py` as `STUDY`."""


def is_pattern(name: str) -> bool:
    """Whether a name has the signs of a shell's pattern: `*`, `?` or `[`."""
    return any(sign in name for sign in "*?[")


def study_names(patterns: Iterable[str]) -> tuple[str, ...]:
    """The studies that names and patterns such as `anchor/*` ask for, each once, in the order asked for.

    Errors: `SpecError` for an unknown name, with the nearest known one, and for a pattern that no study fits.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        fitting = [name for name in STUDIES if fnmatchcase(name, pattern)] if is_pattern(pattern) else [pattern]
        if not fitting or fitting[0] not in STUDIES:
            raise unknown_name("study", pattern, STUDIES, "study")
        found |= dict.fromkeys(fitting)
    return tuple(found)


def study(name: str) -> Study:
    """A study by name. Errors: `SpecError` with the nearest known name for an unknown one."""
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES, "study")
    module = import_module("anchorlab.studies." + name.replace("/", ".").replace("-", "_"))
    found: Study = module.STUDY
    return found
