"""Anchor functions: five small frozen values and their product."""

from anchorlab.tasks.anchor.declare import load_task
from anchorlab.tasks.anchor.function import AnchorFunction, Proof
from anchorlab.tasks.anchor.identity import identity
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Latent, Placement
from anchorlab.tasks.anchor.scoring import Scoring
from anchorlab.tasks.anchor.separation import AnchorBased, ModularResidue, Separation
from anchorlab.tasks.anchor.vocabulary import Vocabulary

__all__ = [
    "AnchorBased",
    "AnchorFunction",
    "Latent",
    "ModularResidue",
    "Operation",
    "Placement",
    "Proof",
    "Scoring",
    "Separation",
    "Vocabulary",
    "identity",
    "load_task",
]
