"""The logit lens: apply a model's last norm and output map to vectors from any depth of the stream."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from anchorlab.errors import SpecError
from anchorlab.lens.look.access import Access
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions, as_ensemble, as_positions, as_sequences
from anchorlab.lens.look.look import look
from anchorlab.lens.vectors.attribution import stack
from anchorlab.models.model import gather_positions
from anchorlab.models.sites import identity_tap


def unembed(model: AnyModel, vectors: Float[Tensor, "*row width"]) -> Float[Tensor, "*rows output"]:
    """Return the logits of vectors as if they were the final stream, `[member ... output]`.

    Each member's last layer norm is applied, if it has one, and its output map with bias. Without an output map,
    the result is the vectors after the norm. `vectors` are `[member ... width]`, such as a recorded site, or one vector
    for all members, `[width]`. For the streams of the model's own blocks see `logit_lens`.

    Errors: `SpecError` for a model that is neither a transformer nor a pretrained model, and for vectors that do not
    fit it.
    Source: anchor functions, appendix B.5, Fig 27.
    """
    ensemble = as_ensemble(model)
    template = stack(ensemble)
    width = ensemble.weights["embed.W_E"].shape[-1]
    if vectors.ndim == 1:
        vectors = vectors.expand(ensemble.size, -1)
    if len(vectors) != ensemble.size or vectors.shape[-1] != width:
        problem = f"have shape {tuple(vectors.shape)}, but {ensemble.size} members have a stream of width {width}"
        raise SpecError(
            "vectors", problem, f"give shape ({ensemble.size}, ..., {width}), or ({width},) for all members"
        )
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
    model: AnyModel,
    inputs: AnyInputs,
    positions: AnyPositions | None = None,
    batch_size: int = 512,
) -> Float[Tensor, "member depth batch scored output"]:
    """Return the logits of the residual stream before each block, and the model's own logits as the last `depth`.

    The last layer norm is applied at each depth, with the scale of the stream at that depth.

    Args:
        model: as in `look`.
        inputs: as in `look`.
        positions: the scored positions, `[scored]` or `[batch scored]`; None: all.
        batch_size: how many sequences run at a time.

    Errors: `SpecError` for a model that is neither a transformer nor a pretrained model.
    """
    ensemble = as_ensemble(model)
    sites = [f"{block.name}.hook_resid_pre" for block in stack(ensemble).blocks]
    inputs = as_sequences(inputs, Access(ensemble.template))
    positions = as_positions(range(inputs.shape[1]) if positions is None else positions, inputs)
    record = look(ensemble, inputs, sites, positions=positions, batch_size=batch_size)
    streams = [[gather_positions(of_member, positions) for of_member in record[site]] for site in sites]
    early = unembed(ensemble, torch.stack([torch.stack(stream) for stream in streams], dim=1))
    return torch.cat([early, record["output"].unsqueeze(1)], dim=1)


def _part(weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}
