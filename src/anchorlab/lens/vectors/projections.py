"""Recorded vectors in few dimensions: principal components, and the plane of t-SNE."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.rng import generator

Vectors = Float[Tensor, "member *row width"]
"""Any recorded site whose last axis is the vectors', or weights such as embeddings; all other axes count the rows."""

_PERPLEXITY = 30.0
_START = 1e-4  # spread of the points that a plane starts from, as scikit-learn has it


@dataclass(frozen=True)
class PrincipalComponents:
    """Each member's vectors along the orthogonal directions in which they vary most, the greatest first.

    Where all is placed again: `mean + coordinates @ directions` comes nearest to the vectors.

    Shapes
        coordinates: `[member ... component]`, the rows' axes as they were, in the units of the vectors
        directions: `[member component width]`, of length 1
        mean: `[member width]`
        explained: `[member component]`, the share of the variance along each; 0 of vectors that do not vary
    """

    coordinates: Float[Tensor, "member *row component"]
    directions: Float[Tensor, "member component width"]
    mean: Float[Tensor, "member width"]
    explained: Float[Tensor, "member component"]


def principal_components(vectors: Vectors, components: int = 2) -> PrincipalComponents:
    """Principal component analysis of each member's vectors, by singular values (anchor functions, B.3, Fig 20 and 24).

    What is to be seen in one plane, such as candidates or stages, is given together, on an axis of its own. A direction
    has no sign of its own: the row farthest along it lies on its positive side.

    Errors: `SpecError` for a number of components that the vectors do not have.
    """
    rows = vectors.flatten(1, -2)
    most = min(rows.shape[1:])
    if not 1 <= components <= most:
        count, width = rows.shape[1:]
        raise SpecError("components", f"{components} of {count} vectors of width {width}", f"give one of 1..{most}")
    mean = rows.mean(dim=1)
    centred = rows - mean.unsqueeze(1)
    _, singular, axes = torch.linalg.svd(centred, full_matrices=False)
    directions = axes[:, :components]
    found = centred @ directions.mT
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
    """Each member's vectors on a plane on which neighbours stay neighbours; distances and axes mean nothing.

    The plane explains no share of a variance, since it is no projection. What says how far to trust it:

    Shapes
        coordinates: `[member ... 2]`, the rows' axes as they were
        divergence: `[member]`, the Kullback-Leibler divergence of the plane's neighbourhoods from those of the vectors,
            in nats: what was minimised; to be compared between planes of as many rows and the same perplexity alone
        trustworthiness: `[member]`, 1 where every row's nearest on the plane are its nearest among the vectors, about
            0.5 where the plane is at random (Venna & Kaski, 2001)
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
) -> TSNE:
    """t-SNE of each member's vectors (anchor functions, 4.3, Fig 5; van der Maaten & Hinton, 2008), by scikit-learn.

    Without `seed` it starts from the two main components and leaves nothing to chance; with one, from points drawn at
    random, the same for every member: what several seeds show alike is no accident of the start. Without `perplexity`
    it is 30, or a third of the rows less one where they are fewer than 91. Time and memory grow with the square of the
    rows; where `exact` is False, forces between far rows are approximated (Barnes-Hut), for thousands of rows.
    `neighbours` are what trustworthiness counts.

    Errors: `SpecError` for fewer than 4 rows, a width below 2 or rows that are all the same, and for a perplexity or a
    number of neighbours out of range.
    """
    from sklearn.manifold import TSNE, trustworthiness

    rows = vectors.detach().flatten(1, -2).cpu()
    count, width = rows.shape[1:]
    if count < 4 or width < 2:
        raise SpecError("vectors", f"{count} rows of width {width} have no plane to find", "give 4 of width 2, or more")
    if bool((rows == rows[:, :1]).flatten(1).all(dim=1).any()):
        raise SpecError("vectors", "of one member are all the same", "give vectors that vary")
    perplexity = min(_PERPLEXITY, (count - 1) / 3) if perplexity is None else perplexity
    if not 0 < perplexity < count:
        raise SpecError("perplexity", f"{perplexity:g} for {count} rows", f"give one above 0 and below {count}")
    if not 1 <= neighbours < count / 2:
        raise SpecError("neighbours", f"{neighbours} of {count} rows", f"give one of 1..{(count - 1) // 2}")
    method = "exact" if exact else "barnes_hut"
    start = "pca" if seed is None else generator(seed, "tsne").normal(scale=_START, size=(count, 2)).astype("float32")
    planes, divergences, trusted = [], [], []
    for one in rows.numpy():
        fitted = TSNE(init=start, method=method, perplexity=perplexity, random_state=0).fit(one)
        planes.append(torch.from_numpy(fitted.embedding_))
        divergences.append(float(fitted.kl_divergence_))
        trusted.append(float(trustworthiness(one, fitted.embedding_, n_neighbors=neighbours)))
    return TSNE(
        coordinates=torch.stack(planes).view(*vectors.shape[:-1], 2),
        divergence=torch.tensor(divergences),
        trustworthiness=torch.tensor(trusted),
    )
