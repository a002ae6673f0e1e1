"""Experiments: a task, a model, a recipe and members, which together decide the result of training."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError, is_out_of_memory
from anchorlab.models import ModelSpec, parse_model
from anchorlab.models.edits import check_edits
from anchorlab.models.model import Model, accepts
from anchorlab.runs import Cell
from anchorlab.spec import check_known
from anchorlab.tasks import Task, parse_task
from anchorlab.tasks.metrics import Losses
from anchorlab.training.ensemble import Ensemble, build, check_gamma, initialise, without_weights
from anchorlab.training.members import Members
from anchorlab.training.own_loss import check_loss
from anchorlab.training.recipe import Recipe, Times

FORMAT = 1
"""The `format` in an experiment's JSON; raise it whenever the same specification would give other results."""

ARITHMETIC = "3"
"""Kept with every run; raise it whenever the same specification gives results that are equal only within rounding.

1: separate products of queries, keys and values. 2: one product where heads are narrow in a wide stream.
3: mapped members are updated by fused kernels, one row each.
"""


@dataclass(frozen=True)
class Experiment:
    """A task, a model, a recipe and members. Equal experiments have the same address and the same results.

    With `start`, each member continues from the final weights of the corresponding member of another experiment, with a
    new optimiser; its seed then decides only data and order. Without `trained`, no step is taken: the members keep
    their initial weights at all times of the recipe. `label` is a name for people and not part of the address. Times of
    the recipe that are `auto` become numbers.

    `after_step(step, members)` is called after each optimiser step, from 1, with the `Ensemble` in training, whose
    weights it may read, or change in place. No store keeps such an experiment.

    Errors: `SpecError` that names the field if the parts do not fit together.
    """

    task: Task
    model: ModelSpec
    recipe: Recipe
    members: Members
    label: str = dataclass_field(default="", compare=False)
    start: "Experiment | None" = None
    trained: bool = True
    after_step: Callable[[int, Ensemble], object] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "recipe", self.recipe.with_times())
        self._check_splits()
        self._check_data_sizes()
        self._check_stop()
        template = self.template
        check_gamma(self.members.gamma, self.model, template)
        self._check_positions(template)
        self._check_output(template)
        self._check_loss()
        self._check_start(template)
        for name, edits in self.recipe.evaluation.edits.items():
            check_edits(edits, dict(template.named_parameters()), at=f"recipe.evaluation.edits.{name}")

    def _check_splits(self) -> None:
        stop, known = self.recipe.stop, self.task.splits
        named = [("recipe.evaluation.splits", split) for split in self.recipe.evaluation.splits or ()]
        for field, split in named + ([("recipe.stop.split", stop.split)] if stop else []):
            check_known(field, split, known, "split")

    def _check_data_sizes(self) -> None:
        recipe, sizes = self.recipe, self.members.data_size
        if sizes is None:
            return
        field = "members.data_size"
        if recipe.data.kind == "stream":
            raise SpecError(field, "a stream has no size", "leave it out")
        if recipe.unit == "epochs" and len(set(sizes)) > 1:
            problem = "members of different sizes have epochs of different lengths"
            raise SpecError(field, problem, "count in steps, or train one experiment per size")
        if recipe.unit == "epochs" and sizes[0] != recipe.data.size:
            raise SpecError(field, "differs from recipe.data.size", "set recipe.data.size instead")
        for size in sizes:
            if size % recipe.batch:
                raise SpecError(field, f"{size} is not a multiple of the batch, {recipe.batch}", "use whole batches")

    def _check_start(self, template: nn.Module) -> None:
        """Raise `SpecError` unless `start` has as many members, with weights of the same names and shapes."""
        if self.start is None:
            return
        if len(self.start.members) != len(self.members):
            problem = f"has {len(self.start.members)} members, not {len(self.members)}"
            raise SpecError("start.members", problem, "give both as many seeds")
        if self.members.initialisation_scale is not None or self.members.gamma.given:
            raise SpecError("members", "changes initial weights, but these come from `start`", "change them in `start`")
        before = self.start.template
        ours, theirs = ({name: value.shape for name, value in one.state_dict().items()} for one in (template, before))
        for name in {**ours, **theirs}:
            if ours.get(name) != theirs.get(name):
                problem = (
                    f"ends with {name} of shape {_shape(theirs.get(name))}, this model has {_shape(ours.get(name))}"
                )
                raise SpecError("start.model", problem, "use the same model, on a task of the same size")

    def _check_stop(self) -> None:
        stop = self.recipe.stop
        if stop is None:
            return
        if stop.split not in self.splits:
            raise SpecError("recipe.stop.split", f"{stop.split!r} is not evaluated", "add it to evaluation.splits")
        check_known("recipe.stop.metric", stop.metric, self.metrics, "metric")
        if self.after_step is not None:
            raise SpecError("recipe.stop", "after_step would change members that have stopped", "leave out one of them")

    def _check_positions(self, template: nn.Module) -> None:
        if not getattr(template, "predicts_last_alone", False):
            return
        positions = self.task.for_training(self.task.sample(self.task.splits[0], 1, seed=0)).positions
        if positions.shape[-1] != 1 or (positions != self.task.shape.length - 1).any():
            problem = f"{self.model.kind!r} makes one prediction, at the last position; the task scores others"
            raise SpecError("model.kind", problem, "use 'decoder' or 'lstm'")

    def _check_output(self, template: nn.Module) -> None:
        """Raise `SpecError` if a user module's predictions lack the task's axes or width; ours are built with them."""
        if isinstance(template, Model):
            return
        template = build(self.model, self.task.shape)
        batch = self.task.for_training(self.task.sample(self.task.splits[0], 2, seed=0))
        narrow = accepts(template, "positions")
        template.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            output = template(batch.inputs, **({"positions": batch.positions} if narrow else {}))
        places = batch.positions.shape[-1] if narrow else self.task.shape.length
        wanted = len(batch), places, self.task.shape.output_size
        if not isinstance(output, torch.Tensor):
            problem = f"returns a {type(output).__name__}, not a tensor"
            raise SpecError("model", problem, f"return predictions of shape {wanted}")
        if tuple(output.shape) != wanted:
            axes = f"[batch {'scored' if narrow else 'position'} output]"
            problem = f"returns shape {tuple(output.shape)} for {len(batch)} sequences"
            raise SpecError("model", problem, f"return {axes}, here {wanted}")

    def _check_loss(self) -> None:
        if self.recipe.loss is None:
            return
        batch = self.task.for_training(self.task.sample(self.task.splits[0], 2, seed=0))
        shape = *batch.targets.shape[:2], self.task.shape.output_size
        check_loss(self.recipe.loss, torch.randn(shape, generator=torch.Generator().manual_seed(0)), batch.targets)

    @property
    def losses(self) -> Losses:
        """The loss at each scored position that training minimises: the recipe's, or else the task's."""
        return self.task.losses if self.recipe.loss is None else self.recipe.loss

    @property
    def not_storable(self) -> str | None:
        """The part that keeps the experiment, or what it starts from, out of any store; None if a store can keep it."""
        if self.after_step is not None:
            return "after_step"
        if self.recipe.loss is not None and not self.recipe.loss.registered:
            return "a loss that is not registered"
        return None if self.start is None else self.start.not_storable

    @property
    def template(self) -> nn.Module:
        """A module of the architecture without weights, shared by all experiments with this architecture."""
        return template_of(self.model, self.task.shape)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that are evaluated."""
        return self.recipe.evaluation.splits or self.task.splits

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics that are evaluated."""
        batch = self.task.sample(self.splits[0], 1, seed=0)
        outputs = torch.zeros(*batch.targets.shape[:2], self.task.shape.output_size)
        own = () if self.recipe.loss is None else ("objective",)
        return ("loss", *own, *self.task.metrics(outputs, batch))

    @property
    def steps(self) -> int:
        """The number of optimiser steps."""
        return self.recipe.duration * self.steps_per_unit

    @property
    def member_steps(self) -> int:
        """The number of optimiser steps, summed over members."""
        return self.steps * len(self.members)

    @property
    def steps_per_unit(self) -> int:
        """The number of optimiser steps in one unit of the recipe's time."""
        data = self.recipe.data
        return 1 if data.kind == "stream" else self.recipe.steps_per_unit(data.size)

    def steps_at(self, times: Times) -> list[int]:
        """Return the optimiser steps at which `times` is due, ascending, including the end of training."""
        unit = self.steps_per_unit
        return [unit * time for time in range(self.recipe.duration) if times.due(time)] + [self.steps]

    def initial_ensemble(self) -> Ensemble:
        """Return the members before any training, on the CPU; with `start`, the initial members of `start`."""
        members = self.members
        drawn = initialise(
            self.model,
            self.task.shape,
            [members.stream("initialisation", index) for index in range(len(members))],
            torch.float64 if self.recipe.precision == "float64" else torch.float32,
            members.initialisation_scale,
            members.gamma,
        )
        if self.start is None:
            return drawn
        first = self.start.initial_ensemble().weights
        return drawn.with_weights({name: first[name].to(value.dtype) for name, value in drawn.weights.items()})

    @cached_property
    def cell(self) -> Cell:
        """The cell that addresses the run in a store."""
        return Cell(self.to_json(), label=self.label or self.task.name or self.task.family)

    def to_json(self) -> dict[str, Any]:
        """Return the experiment as plain JSON data, without its label; different each time if no store can keep it."""
        return {
            "format": FORMAT,
            **({} if self.not_storable is None else {"not_stored": secrets.token_hex(8)}),
            **({} if self.start is None else {"start": self.start.to_json()}),
            **({} if self.trained else {"trained": False}),
            "task": self.task.model_dump(mode="json"),
            "model": self.model.model_dump(mode="json"),
            "recipe": self.recipe.model_dump(mode="json"),
            "members": self.members.model_dump(mode="json"),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], label: str = "") -> "Experiment":
        """Rebuild the experiment from the output of `to_json`.

        Errors: `SpecError` that names the field, also for another version of the format.
        """
        if data.get("format") != FORMAT:
            raise SpecError("format", f"is {data.get('format')!r}, this version reads {FORMAT}", "train it again")
        if "not_stored" in data:
            raise SpecError("spec", "is of a run that no store keeps", "use what al.train returned")
        for name in ("task", "model", "recipe", "members"):
            if not isinstance(data.get(name), dict):
                raise SpecError(name, "is missing", "remove the run and train it again")
        return cls(
            parse_task(data["task"]),
            parse_model(data["model"]),
            Recipe.parse(data["recipe"], "recipe"),
            Members.parse(data["members"], "members"),
            label,
            cls.from_json(data["start"]) if "start" in data else None,
            data.get("trained", True),
        )

    def untrained(self) -> "Experiment":
        """Return the untrained control: the same experiment and its `start`, if any, without training."""
        start = None if self.start is None else self.start.untrained()
        return replace(self, start=start, trained=False, after_step=None)

    def take(self, members: range) -> "Experiment":
        """Return the same experiment with the members in a range of indices."""
        start = None if self.start is None else self.start.take(members)
        return replace(self, members=self.members.take(members), start=start)


def _shape(found: torch.Size | None) -> str:
    return "none" if found is None else "x".join(map(str, found))


_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@lru_cache(maxsize=256)
def template_of(model: ModelSpec, shape: TaskShape) -> nn.Module:
    """Return a module without weights, shared by all experiments with this architecture.

    Errors: `SpecError` below `model`, also for a model too large for the memory.
    """
    try:
        module = build(model, shape)
    except SpecError as error:
        raise SpecError(f"model.{error.field}", error.problem, error.remedy) from None
    except (RuntimeError, TypeError, MemoryError) as error:
        if not is_out_of_memory(error) and "verflow" not in str(error):  # such as an overflowing number of bytes
            raise
        raise SpecError("model", "is too large for this machine", "make it smaller") from None
    _check_module(module)
    return without_weights(module)


def _check_module(module: nn.Module) -> None:
    """Raise `SpecError` for dropout or running statistics: results may depend only on weights, sequences and seeds."""
    for name, part in module.named_modules():
        where = f"{name or 'the module'} ({type(part).__name__})"
        rate = part.p if isinstance(part, _DROPOUT) else getattr(part, "dropout", 0)
        if isinstance(rate, float | int) and rate > 0:
            raise SpecError("model", f"{where} drops out at random, independently of the seeds", "set its rate to 0")
        if getattr(part, "track_running_stats", False):
            raise SpecError("model", f"{where} keeps running statistics", "set track_running_stats=False")
