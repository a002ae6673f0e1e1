"""Record what a model computes, under interventions written as data."""

from anchorlab.lens.look.first_sequence import sequences_at_a_time
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions, Subject, as_ensemble, as_positions, row_ranges
from anchorlab.lens.look.interventions import Intervention, InterventionRule, Operand, shift_pattern
from anchorlab.lens.look.look import look, look_at, look_by_parts
from anchorlab.lens.look.named_sites import with_sites
from anchorlab.lens.look.padding import PLACES, own_places
from anchorlab.lens.look.record import Record, record_patterns
