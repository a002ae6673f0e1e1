"""Compiled models: decoders with exact weights for a task, the truth about their units, and ids to hand them out."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anchorlab.errors import SpecError
from anchorlab.models import DecoderSpec
from anchorlab.rng import generator, torch_generator
from anchorlab.runs.atomic_files import write_file
from anchorlab.spec import check_known, unknown_name
from anchorlab.tasks import Task
from anchorlab.theory.compiled import assemble
from anchorlab.training.ensemble import Ensemble, without_weights
from anchorlab.training.executions import member_module
from anchorlab.training.saved_model import save_model
from anchorlab.truth.circuits import Truth, truth_of
from anchorlab.truth.programs import PROGRAMS
from anchorlab.truth.rotated import rotated as hidden
from anchorlab.truth.variants import SELECTIVE, VARIANTS

COMPILED = tuple(PROGRAMS)
"""The names of the compiled models."""

MODELS = tuple(f"{name}/{variant}" for name in COMPILED for variant in SELECTIVE)
"""The models that are handed out to be ranked, each as `name/variant`."""

SHARPNESS, GAP = 25.0, 15.0
"""The margin of attention scores, so large that exp(-25) vanishes next to 1 in float32, and the gap of logits."""

SOFT = 8.0
"""A sharpness at which attention has a gradient; every answer stays right."""

TRUTH = "truth.json"
_SHOWN = 60  # characters of an unknown name


@dataclass(frozen=True, eq=False)
class Compiled:
    """A decoder with exact weights, and the truth about it.

    Fields
        name, variant, rotated, seed: as given to `compiled`
        task: the task that it solves
        ensemble: the model, as an ensemble of one member
        truth: the model's units and the sets of them that suffice
    """

    name: str
    variant: str
    rotated: bool
    seed: int
    task: Task
    ensemble: Ensemble
    truth: Truth

    def __repr__(self) -> str:
        basis = f", rotated by seed {self.seed}" if self.rotated else ""
        units = ", ".join(f"{one.name} {one.job}" for one in self.truth.units if one.job is not None)
        return f"Compiled {self.name}, {self.variant}{basis}: {units}"

    @property
    def model(self) -> nn.Module:
        """The model as a module in evaluation mode."""
        return member_module(self.ensemble, 0).eval()

    def write(self, folder: Path | str, overwrite: bool = False) -> Path:
        """Write `model.safetensors`, `model.json` and `truth.json` to a folder, and return the folder.

        `al.load_pretrained` opens the model; `Truth.parse` reads the truth.

        Errors: `SpecError` for a folder that holds a saved model, unless `overwrite`.
        """
        origin: dict[str, Any] = {name: getattr(self, name) for name in ("name", "variant", "rotated", "seed")}
        origin["task"] = self.task.model_dump(mode="json")
        assert self.ensemble.spec is not None
        folder = save_model(self.model, folder, self.ensemble.spec, self.task.shape, origin, overwrite)
        write_file(folder, TRUTH, [(json.dumps(self.truth.model_dump(mode="json"), indent=1) + "\n").encode()])
        return folder


def compiled(
    name: str, variant: str = "plain", *, rotated: bool = False, seed: int = 0, sharpness: float = SHARPNESS
) -> Compiled:
    """Return a model whose weights are written by hand and whose circuit is therefore known.

        made = compiled("identity", "backup", rotated=True)
        made.truth.minimal  # (("0.0", "1.0"), ("0.1", "1.0"))
        al.look(made.ensemble, made.task.sample("test", 100, seed=0))

    It answers every sequence of its task correctly: the logit of the answer is 15, or 30 if two heads write the answer,
    and all other logits are 0.

    Args:
        name: a name of `COMPILED`
        variant: a name of `VARIANTS`, which all compute the same

            | | |
            |---|---|
            | `plain` | one head in each layer |
            | `backup` | a second head does the same as one of the heads, and either suffices |
            | `distractor` | a head attends like the answer head, and writes where nothing reads |
            | `cancelling` | two heads write wrong answers that add up to zero |
        rotated: whether to put the stream and the inside of each head in a random basis, and to add noise with the norm
            of the signal in directions that nothing reads
        seed: decides the basis and the noise
        sharpness: the margin between the score of the key that a head finds and every other score. With 25 all
            attention is one-hot in float32, and scores have no gradient; with 8, accuracy is still 1

    Errors: `SpecError` for an unknown name or variant, and a sharpness that is not positive and finite.
    """
    if not 0 < sharpness < float("inf"):
        raise SpecError("sharpness", f"{sharpness} is no margin", "give a positive number, 8 or more for right answers")
    check_known("name", name, PROGRAMS, "compiled model")
    check_known("variant", variant, VARIANTS, "variant")
    program = VARIANTS[variant](PROGRAMS[name]())
    spec, weights = assemble(program, sharpness, GAP)
    truth = truth_of(program, spec.heads)
    if rotated:
        spec, weights = hidden(spec, weights, torch_generator(seed, "rotation", name, variant))
    template = without_weights(spec.build(program.task.shape))
    stacked = {key: value.float().unsqueeze(0) for key, value in weights.items()}
    return Compiled(
        name, variant, rotated, seed, program.task, Ensemble(template, stacked, tuple(stacked), spec), truth
    )


def reordered(made: Compiled, generator: torch.Generator) -> Compiled:
    """Return the same model with the heads of each layer in random order, in its weights and in its truth.

    Without this, the first head of every layer is in a minimal set, and all other heads are added by a variant or idle.
    """
    spec, weights, names = made.ensemble.spec, dict(made.ensemble.weights), dict[str, str]()
    assert isinstance(spec, DecoderSpec)
    for layer in range(spec.layers):
        order = torch.randperm(spec.heads, generator=generator)
        names |= {f"{layer}.{old}": f"{layer}.{new}" for new, old in enumerate(order.tolist())}
        columns = torch.arange(spec.heads * spec.head_width).reshape(spec.heads, -1)[order].flatten()
        for role in "QKVO":
            name = f"blocks.{layer}.attn.W_{role}"
            weights[name] = weights[name].index_select(1 if role == "O" else 2, columns)  # axis 0 is the member
    old = made.truth
    moved = {names.get(unit.name, unit.name): unit for unit in old.units}
    units = tuple(moved[unit.name].replace(name=unit.name) for unit in old.units)
    minimal = (tuple(sorted(names.get(name, name) for name in one)) for one in old.minimal)
    cancelling = tuple((names[first], names[second]) for first, second in old.cancelling)
    truth = old.replace(units=units, minimal=tuple(sorted(minimal)), cancelling=cancelling)
    return dataclasses.replace(made, ensemble=dataclasses.replace(made.ensemble, weights=weights), truth=truth)


def chosen(pattern: str) -> tuple[str, ...]:
    """Return the models that a pattern such as `*`, `identity/*`, `*/backup` or `identity` matches.

    A name without a variant means all variants of it.

    Errors: `SpecError` for a pattern that matches none, and for plain models.
    """
    whole = pattern if "/" in pattern or pattern == "*" else f"{pattern}/*"
    if whole.endswith("/plain"):
        raise SpecError("models", "plain ones need all of their units", f"choose among {', '.join(SELECTIVE)}")
    found = tuple(model for model in MODELS if fnmatchcase(model, whole))
    if not found:
        raise unknown_name("models", pattern[:_SHOWN], (*COMPILED, *MODELS), "compiled model to rank")
    return found


def handed_out(pattern: str = "*", *, rotated: bool = True, seed: int = 0) -> Iterator[tuple[str, Compiled]]:
    """Yield the id and the model of every model that matches a pattern, by name, then by id.

    An id is the name and a number, such as `identity-2`. The seed decides which variant has which number, the order of
    the heads in each layer, the basis and the noise.

    Errors: as `chosen`.
    """
    found = chosen(pattern)
    for name in COMPILED:
        variants = generator(seed, "variants", name).permutation(SELECTIVE).tolist()
        for number, variant in enumerate(variants, start=1):
            if f"{name}/{variant}" in found:
                made = compiled(name, variant, rotated=rotated, seed=seed, sharpness=SOFT)
                yield f"{name}-{number}", reordered(made, torch_generator(seed, "heads", name, variant))
