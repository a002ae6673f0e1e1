"""Score the units of a model, and the edges between them, by their effect on a metric."""

from anchorlab.lens.scoring.comparison import Baseline
from anchorlab.lens.scoring.controls import other_members, random_scores, weight_norms
from anchorlab.lens.scoring.faithfulness import Faithfulness, faithfulness
from anchorlab.lens.scoring.gradients import score_edges, score_units
from anchorlab.lens.scoring.patching import patch_edges, patch_units
from anchorlab.lens.scoring.pruning import prune_edges
from anchorlab.lens.scoring.scores import Edge, Passes, Scores
