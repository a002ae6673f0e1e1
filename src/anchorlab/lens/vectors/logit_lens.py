"""Through the unembedding: what any vectors of the stream would say if the model ended with them."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from anchorlab.errors import SpecError
from anchorlab.lens.look.look import as_ensemble, look
from anchorlab.lens.vectors.attribution import blocks, transformer
from anchorlab.models.model import gather_positions
from anchorlab.models.sites import identity_tap
from anchorlab.training.ensemble import Ensemble


def unembed(model: Ensemble | nn.Module, vectors: Float[Tensor, "*row width"]) -> Float[Tensor, "*rows output"]:
    """The logits that a model makes of vectors in place of its last stream (anchor functions, appendix B.5, Fig 27).

    Each member's own last layer norm, where it has one, then its output map with its bias; where there is no map, the
    vectors themselves. `vectors` are a recorded site, or a part of it, whose last axis is the stream's,
    `[member ... width]`, or one vector for all members, `[width]`. For the streams of a model's own blocks see
    `logit_lens`.

    Shapes
        result: `[member ... output]`
    Errors: `SpecError` for a model that is not one of this package's transformers, and for vectors that do not fit it.
    """
    ensemble = as_ensemble(model)
    template = transformer(ensemble)
    width = ensemble.weights["embed.W_E"].shape[-1]
    if vectors.ndim == 1:
        vectors = vectors.expand(ensemble.size, -1)
    if len(vectors) != ensemble.size or vectors.shape[-1] != width:
        problem = f"have shape {tuple(vectors.shape)}, the {ensemble.size} members a stream of width {width}"
        raise SpecError("vectors", problem, "give one axis for the members first, and one of that width last")
    logits = []
    for member in range(ensemble.size):
        weights = {name: value.to(vectors.device) for name, value in ensemble.member_weights(member).items()}
        rows = vectors[member].reshape(1, -1, width)
        with torch.no_grad():
            if template.ln_final is not None:
                rows = functional_call(template.ln_final, _part(weights, "ln_final"), (rows, identity_tap))
            if template.unembed is not None:
                rows = functional_call(template.unembed, _part(weights, "unembed"), (rows,))
        logits.append(rows.view(*vectors.shape[1:-1], -1))
    return torch.stack(logits)


def logit_lens(
    model: Ensemble | nn.Module,
    inputs: Tensor,
    positions: Int[Tensor, "*batch scored"] | None = None,
    batch_size: int = 512,
) -> Float[Tensor, "member depth batch scored output"]:
    """What the output map makes of the residual stream before each block; last in `depth`, the model's own logits.

    A last layer norm is applied each time, with the scale of the stream at hand. Without `positions`, everywhere.

    Errors: `SpecError` for a model that is not one of this package's transformers.
    """
    ensemble = as_ensemble(model)
    sites = [f"{block.name}.hook_resid_pre" for block in blocks(transformer(ensemble))]
    positions = torch.arange(inputs.shape[1]) if positions is None else positions
    record = look(ensemble, inputs, sites, positions=positions, batch_size=batch_size)
    streams = [[gather_positions(of_member, positions) for of_member in record[site]] for site in sites]
    early = unembed(ensemble, torch.stack([torch.stack(stream) for stream in streams], dim=1))
    return torch.cat([early, record["output"].unsqueeze(1)], dim=1)


def _part(weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}
