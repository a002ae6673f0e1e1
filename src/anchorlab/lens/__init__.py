"""Looking inside: record what passes the sites of a model, intervene there, and measure what its heads do."""

from anchorlab.lens import detectors
from anchorlab.lens.detectors import (
    Profile,
    anchor_attending,
    broadcast,
    broadcast_profile,
    induction,
    previous_token,
    shift,
    shift_profile,
    uniform,
)
from anchorlab.lens.geometry import cosine_similarity, head_similarity
from anchorlab.lens.interventions import Intervention, Operand
from anchorlab.lens.look import look
from anchorlab.lens.mapping import distinct_counts, mapping_sequences
from anchorlab.lens.record import Record
from anchorlab.lens.summary import detect
