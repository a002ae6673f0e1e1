"""Models whose circuits are known, and measures of how well methods of interpretability find these circuits."""

from anchorlab.truth.agreement import agreement, area_under_curve, nearest_area, rank_correlation, recovered_at
from anchorlab.truth.circuits import Truth, Unit
from anchorlab.truth.export import export_models
from anchorlab.truth.known import Known, known_models, units_to_rank
from anchorlab.truth.models import COMPILED, SOFT, Compiled, compiled, reordered
from anchorlab.truth.rankings import Rankings, means, read_rankings, score_rankings
from anchorlab.truth.variants import SELECTIVE, VARIANTS
