"""Analyse vectors of the residual stream, queries and keys."""

from anchorlab.lens.vectors.attribution import Attribution, attribute, logit_lens, unembed
from anchorlab.lens.vectors.directions import Directions, position_directions, recorded_directions, token_directions
from anchorlab.lens.vectors.probe import Probe, probe
from anchorlab.lens.vectors.projections import TSNE, PrincipalComponents, principal_components, tsne
from anchorlab.lens.vectors.similarity import (
    Alignment,
    cka,
    condensation,
    cosine_similarity,
    head_similarity,
    similarity,
)
