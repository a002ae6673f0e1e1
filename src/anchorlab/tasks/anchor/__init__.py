"""Anchor functions: small frozen values and their product."""

from anchorlab.tasks.anchor.declare import load_task
from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.labels import Labels
from anchorlab.tasks.anchor.latent import Latent
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.paper.classification import classification
from anchorlab.tasks.anchor.paper.composite import composite
from anchorlab.tasks.anchor.paper.frequency import frequency
from anchorlab.tasks.anchor.paper.identity import identity
from anchorlab.tasks.anchor.paper.multi_anchor import multi_anchor
from anchorlab.tasks.anchor.paper.reading_comprehension import reading_comprehension
from anchorlab.tasks.anchor.paper.recitation import recitation
from anchorlab.tasks.anchor.paper.statistical import statistical
from anchorlab.tasks.anchor.paper.synonym import synonym
from anchorlab.tasks.anchor.paper.two_distances import two_distances
from anchorlab.tasks.anchor.paper.working_memory import working_memory
from anchorlab.tasks.anchor.placement import Layout, Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.scoring import Scoring
from anchorlab.tasks.anchor.separation import AnchorBased, Combined, CompositeAnchor, ModularResidue, Separation
from anchorlab.tasks.anchor.vocabulary import Vocabulary

__all__ = [
    "AnchorBased",
    "AnchorFunction",
    "Combined",
    "CompositeAnchor",
    "Labels",
    "Latent",
    "Layout",
    "ModularResidue",
    "Operation",
    "Placement",
    "Rule",
    "Scoring",
    "Separation",
    "Vocabulary",
    "classification",
    "composite",
    "frequency",
    "identity",
    "load_task",
    "multi_anchor",
    "reading_comprehension",
    "recitation",
    "statistical",
    "synonym",
    "two_distances",
    "working_memory",
]
