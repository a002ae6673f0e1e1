"""Apply many interventions, one at a time, and measure the effect of each on the answers."""

from anchorlab.lens.sweep.patching import Patching, patch
from anchorlab.lens.sweep.path_patching import PathPatching, patch_paths
from anchorlab.lens.sweep.steering import Steering, steer
from anchorlab.lens.sweep.sweep import METRICS, Metric, Sweep, sweep
