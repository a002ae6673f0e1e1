"""Record what a model computes, under interventions written as data."""

from anchorlab.lens.look.inputs import as_ensemble
from anchorlab.lens.look.interventions import Intervention, InterventionRule, Operand, shift_pattern
from anchorlab.lens.look.look import look, look_by_parts
from anchorlab.lens.look.named_sites import with_sites
from anchorlab.lens.look.record import Record, record_patterns
