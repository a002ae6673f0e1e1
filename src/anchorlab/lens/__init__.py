"""Look inside models: record and change the values at their sites, and measure what their heads and weights do.

Arguments that do not fit each other or the model raise `SpecError`, which names the field and a remedy; a site that the
model does not have, visit or read raises `SiteError`; a training step without a checkpoint raises `StoreError`.
"""

from anchorlab.lens.circuits import AttentionRule, Circuit, CircuitPath, Explanation, find_circuit
from anchorlab.lens.effects.effects import METRICS, Effects, effects
from anchorlab.lens.effects.estimate import estimate_patches
from anchorlab.lens.effects.patching import Patching, PathPatching, patch, patch_paths
from anchorlab.lens.effects.steering import Steering, steer
from anchorlab.lens.emergence import (
    CrossingOrder,
    Emergence,
    Measure,
    PathAttention,
    crossing_order,
    emergence,
    first_crossing,
    path_attention,
)
from anchorlab.lens.fourier import excluded_loss, frequency_norms, key_frequencies, mean_by_sum, restricted_loss
from anchorlab.lens.generate import Generation, generate
from anchorlab.lens.heads import detectors, per_sequence
from anchorlab.lens.heads.assignment import HeadMatching, match_heads
from anchorlab.lens.heads.chance import chance_of_uniform, threshold, uniform_attention
from anchorlab.lens.heads.detect import describe, detect
from anchorlab.lens.heads.detectors import (
    anchor_attending,
    broadcast,
    broadcast_profile,
    first_token,
    fixed_position,
    fixed_position_profile,
    induction,
    matching,
    next_token,
    previous_token,
    self_attending,
    shift,
    shift_profile,
    uniform,
)
from anchorlab.lens.heads.per_sequence import best_source
from anchorlab.lens.heads.scores import HeadScores, OffsetScores
from anchorlab.lens.landscape.landscape import Landscape
from anchorlab.lens.landscape.measure import landscape
from anchorlab.lens.landscape.sequences import landscape_on
from anchorlab.lens.look import (
    Intervention,
    Operand,
    Record,
    look,
    look_by_parts,
    record_patterns,
    shift_pattern,
    with_sites,
)
from anchorlab.lens.mapping import distinct_counts, mapping_sequences
from anchorlab.lens.scoring.controls import other_members, random_scores, weight_norms
from anchorlab.lens.scoring.faithfulness import Faithfulness, faithfulness
from anchorlab.lens.scoring.gradients import score_edges, score_units
from anchorlab.lens.scoring.patching import patch_edges, patch_units
from anchorlab.lens.scoring.pruning import prune_edges
from anchorlab.lens.scoring.scores import Edge, Passes, Scores
from anchorlab.lens.vectors.attribution import Attribution, attribute, logit_lens, unembed
from anchorlab.lens.vectors.directions import Directions, position_directions, recorded_directions, token_directions
from anchorlab.lens.vectors.probe import Probe, probe
from anchorlab.lens.vectors.projections import TSNE, PrincipalComponents, principal_components, tsne
from anchorlab.lens.vectors.similarity import (
    Alignment,
    cka,
    condensation,
    cosine_similarity,
    head_similarity,
    similarity,
)
from anchorlab.lens.weights.lowrank import best_truncations, matrices, truncations
from anchorlab.lens.weights.memories import memory, memory_along
from anchorlab.lens.weights.qk_ov import HeadCircuits, ov, qk
