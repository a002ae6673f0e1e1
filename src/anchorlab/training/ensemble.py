"""Ensembles: members of one architecture, with stacked weights."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from anchorlab.axes import TaskShape
from anchorlab.drawable import Drawable
from anchorlab.errors import SpecError
from anchorlab.models import ModelSpec
from anchorlab.models.gpu import existing_device
from anchorlab.models.initialisation import gamma_factor, size_of, weight_group
from anchorlab.models.input_checks import readable
from anchorlab.models.model import Model, predict
from anchorlab.rng import child_seed, torch_generator
from anchorlab.training.members import Gamma


@dataclass(frozen=True, repr=False)
class Ensemble(Drawable):
    """Members of one architecture that differ only in their weights.

        ensemble(tokens)  # [member batch position output]

    Fields
        template: a module of the architecture; if `initialise` built it, its own weights have no values
        weights: every parameter and buffer by its name in the module, stacked `[member ...]`
        trainable: the names of the weights that training changes
        spec: the specification of the architecture; None for a module without one
    """

    template: nn.Module
    weights: Mapping[str, Shaped[Tensor, "member ..."]]
    trainable: tuple[str, ...]
    spec: ModelSpec | None = None

    def __call__(
        self, inputs: Shaped[Tensor, "..."], positions: Int[Tensor, "*batch scored"] | None = None
    ) -> Float[Tensor, "member batch scored output"]:
        """Return every member's predictions at `positions`, or everywhere when None.

        Args:
            inputs: `[batch position]` token ids, or `[batch position feature]` vectors
            positions: `[scored]` or `[batch scored]`

        Errors: `SpecError` for inputs that the model cannot read.
        """
        if isinstance(self.template, Model):
            inputs = readable(inputs, self.template)
        members = range(self.size)
        return torch.stack([predict(self.template, inputs, positions, self.member_weights(one)) for one in members])

    def __repr__(self) -> str:
        shown = type(self.template).__name__ if self.spec is None else repr(self.spec)
        first = next(iter(self.weights.values()), None)
        kind = "" if first is None else f", {str(first.dtype).removeprefix('torch.')} on {first.device}"
        members = f"{self.size} member{'s' if self.size != 1 else ''}"
        return f"Ensemble of {members}: {shown}\n{self.parameter_count:,} trainable parameters each{kind}"

    @property
    def size(self) -> int:
        """The number of members; a module without weights counts as one."""
        return next((len(value) for value in self.weights.values()), 1)

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters of one member."""
        return sum(self.weights[name][0].numel() for name in self.trainable)

    def member_weights(self, member: int) -> dict[str, Shaped[Tensor, "..."]]:
        """Return one member's weights, without the member axis, as views of the stack."""
        return {name: value[member] for name, value in self.weights.items()}

    def select(self, members: Sequence[int]) -> "Ensemble":
        """Return an ensemble of the given members, in that order, with copied weights."""
        index = torch.as_tensor(list(members), dtype=torch.int64)
        return self.with_weights({name: value[index] for name, value in self.weights.items()})

    def with_weights(self, weights: Mapping[str, Shaped[Tensor, "member ..."]]) -> "Ensemble":
        """Return an ensemble of the same architecture with other weights."""
        return replace(self, weights=weights)

    def to(self, device: str | torch.device) -> "Ensemble":
        """Return a copy on another device. Errors: `SpecError` for a device that does not exist."""
        place = existing_device(device)
        return self.with_weights({name: value.to(place) for name, value in self.weights.items()})


def initialise(
    spec: ModelSpec,
    shape: TaskShape,
    seeds: Sequence[int],
    dtype: torch.dtype = torch.float32,
    scales: Sequence[float] | None = None,
    gamma: Gamma | None = None,
) -> Ensemble:
    """Draw an ensemble, one member per initialisation seed.

    A module without `initialise(generator)`, such as a user's own, is built with torch's global generator set to the
    member's seed; the generator is restored afterwards.

    Args:
        spec: the architecture
        shape: the task's inputs and outputs
        seeds: one initialisation seed per member
        dtype: the precision of the weights
        scales: one factor per member, for its trainable weight matrices
        gamma: initialisation rates γ other than 0.5, for models that are drawn at a rate (see `check_gamma`)

    Returns: an ensemble of `len(seeds)` members on the CPU.
    """
    template = build(spec, shape, 0)
    trainable = tuple(name for name, value in template.named_parameters() if value.requires_grad)
    weights: dict[str, Tensor] = {}
    for index, seed in enumerate(seeds):
        module = template
        if isinstance(template, Model):
            template.initialise(torch_generator(seed, "initialisation"))
        else:
            module = build(spec, shape, child_seed(seed, "initialisation"))
        for name, value in _named(module):
            if name not in weights:
                kind = dtype if value.is_floating_point() else value.dtype
                weights[name] = torch.empty(len(seeds), *value.shape, dtype=kind)
            weights[name][index] = value.detach()
            if scales is not None and name in trainable and value.ndim >= 2:
                weights[name][index] *= scales[index]
            group = weight_group(name)
            if gamma is not None and gamma.given and group is not None:
                weights[name][index] *= gamma_factor(size_of(name, value.shape), gamma.of(group, index))
    return Ensemble(without_weights(template), weights, trainable, spec)


def check_gamma(gamma: Gamma, spec: ModelSpec, template: nn.Module) -> None:
    """Raise `SpecError` below `members.gamma` if the model is not drawn at a rate γ, or lacks a named weight group."""
    if not gamma.given:
        return
    if getattr(spec, "initialisation", None) != "gamma":
        if "initialisation" in type(spec).model_fields:
            raise SpecError("members.gamma", "the initialisation has no rate", "set model.initialisation to gamma")
        raise SpecError("members.gamma", f"a {spec.kind!r} model is not drawn at a rate", "leave it out")
    known = {weight_group(name) for name, _ in template.named_parameters()} - {None}
    for group in gamma.given:
        if group != "all" and group not in known:
            remedy = f"known: {', '.join(sorted(map(str, known)))}"
            raise SpecError(f"members.gamma.{group}", f"a {spec.kind!r} model has no such weights", remedy)


def build(spec: ModelSpec, shape: TaskShape, seed: int = 0) -> nn.Module:
    """Build a module of the architecture with torch's global generator set to `seed`, then restore the generator."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return spec.build(shape)


def _named(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def without_weights(module: nn.Module) -> nn.Module:
    """Return a copy of a module whose weights have no values; calling it directly raises `SpecError`.

    Leftover random weights would give outputs that look like a model's. Ties between weights are kept.
    """
    bare = copy.deepcopy(module, {id(value): _bare(value) for _, value in _named(module)})
    bare.register_forward_pre_hook(refuse_without_weights)
    return bare


def _bare(value: Tensor) -> Tensor:
    bare = torch.empty_like(value, device="meta")
    return nn.Parameter(bare, value.requires_grad) if isinstance(value, nn.Parameter) else bare


def refuse_without_weights(module: nn.Module, arguments: Any) -> None:
    """Raise `SpecError` if a template is called directly, without a member's weights through `functional_call`."""
    first = next(module.parameters(), None)
    if first is not None and first.is_meta:
        raise SpecError("template", "has no weights", "call the ensemble, or run.model(seed) for one member")
