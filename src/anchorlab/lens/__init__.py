"""Looking inside: record what passes the sites of a model, intervene there, and measure what its heads do."""

from anchorlab.lens import detectors, per_sequence
from anchorlab.lens.attribution import Attribution, attribute
from anchorlab.lens.chance import chance_of_uniform, threshold, uniform_attention
from anchorlab.lens.circuits import Circuit, CircuitPath, Explanation, Rule, find_circuit
from anchorlab.lens.detectors import (
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
from anchorlab.lens.directions import Directions, position_directions, recorded_directions, token_directions
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
from anchorlab.lens.geometry import condensation, cosine_similarity, head_similarity, similarity
from anchorlab.lens.head_circuits import HeadCircuits, ov, qk
from anchorlab.lens.interventions import Intervention, Operand, shift_pattern
from anchorlab.lens.look import look
from anchorlab.lens.lowrank import best_truncations, matrices, truncations
from anchorlab.lens.mapping import distinct_counts, mapping_sequences
from anchorlab.lens.memories import memory, memory_along
from anchorlab.lens.planes import NeighbourPlane, PrincipalComponents, principal_components, tsne
from anchorlab.lens.projection import logit_lens, unembed
from anchorlab.lens.record import Record, record_patterns
from anchorlab.lens.scores import Scores
from anchorlab.lens.summary import describe, detect
from anchorlab.lens.sweep import METRICS, Sweep, sweep
