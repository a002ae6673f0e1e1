"""Apply many interventions, one at a time, and measure the effect of each on the answers."""

from anchorlab.lens.effects.effects import METRICS, Effects, Metric, effects
from anchorlab.lens.effects.estimate import estimate_patches
from anchorlab.lens.effects.pairs import Into, Pairs, logit_difference
from anchorlab.lens.effects.patching import Patching, PathPatching, patch, patch_paths
from anchorlab.lens.effects.steering import Steering, steer
