"""The landscape of some units on given sequences: of a pretrained model on texts, or of one's own module."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace as dataclass_replace
from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from anchorlab.errors import SpecError
from anchorlab.lens.effects.effects import check_targets
from anchorlab.lens.landscape.landscape import Landscape, Replacement, checked_finite
from anchorlab.lens.landscape.units import MOST
from anchorlab.lens.look import AnyInputs, AnyModel, AnyPositions, Intervention, Subject, look_at
from anchorlab.lens.look.first_sequence import check_read
from anchorlab.lens.look.inputs import as_list
from anchorlab.models.cpu import fast_float32
from anchorlab.models.input_checks import check_range
from anchorlab.models.precision import at_least_float32
from anchorlab.models.stack import Stack
from anchorlab.progress import Counted, counted
from anchorlab.rng import child_seed
from anchorlab.spec import check_known

_UNIT = re.compile(r"(\d+)\.(\d+|mlp)")


def landscape_on(
    model: AnyModel,
    inputs: AnyInputs,
    targets: Int[Tensor, "batch scored"],
    units: Sequence[str],
    replace: Replacement = "mean",
    *,
    positions: AnyPositions | None = None,
    axes: Mapping[str, tuple[str, ...]] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    progress: Counted = None,
) -> Landscape:
    """Measure the loss and the accuracy with every subset of some units, on given sequences and their targets.

        texts = model.tokenise([...])  # of any lengths
        landscape_on(model, texts, targets, ["3.1", "5.2", "7.mlp"]).minimal(0.1)
        landscape_on(module, inputs, targets, ["encoder.0", "encoder.1"])  # submodules of one's own

    Each subset is a pass over all sequences. For transformers of this package on sequences of a task, `landscape` is
    faster.

    Args:
        targets: `[batch scored]`, the right tokens; the loss is the cross-entropy, in nats.
        units: heads such as `3.1` and feed-forward layers such as `3.mlp` of a transformer or a pretrained model, or
            sites of any model.
        replace: `mean`, the unit's mean at the same position, over the sequences that have a token there; `resample`,
            its value in another sequence; or `zero`.
        positions: the scored positions, `[scored]` or `[batch scored]`; None: the last of each sequence.
        seed: the seed of resampling.
        progress: as in `effects`, counted in subsets.

    Other arguments: as in `look`.
    """
    subject = Subject.of(model, inputs, positions, axes)
    names = tuple(as_list(units, str, "units", "give names"))
    check_known("replace", replace, get_args(Replacement), "replacement")
    if not names or len(set(names)) < len(names):
        raise SpecError("units", f"{list(names)} are none, or some twice", "name each once")
    if len(names) > MOST:
        raise SpecError("units", f"{len(names)} have too many subsets", f"name {MOST} or fewer")
    changes = [_without(name, at, subject, replace, seed) for at, name in enumerate(names)]
    subject = dataclass_replace(subject, positions=subject.scored)
    if isinstance(targets, Tensor) and targets.is_floating_point():
        raise SpecError("targets", "are no tokens", "give integers, the right token at each scored position")
    check_targets(targets, subject)
    check_read(subject, {f"units.{at}": change.site for at, change in enumerate(changes)})
    found = torch.zeros(2, subject.ensemble.size, 2 ** len(names), dtype=torch.float64)
    with fast_float32(), counted("measuring subsets", progress) as tell:
        for subset in range(found.shape[-1]):
            removed = [change for at, change in enumerate(changes) if not subset >> at & 1]
            output = look_at(subject, interventions=removed, batch_size=batch_size)["output"]
            for member, of_member in enumerate(output):
                found[:, member, subset] = _scores(of_member, targets.to(output.device))
            tell(subset + 1, found.shape[-1])
    loss, accuracy = found
    return Landscape(names, checked_finite(loss), accuracy, replace)


def _without(name: str, at: int, subject: Subject, rule: Replacement, seed: int) -> Intervention:
    """Return the intervention that replaces a unit."""
    split, where = _UNIT.fullmatch(name), {}
    site = name
    if split and isinstance(subject.ensemble.template, Stack):
        layer, head = split.groups()
        site = f"blocks.{layer}.hook_mlp_out" if head == "mlp" else f"blocks.{layer}.attn.hook_z"
        where = {} if head == "mlp" else {"head": int(head)}
    subject.access.resolve(site, f"units.{at}")
    drawn = child_seed(seed, name) if rule == "resample" else None
    return Intervention(site=site, where=where, rule=rule, seed=drawn, may_do_nothing=True)


def _scores(output: Float[Tensor, "batch scored output"], targets: Int[Tensor, "batch scored"]) -> Float[Tensor, "2"]:
    check_range(targets, output.shape[-1], "targets", "a token", "give tokens that the model predicts")
    loss = cross_entropy(at_least_float32(output).flatten(0, 1), targets.flatten())
    return torch.stack([loss.double(), (output.argmax(dim=-1) == targets).double().mean()]).cpu()
