"""Analyse vectors of the residual stream, queries and keys."""

from anchorlab.lens.vectors.attribution import Attribution, attribute, logit_lens, unembed
from anchorlab.lens.vectors.cka import Alignment, cka
from anchorlab.lens.vectors.directions import Directions, position_directions, recorded_directions, token_directions
from anchorlab.lens.vectors.geometry import condensation, cosine_similarity, head_similarity, similarity
from anchorlab.lens.vectors.probe import Probe, probe
from anchorlab.lens.vectors.projections import TSNE, PrincipalComponents, principal_components, tsne
