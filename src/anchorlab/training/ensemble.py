"""Ensembles: members of one architecture, held as stacked parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.models import ModelSpec
from anchorlab.models.initialisation import gamma_factor, weight_group
from anchorlab.models.model import Model
from anchorlab.rng import child_seed, torch_generator
from anchorlab.training.recipe import Gamma


@dataclass(frozen=True)
class Ensemble:
    """Members of one architecture that differ in their weights alone.

    `weights` holds every parameter and buffer by its name in the module, stacked as `[member ...]`; `template` is a
    module of the same architecture whose own weights mean nothing; `trainable` names the weights that training changes.
    """

    template: nn.Module
    weights: Mapping[str, Tensor]
    trainable: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of members."""
        return int(next(iter(self.weights.values())).shape[0])

    @property
    def parameter_count(self) -> int:
        """Trainable numbers of one member."""
        return sum(self.weights[name][0].numel() for name in self.trainable)

    def member_weights(self, member: int) -> dict[str, Tensor]:
        """One member's weights, as views of the stack."""
        return {name: value[member] for name, value in self.weights.items()}

    def select(self, members: Sequence[int]) -> "Ensemble":
        """The ensemble of some members, in the order given."""
        index = torch.as_tensor(list(members), dtype=torch.int64)
        return self.with_weights({name: value[index] for name, value in self.weights.items()})

    def with_weights(self, weights: Mapping[str, Tensor]) -> "Ensemble":
        """The same architecture with other weights, such as edited ones."""
        return Ensemble(self.template, weights, self.trainable)

    def to(self, device: str | torch.device) -> "Ensemble":
        """A copy on another device."""
        return Ensemble(self.template, {k: v.to(device) for k, v in self.weights.items()}, self.trainable)


def initialise(
    spec: ModelSpec,
    shape: TaskShape,
    seeds: Sequence[int],
    dtype: torch.dtype = torch.float32,
    scales: Sequence[float] | None = None,
    gamma: Gamma | None = None,
) -> Ensemble:
    """An ensemble with one freshly drawn member per initialisation seed.

    `scales` multiplies every trainable weight matrix of a member, `gamma` gives its matrices another initialisation
    rate than 0.5 (see `check_gamma`). A module without `initialise(generator)` (a user's
    own) is built under torch's generator, seeded for the purpose and put back afterwards.
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
            block = weight_group(name)
            if gamma is not None and gamma.given and block is not None:
                weights[name][index] *= gamma_factor(value.shape[0], gamma.of(block, index))
    return Ensemble(template, weights, trainable)


def check_gamma(gamma: Gamma, spec: ModelSpec, template: nn.Module) -> None:
    """`SpecError` below `members.gamma` where a model is not drawn normally, or has no block of a type named there."""
    if not gamma.given:
        return
    if getattr(spec, "initialisation", None) != "normal":
        if "initialisation" in type(spec).model_fields:
            raise SpecError("members.gamma", "the model is not drawn normally", "set model.initialisation to normal")
        raise SpecError("members.gamma", f"a {spec.kind!r} model has no normal initialisation", "leave it out")
    known = {weight_group(name) for name, _ in template.named_parameters()} - {None}
    for block in gamma.given:
        if block != "all" and block not in known:
            remedy = f"known: {', '.join(sorted(map(str, known)))}"
            raise SpecError(f"members.gamma.{block}", f"a {spec.kind!r} model has no such weights", remedy)


def build(spec: ModelSpec, shape: TaskShape, seed: int = 0) -> nn.Module:
    """A module of the architecture; what a user's own draws from torch's generator begins at `seed`.

    The generator is put back afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return spec.build(shape)


def _named(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]
