"""Finished runs, for reading: metrics, and members at every checkpoint."""

import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from anchorlab.drawable import Drawable, plotted
from anchorlab.errors import AnchorlabError, SpecError, StoreError
from anchorlab.handed_down import handed_down
from anchorlab.runs import Run, Store
from anchorlab.runs.metrics import diverged_members, select_metric
from anchorlab.runs.plugins import named_modules
from anchorlab.training.ensemble import Ensemble, initialise
from anchorlab.training.evaluation import UNEDITED
from anchorlab.training.executions import member_module
from anchorlab.training.experiment import Experiment
from anchorlab.training.saved_model import save_model

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel


class TrainedRun(Drawable):
    """A finished run: the experiment, its metrics, and its members at every checkpoint.

    The run of an untrained experiment has the initial weights, and their metrics, at all times of its recipe.

    Args:
        run: its files
        experiment: what was trained, if it is at hand; else it is rebuilt from the run's specification

    Errors: `StoreError` for an unfinished run, and from every reader, naming the missing or altered file.
    """

    def __init__(self, run: Run, experiment: Experiment | None = None) -> None:
        if not run.finished:
            raise StoreError(f"{run.path}: not finished; train it again to continue from its last state")
        self.run = run
        if experiment is not None:
            self.experiment = experiment

    def __repr__(self) -> str:
        try:
            begin, one = f"{self.run.label} {self.run.address}", self.experiment
        except AnchorlabError as error:  # a damaged run can still be shown
            return f"TrainedRun({str(self.run.path)!r}): {error}"
        seeds = f"{len(one.members)} seed{'s' if len(one.members) > 1 else ''}"
        return f"{begin}: {one.model!r}, {seeds}, {f'{one.steps} steps' if one.trained else 'untrained'}"

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment that was trained."""
        return experiment_of(self.run)

    @cached_property
    def metrics(self) -> "pl.DataFrame":
        """All metrics, with columns member, seed, step, split, group, edit, metric, value."""
        measured = self.run.metrics()
        if self.experiment.trained:
            return measured
        import polars as pl

        times = pl.DataFrame({"step": self.experiment.steps_at(self.experiment.recipe.evaluation)})
        return measured.drop("step").join(times, how="cross").select(measured.columns)

    @property
    def diverged(self) -> dict[int, int]:
        """The members that diverged, by index, with the first step at which one of their metrics is not finite.

        Steps are those at which metrics were evaluated, so the divergence may be earlier. Empty (false) if all metrics
        are finite.
        """
        return dict(diverged_members(self.metrics).rows())

    @property
    def best_member(self) -> int:
        """The index of the member with the lowest final loss on the last measured split; the first one in a tie."""
        if self.metrics.is_empty():  # weights from elsewhere were never measured
            return 0
        ends = self.metric("loss", self.experiment.splits[-1]).group_by("member", maintain_order=True).last()
        return int(ends.with_columns(ends["value"].fill_nan(float("inf"))).sort("value", "member")["member"][0])

    def metric(self, metric: str, split: str = "test", group: str = "all", edit: str = UNEDITED) -> "pl.DataFrame":
        """Return one metric over training, with columns member, step, value.

        Args:
            metric: a name such as `loss` or `accuracy`
            split: the split it was measured on
            group: the group of sequences; `all` for every sequence of the split
            edit: the name of a weight edit of the recipe's evaluation; `none` for unedited weights

        Errors: `SpecError` that names the argument and the nearest known name.
        """
        return select_metric(self.metrics, metric, split, group, edit)

    def plot(
        self,
        metric: str | None = None,
        split: str | None = None,
        *,
        group: str = "all",
        edit: str = UNEDITED,
        log: bool = False,
    ) -> "Figure":
        """Draw a metric along training: for each split the mean over members, with a band from lowest to highest.

        Args:
            metric: a name such as `loss`; when None, the accuracy, or the loss if there is no accuracy
            split: the only split to draw; all splits when None
            group, edit: as for `metric`
            log: whether the time has a logarithmic axis

        `al.plot` draws several runs. Errors: as `metric`.
        """
        return plotted(self, metric=metric, split=split, group=group, edit=edit, log=log)

    @property
    def checkpoints(self) -> list[int]:
        """The optimiser steps whose weights were kept, ascending; the last is the end of training."""
        if self.experiment.trained:
            return self.run.checkpoints()
        return self.experiment.steps_at(self.experiment.recipe.checkpoints)

    @property
    def has_weights(self) -> bool:
        """Whether the members can be opened; a part (see `anchorlab verify --part`) keeps readings, but no weights."""
        return bool(self.checkpoints)

    def reading(
        self, name: str, measure: "Callable[[TrainedRun], Shaped[Tensor, 'member ...']]"
    ) -> Shaped[Tensor, "member ..."]:
        """Return what `measure` finds in the run, or what a part without weights has kept under `name`.

        Studies read everything that their claims need of weights through this method. A part of a run (see
        `anchorlab verify --part`) can then keep `taken` in place of weights, and the claims can be judged on it.

        Args:
            name: identifies the measure among all measures of the run
            measure: returns one number or several for each member
        """
        if name in self._readings:
            return self._readings[name]
        if name not in self.taken:
            self.taken[name] = measure(self).detach().cpu()
        return self.taken[name]

    @cached_property
    def taken(self) -> dict[str, Shaped[Tensor, "member ..."]]:
        """The readings that were measured on this object, by name."""
        return {}

    @cached_property
    def _readings(self) -> dict[str, Shaped[Tensor, "member ..."]]:
        return self.run.readings()

    def ensemble(self, step: int | None = None) -> Ensemble:
        """Return all members at the checkpoint of `step`, or at the end of training when None.

        Errors: `StoreError` for a step without a checkpoint, and for a part that is kept without weights; `SpecError`
        for inputs in place of a step.
        """
        if isinstance(step, torch.Tensor):
            raise SpecError("step", "is a tensor", "call run.ensemble()(inputs) for predictions")
        if not self.experiment.trained:
            if step is not None:
                self.run.check_step(step, self.checkpoints)
            return self._initial_ensemble
        if not self.has_weights:
            raise StoreError(f"{self.run.path}: kept without weights; train it in another store to look inside")
        kept = self.run.read_checkpoint(self.checkpoints[-1] if step is None else step)
        half = torch.bfloat16  # some weights of the zoo are kept in it
        weights = {name: value.float() if value.dtype == half else value for name, value in kept.items()}
        blank = initialise(self.experiment.model, self.experiment.task.shape, [0])
        return blank.with_weights({name: weights[name] for name in blank.weights})

    @cached_property
    def _initial_ensemble(self) -> Ensemble:
        return self.experiment.initial_ensemble()

    def model(self, seed: int | None = None, step: int | None = None, *, member: int | None = None) -> nn.Module:
        """Return the member of a seed as a plain module with its weights, on the CPU and in evaluation mode.

            model = run.model(seed=0)
            model(tokens)  # [batch position output]

        It shares nothing with the run: `.to`, `load_state_dict`, further training and hooks work as in any module.

        Args:
            seed: the member's seed; the first member when None
            step: the checkpoint; the end of training when None
            member: the member's index, in place of a seed that several members share

        Errors: `SpecError` for a seed that no member has or several have, and for a member that does not exist;
        `StoreError` for a step without a checkpoint.
        """
        return member_module(self.ensemble(step).select([self._member(seed, member)]), 0).eval()

    def to_hugging_face(
        self, seed: int | None = None, step: int | None = None, *, member: int | None = None
    ) -> "PreTrainedModel":
        """Return the member of a seed as a model of transformers, which computes the same logits and generates.

        Args:
            seed, step, member: as for `model`

        Errors: as `model`; `SpecError` for a model in neither GPT-2's nor Llama's form (see `DecoderSpec`), and if
        transformers is not installed.
        """
        copied: PreTrainedModel = handed_down().to_hugging_face(self.ensemble(step), self._member(seed, member))
        return copied

    def save_pretrained(
        self,
        folder: str | Path,
        seed: int | None = None,
        step: int | None = None,
        *,
        member: int | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write one member to a folder, `model.safetensors` and `model.json`; `al.load_pretrained` opens it.

        Args:
            folder: where to write; created if needed
            seed, step, member: as for `model`
            overwrite: whether to replace a saved model in the folder

        Returns: the folder.

        Errors: as `model`; `SpecError` for a folder that holds a saved model, unless `overwrite`.
        """
        index = self._member(seed, member)
        model, shape = self.model(member=index, step=step), self.experiment.task.shape
        origin = {
            "task": self.experiment.task.model_dump(mode="json"),
            "run": self.run.address,
            "label": self.run.label,
            "seed": self.experiment.members.seeds[index],
            "member": index,
            "step": self.checkpoints[-1] if step is None else step,
        }
        return save_model(model, folder, self.experiment.model, shape, origin, overwrite)

    def _member(self, seed: int | None, member: int | None) -> int:
        """Return the index of the member with this seed, or `member` if it exists. Errors: as `model`."""
        seeds = self.experiment.members.seeds
        if member is not None and seed is not None:
            raise SpecError("member", "is given together with a seed", "give one of the two")
        if seed is None:
            index = member or 0
            if not 0 <= index < len(seeds):
                raise SpecError("member", f"there is no member {index}", f"choose one from 0 to {len(seeds) - 1}")
            return index
        found = [index for index, one in enumerate(seeds) if one == seed]
        if not found:
            shown = ", ".join(map(str, seeds[:10])) + (", ..." if len(seeds) > 10 else "")
            raise SpecError("seed", f"no member has the seed {seed}", f"the seeds are {shown}")
        if len(found) > 1:
            problem = f"members {', '.join(map(str, found[:10]))} have the seed {seed}"
            raise SpecError("seed", problem, "choose one by its index, as in member=0")
        return found[0]


def experiment_of(run: Run) -> Experiment:
    """Rebuild the experiment of a run.

    Errors: `SpecError` that names the field, and the modules of the store that must be imported first, if any.
    """
    try:
        return Experiment.from_json(run.spec, run.label)
    except SpecError as error:
        missing = [name for name in named_modules(run.path.parent) if name not in sys.modules]
        if not missing or not error.field.startswith(("task", "model", "recipe.loss", "start")):
            raise
        modules = f"module{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        remedy = f"this store's runs need the {modules}: add {' '.join(f'--import {name}' for name in missing)}"
        raise SpecError(error.field, error.problem.partition(";")[0], remedy) from None


def open_run(address: str, store: Store | str | Path | None = None) -> TrainedRun:
    """Open a finished run by its address, or by the first digits of its address that no other run shares.

    It is `al.run`. Commands print the address of each run that they train or list. `store` is a store or its directory;
    `Store()` when None.

    Errors: `StoreError` if no run, several runs, or an unfinished run has such an address.

    >>> open_run("3e345").plot("accuracy")  # doctest: +SKIP
    """
    if not isinstance(address, str):
        raise SpecError("address", f"should be text, got {address!r:.60}", "write al.run('3e345')")
    return TrainedRun(Store.of(store).find(address))


def find_runs(*where: str, store: Store | str | Path | None = None) -> list[TrainedRun]:
    """Open the finished runs that fulfil all conditions, in order of their addresses; without conditions, all of them.

    Conditions are written as for `anchorlab runs --where`. `store` is a store or its directory; `Store()` when None.

    Errors: `SpecError` for an invalid condition, and for an unknown or ambiguous field.

    >>> find_runs("model.layers=2", "test.accuracy>0.9")  # doctest: +SKIP
    """
    kept = Store.of(store)
    return [TrainedRun(kept.find(one.address)) for one in kept.select(*where) if one.state == "finished"]
