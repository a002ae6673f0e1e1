"""Attribution patching at any site: the effect of every patch, estimated from one gradient."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens.effects.effects import place_sizes
from anchorlab.lens.effects.pairs import Into, Pairs, logit_difference
from anchorlab.lens.effects.patching import Patching
from anchorlab.lens.look import AnyInputs, AnyModel, AnyPositions, Intervention, Record, look_at
from anchorlab.lens.look.access import evaluating
from anchorlab.lens.look.first_sequence import check_read, sequences_at_a_time
from anchorlab.lens.look.inputs import Subject, as_list, row_ranges
from anchorlab.models.cpu import fast_float32
from anchorlab.models.model import gather_positions
from anchorlab.progress import Counted, counted


def estimate_patches(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    site: str = "blocks.*.attn.hook_z",
    over: str | Sequence[str] = ("head", "position"),
    into: Into = "corrupted",
    positions: AnyPositions | None = None,
    axes: Mapping[str, tuple[str, ...]] | None = None,
    batch_size: int | None = None,
    progress: Counted = None,
) -> Patching:
    """Estimate the effects that `patch` measures, at all places at once, from one gradient of the logit difference.

        estimate_patches(model, clean, corrupted, over=("head", "position")).recovered  # heads at positions
        estimate_patches(model, clean, corrupted, site="blocks.*.mlp.hook_post", over="hidden").difference  # neurons

    In the run that receives values, the estimate for a place is (other run's value - own value) . gradient of the logit
    difference. It is exact where the logit difference is linear in the value; saturated attention and norms make it
    wrong, so check the largest estimates with `patch`. All places share both runs and one backward pass. Estimates add
    up: the estimated change of `difference` for a group of neurons is the sum of their changes.

    Args: as in `patch`; `progress` counts sequences.
    Source: Nanda, 2023, "Attribution patching".
    """
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into, axes)
    base, over = pairs.base, as_list(over, str, "over", "give names of axes")
    sites = tuple(base.access.resolve(site, "site"))
    check_read(base, {f"site {name}": name for name in sites})
    sizes = place_sizes(base, sites, Intervention(site=site, rule="patch"), over)
    first, members, batch = look_at(base.first(), sites, output=False), base.ensemble.size, len(base.inputs)
    size = sequences_at_a_time(base, given=batch_size, kept=sites, copies=3)
    changes = torch.zeros(members, len(sites), *sizes, dtype=torch.float64)
    plain = torch.zeros(members, dtype=torch.float64)
    with fast_float32(), counted("estimating patches", progress) as tell:
        for member in range(members):
            for done, rows in enumerate(row_ranges(range(batch), size)):
                whole, values, gradients = _gradients(pairs, member, rows, sites)
                others = _values(pairs.source, member, rows, sites)
                plain[member] += whole
                for at, name in enumerate(sites):
                    product = (others[name] - values[name]) * gradients[name]
                    changes[member, at] += _summed(product, first, name, over)
                tell(member * batch + min((done + 1) * size, batch), members * batch)
    ends = pairs.ends(plain, batch_size)
    return Patching(sites, tuple(over), *ends, plain.reshape(-1, *(1,) * (changes.ndim - 1)) + changes)


def _gradients(
    pairs: Pairs, member: int, rows: range, sites: Sequence[str]
) -> tuple[float, dict[str, Tensor], dict[str, Tensor]]:
    """Return some sequences' part of a member's logit difference, the values at sites, and its gradients there."""
    subject, found, leaves = pairs.base, {}, {}
    weights = subject.ensemble.member_weights(member)
    inputs, places = subject.rows(rows, weights)

    def visit(site: str, value: Tensor) -> Tensor:
        found[site] = value.detach()
        leaves[site] = torch.zeros_like(value, requires_grad=True)
        return value + leaves[site]

    with evaluating(subject.access.module), torch.enable_grad():
        narrow = places if subject.access.hands_on_positions(sites) else None
        output = subject.access.run(weights, inputs, sites, visit, narrow)
        output = output if narrow is not None else gather_positions(output, places)
        answers = pairs.answers[rows.start : rows.stop].to(output.device)
        difference = logit_difference(output, answers).double().sum() / pairs.answers[..., 0].numel()
        gradients = torch.autograd.grad(difference, [leaves[site] for site in sites], materialize_grads=True)
    return float(difference.detach()), found, dict(zip(sites, gradients, strict=True))


def _values(subject: Subject, member: int, rows: range, sites: Sequence[str]) -> dict[str, Tensor]:
    found = {}

    def visit(site: str, value: Tensor) -> Tensor:
        found[site] = value
        return value

    weights = subject.ensemble.member_weights(member)
    inputs, _ = subject.rows(rows, weights)
    with evaluating(subject.access.module):
        subject.access.run(weights, inputs, sites, visit, subject.access.least_positions(sites, inputs))
    return found


def _summed(product: Float[Tensor, "batch *axis"], first: Record, site: str, over: Sequence[str]) -> Tensor:
    """Sum a product over all axes of a site except those in `over`; return these in the order of `over`."""
    axes = first.axes(site)[1:]  # without `member`
    summed = product.double().sum(dim=[at for at, axis in enumerate(axes) if axis not in over])
    left = [axis for axis in axes if axis in over]
    return summed.permute([left.index(axis) for axis in over]).cpu()
