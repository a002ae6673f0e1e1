"""Looking inside: record what passes the sites of a model, intervene there, and measure what its heads do."""

from anchorlab.lens.circuits import Circuit, CircuitPath, Explanation, Rule, find_circuit
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
from anchorlab.lens.heads import detectors, per_sequence
from anchorlab.lens.heads.chance import chance_of_uniform, threshold, uniform_attention
from anchorlab.lens.heads.detectors import (
    Profile,
    anchor_attending,
    broadcast,
    broadcast_profile,
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
from anchorlab.lens.heads.scores import Scores
from anchorlab.lens.heads.summary import describe, detect
from anchorlab.lens.look.interventions import Intervention, Operand, shift_pattern
from anchorlab.lens.look.look import look
from anchorlab.lens.look.record import Record, record_patterns
from anchorlab.lens.mapping import distinct_counts, mapping_sequences
from anchorlab.lens.sweep.sweep import METRICS, Sweep, sweep
from anchorlab.lens.vectors.attribution import Attribution, attribute
from anchorlab.lens.vectors.directions import Directions, position_directions, recorded_directions, token_directions
from anchorlab.lens.vectors.geometry import condensation, cosine_similarity, head_similarity, similarity
from anchorlab.lens.vectors.logit_lens import logit_lens, unembed
from anchorlab.lens.vectors.projections import NeighbourPlane, PrincipalComponents, principal_components, tsne
from anchorlab.lens.weights.lowrank import best_truncations, matrices, truncations
from anchorlab.lens.weights.memories import memory, memory_along
from anchorlab.lens.weights.qk_ov import HeadCircuits, ov, qk
