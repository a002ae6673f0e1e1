"""Compiled models: decoders with exact weights for a task, and the truth about their units."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from anchorlab.rng import torch_generator
from anchorlab.runs.atomic_files import write_file
from anchorlab.spec import unknown_name
from anchorlab.tasks import Task, task
from anchorlab.theory.compiled.assemble import assemble
from anchorlab.theory.compiled.chains import chains
from anchorlab.theory.compiled.copying import address, next_token
from anchorlab.theory.compiled.matching import induction
from anchorlab.theory.compiled.program import Program
from anchorlab.theory.compiled.rotated import rotated as hidden
from anchorlab.theory.compiled.sums import addition
from anchorlab.theory.compiled.truth import Truth, truth_of
from anchorlab.theory.compiled.variants import VARIANTS
from anchorlab.training.ensemble import Ensemble, without_weights
from anchorlab.training.executions import member_module
from anchorlab.training.saved_model import save_model

SHARPNESS, GAP = 25.0, 15.0
"""exp(-25) is 1e-11, so that all other keys together get less than float32 resolves next to 1; the logit gap."""

SOFT = 8.0
"""A sharpness at which attention has a gradient; every answer stays right."""

TRUTH = "truth.json"


@dataclass(frozen=True, eq=False)
class Compiled:
    """A decoder with exact weights, and the truth about it.

    Fields
        name, variant, rotated, seed: as given to `compiled`
        task: the task that it solves
        ensemble: the model, as an ensemble of one member
        truth: its units and the sets of them that suffice
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

    It answers every sequence of its task: the logit of the answer is 15, or 30 if two heads bring it, and all others
    are 0.

    Args:
        name: a name of `COMPILED`
        variant: a name of `VARIANTS`, which all compute the same

            | | |
            |---|---|
            | `plain` | one head in each layer |
            | `backup` | a second head does the same as one of the heads, and either suffices |
            | `distractor` | a head attends like the answer head, and writes where nothing reads |
            | `cancelling` | two heads write wrong answers that add up to zero |
        rotated: put the stream, and the inside of each head, in a random basis, and add noise of equal norm in
            directions that nothing reads
        seed: decides the basis and the noise
        sharpness: how far the score of the key that a head finds is above every other. With 25 all attention is one-hot
            in float32, and scores have no gradient; with 8, accuracy is still 1

    Errors: `SpecError` for an unknown name or variant.
    """
    if name not in _MODELS:
        raise unknown_name("name", name, _MODELS, "compiled model")
    if variant not in VARIANTS:
        raise unknown_name("variant", variant, VARIANTS, "variant")
    program = VARIANTS[variant](_MODELS[name]())
    spec, weights = assemble(program, sharpness, GAP)
    truth = truth_of(program, spec.heads)
    if rotated:
        spec, weights = hidden(spec, weights, torch_generator(seed, "rotation", name, variant))
    template = without_weights(spec.build(program.task.shape))
    stacked = {key: value.float().unsqueeze(0) for key, value in weights.items()}
    return Compiled(
        name, variant, rotated, seed, program.task, Ensemble(template, stacked, tuple(stacked), spec), truth
    )


def _task(name: str, **choices: Any) -> Any:
    return task(name, **choices)


def _reading() -> Program:
    one = _task("anchor/reading-comprehension")
    (first, last), anchors = one.vocabulary.items, one.vocabulary.anchors
    return induction(one, anchors, range(first, last + 1))


def _induction() -> Program:
    one = _task("classics/repeated-sequence")
    return induction(one, range(one.vocabulary), range(one.vocabulary))


def _recall() -> Program:
    one = _task("classics/associative-recall")
    keys = range(1, one.vocabulary + 1)
    return induction(one, keys, range(keys.stop, keys.stop + one.vocabulary))


_MODELS: dict[str, Callable[[], Program]] = {
    "identity": lambda: next_token(_task("anchor/identity")),
    "two-distances": lambda: address(_task("anchor/two-distances")),
    "reading-comprehension": _reading,
    "induction": _induction,
    "recall": _recall,
    "composite": lambda: addition(_task("anchor/composite")),
    "synonym": lambda: addition(_task("anchor/synonym")),
    "multi-anchor": lambda: addition(_task("anchor/multi-anchor")),
    "retrieval": lambda: chains(_task("retrieval/tokens", symbols=24, implicit_curriculum=False)),
}

COMPILED = tuple(_MODELS)
"""The names of the compiled models."""
