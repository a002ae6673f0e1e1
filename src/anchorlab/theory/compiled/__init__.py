"""Models with exact weights, whose circuits are known by construction."""

from anchorlab.theory.compiled.assemble import assemble
from anchorlab.theory.compiled.chains import chains
from anchorlab.theory.compiled.model import COMPILED, SOFT, Compiled, compiled
from anchorlab.theory.compiled.program import FeedForward, Head, Match, Move, Program
from anchorlab.theory.compiled.reordered import reordered
from anchorlab.theory.compiled.truth import Truth, Unit
from anchorlab.theory.compiled.variants import SELECTIVE, VARIANTS
