"""Measure what attention heads do."""

from anchorlab.lens.heads import detectors, per_sequence
from anchorlab.lens.heads.assignment import HeadMatching, match_heads
from anchorlab.lens.heads.chance import chance_of_uniform, threshold, uniform_attention
from anchorlab.lens.heads.detect import describe, detect
from anchorlab.lens.heads.per_sequence import AttentionPattern, Queries, best_source
from anchorlab.lens.heads.scores import HeadScores, OffsetScores
