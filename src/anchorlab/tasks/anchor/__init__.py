"""Anchor functions: the task, and the small frozen values that it consists of."""

from anchorlab.tasks.anchor import paper
from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.labels import Labels
from anchorlab.tasks.anchor.latent import Latent
from anchorlab.tasks.anchor.noise import MarkovNoise
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Layout, Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.scoring import Scoring
from anchorlab.tasks.anchor.separation import AnchorBased, Combined, CompositeAnchor, ModularResidue, Separation
from anchorlab.tasks.anchor.vocabulary import Vocabulary
