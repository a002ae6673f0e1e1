"""Vectors in few dimensions: principal components and t-SNE."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.errors import SpecError, from_extra
from anchorlab.rng import generator

Vectors = Float[Tensor, "member *row width"]
"""A recorded site, or weights such as embeddings; the axes between member and width are the rows."""

_PERPLEXITY = 30.0
_FEWEST = 251  # iterations: scikit-learn exaggerates attraction in the first 250, and knows no divergence before
_START = 1e-4  # standard deviation of random starting points, as in scikit-learn


@dataclass(frozen=True)
class PrincipalComponents:
    """Each member's vectors along the orthogonal directions of largest variance, the largest first.

    `mean + coordinates @ directions` is the closest approximation of the vectors.

    Shapes
        coordinates: `[member ... component]`, with the row axes of the vectors, in their units
        directions: `[member component width]`, of length 1
        mean: `[member width]`
        explained: `[member component]`, the share of the variance; 0 for vectors that do not vary
    """

    coordinates: Float[Tensor, "member *row component"]
    directions: Float[Tensor, "member component width"]
    mean: Float[Tensor, "member width"]
    explained: Float[Tensor, "member component"]


def principal_components(vectors: Vectors, components: int = 2) -> PrincipalComponents:
    """Return the principal components of each member's vectors, by singular value decomposition.

    To compare candidates or stages in one plane, pass them together, on an axis of their own. The sign of a direction
    is chosen so that the row farthest along it has a positive coordinate.

    Source: anchor functions, appendix B.3, Fig 20 and 24.
    """
    rows = vectors.flatten(1, -2)
    most = min(rows.shape[1:])
    if not 1 <= components <= most:
        count, width = rows.shape[1:]
        problem = f"cannot take {components} of {count} vectors of width {width}"
        raise SpecError("components", problem, f"give one of 1..{most}")
    mean = rows.mean(dim=1)
    centred = rows - mean.unsqueeze(1)
    _, singular, axes = torch.linalg.svd(centred, full_matrices=False)
    directions = axes[:, :components]
    found = centred @ directions.mT
    # a direction and its negative fit equally well: fix the sign by the row with the largest coordinate
    farthest = found.gather(1, found.abs().argmax(dim=1, keepdim=True))
    signs = torch.where(farthest < 0, -1.0, 1.0).to(found)
    variance = singular.square()
    whole = variance.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(variance.dtype).tiny)
    return PrincipalComponents(
        coordinates=(found * signs).view(*vectors.shape[:-1], components),
        directions=directions * signs.mT,
        mean=mean,
        explained=variance[:, :components] / whole,
    )


@dataclass(frozen=True)
class TSNE:
    """The t-SNE of each member's vectors: a plane that keeps neighbours together. Distances and axes have no meaning.

    Shapes
        coordinates: `[member ... 2]`, with the row axes of the vectors
        divergence: `[member]`, the minimised Kullback-Leibler divergence between the neighbourhoods of vectors and
            plane, in nats; comparable only between planes of equal size and perplexity
        trustworthiness: `[member]`, 1 if nearest neighbours in the plane are also nearest neighbours among the vectors,
            about 0.5 for random points (Venna & Kaski, 2001)
    """

    coordinates: Float[Tensor, "member *row 2"]
    divergence: Float[Tensor, "member"]
    trustworthiness: Float[Tensor, "member"]


def tsne(
    vectors: Vectors,
    *,
    seed: int | None = None,
    perplexity: float | None = None,
    neighbours: int = 5,
    exact: bool = True,
    iterations: int = 1000,
) -> TSNE:
    """Return the t-SNE of each member's vectors, computed by scikit-learn.

    Time and memory grow with the square of the number of rows.

    Args:
        vectors: at least 4 rows of width 2 or more.
        seed: the seed of the starting points, which are the same for every member. None: start from the first two
            principal components, without randomness.
        perplexity: the effective number of neighbours. None: 30, or (rows - 1) / 3 if that is less.
        neighbours: the number of neighbours that `trustworthiness` compares.
        exact: whether to compute all forces; False approximates distant ones (Barnes-Hut), for thousands of rows.
        iterations: the largest number of steps of the descent, at least 251.

    Source: anchor functions, 4.3, Fig 5; van der Maaten & Hinton, 2008.
    """
    with from_extra("scikit-learn", "tsne"):
        from sklearn import manifold
    rows = vectors.detach().flatten(1, -2).cpu()
    count, width = rows.shape[1:]
    if count < 4 or width < 2:
        raise SpecError("vectors", f"are {count} rows of width {width}", "give at least 4 of width 2")
    if bool((rows == rows[:, :1]).flatten(1).all(dim=1).any()):
        raise SpecError("vectors", "of one member are all equal", "give vectors that vary")
    perplexity = min(_PERPLEXITY, (count - 1) / 3) if perplexity is None else perplexity
    if not 0 < perplexity < count:
        raise SpecError("perplexity", f"{perplexity:g} does not fit {count} rows", f"give one between 0 and {count}")
    if not 1 <= neighbours < count / 2:
        raise SpecError("neighbours", f"{neighbours} do not fit {count} rows", f"give one of 1..{(count - 1) // 2}")
    if iterations < _FEWEST:
        raise SpecError("iterations", f"{iterations} are too few", f"give at least {_FEWEST}")
    method = "exact" if exact else "barnes_hut"
    start = "pca" if seed is None else generator(seed, "tsne").normal(scale=_START, size=(count, 2)).astype("float32")
    planes, divergences, trusted = [], [], []
    for one in rows.numpy():
        fitted = manifold.TSNE(
            init=start, method=method, perplexity=perplexity, max_iter=iterations, random_state=0
        ).fit(one)
        planes.append(torch.from_numpy(fitted.embedding_))
        divergences.append(float(fitted.kl_divergence_))
        trusted.append(float(manifold.trustworthiness(one, fitted.embedding_, n_neighbors=neighbours)))
    return TSNE(
        coordinates=torch.stack(planes).view(*vectors.shape[:-1], 2),
        divergence=torch.tensor(divergences),
        trustworthiness=torch.tensor(trusted),
    )
