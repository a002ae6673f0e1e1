"""Look inside models: record and change the values at their sites, and measure what their heads and weights do.

Arguments that do not fit each other or the model raise `SpecError`, which names the field and a remedy; a site that the
model does not have, visit or read raises `SiteError`; a training step without a checkpoint raises `StoreError`.
"""

from anchorlab.lens.circuits import AttentionRule, Circuit, CircuitPath, Explanation, find_circuit
from anchorlab.lens.effects import (
    METRICS,
    Effects,
    Patching,
    PathPatching,
    Steering,
    effects,
    estimate_patches,
    patch,
    patch_paths,
    steer,
)
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
from anchorlab.lens.heads import (
    HeadMatching,
    HeadScores,
    OffsetScores,
    best_source,
    chance_of_uniform,
    describe,
    detect,
    detectors,
    match_heads,
    per_sequence,
    threshold,
    uniform_attention,
)
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
from anchorlab.lens.landscape import Landscape, landscape, landscape_on
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
from anchorlab.lens.scoring import (
    Edge,
    Faithfulness,
    Passes,
    Scores,
    faithfulness,
    other_members,
    patch_edges,
    patch_units,
    prune_edges,
    random_scores,
    score_edges,
    score_units,
    weight_norms,
)
from anchorlab.lens.vectors import (
    TSNE,
    Alignment,
    Attribution,
    Directions,
    PrincipalComponents,
    Probe,
    attribute,
    cka,
    condensation,
    cosine_similarity,
    head_similarity,
    logit_lens,
    position_directions,
    principal_components,
    probe,
    recorded_directions,
    similarity,
    token_directions,
    tsne,
    unembed,
)
from anchorlab.lens.weights import (
    HeadCircuits,
    best_truncations,
    matrices,
    memory,
    memory_along,
    ov,
    qk,
    truncations,
)
