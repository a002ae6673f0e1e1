"""A benchmark of interpretability methods: models whose circuits are known, to be ranked and scored."""

from anchorlab.rankings.export import export_models
from anchorlab.rankings.file import Rankings, read_rankings
from anchorlab.rankings.known import Known, known_models, units_to_rank
from anchorlab.rankings.score import means, score_rankings

__all__ = [
    "Known",
    "Rankings",
    "export_models",
    "known_models",
    "means",
    "read_rankings",
    "score_rankings",
    "units_to_rank",
]
