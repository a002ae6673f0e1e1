"""Programs of heads and feed-forward layers, and the exact weights of a decoder that computes one."""

from anchorlab.theory.compiled.assemble import assemble
from anchorlab.theory.compiled.chains import chains
from anchorlab.theory.compiled.program import FeedForward, Head, Match, Move, Program
