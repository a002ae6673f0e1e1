"""Arguments and options that several commands share, each declared once, including where to train.

A command that gives an argument another meaning describes it in its own docstring and uses only the type.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from anchorlab.cli.options import complete
from anchorlab.cli.options.fields import Fields, nested, part
from anchorlab.errors import SpecError, StoreError

if TYPE_CHECKING:
    from anchorlab.engine import On
    from anchorlab.engine.pool import Backend
    from anchorlab.runs import Run, Store

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
"""An option without a value, such as `--yes`."""

Json = Annotated[Flag, Parameter(help="Print JSON.")]
Count = Annotated[int, Parameter(name=("--n", "-n"))]

StudyName = Annotated[str, Parameter(completer=complete.studies)]
TaskName = Annotated[
    str,
    Parameter(completer=complete.tasks, help="Name from `anchorlab tasks`, or a TOML file that declares a task."),
]
TaskFields = Annotated[Fields, part("task"), Parameter(help="Argument of the task, such as `--task.length 12`.")]
ModelFields = Annotated[
    Fields, part("model"), Parameter(name=("--model.FIELD", "--model.kind"), completer=complete.kinds)
]
"""The fields of a model; the option for its kind has its own name, which a shell can complete."""

RecipeFields = Annotated[Fields, part("recipe")]
MemberFields = Annotated[Fields, part("members")]

StoreFolder = Annotated[
    Path | None,
    Parameter(help="Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`."),
]
ReadStore = Annotated[
    str | None,
    Parameter(
        help="Folder of stored runs, by default $ANCHORLAB_STORE, or `runs`; or `zoo`, the models of the package."
    ),
]
"""A store that a command only reads. To name a folder of your own called `zoo`, write `./zoo`."""

RunName = Annotated[str, Parameter(completer=complete.runs)]
StoredRun = Annotated[RunName, Parameter(help="First digits of the run's address, as `anchorlab runs` lists it.")]
AnyRun = Annotated[
    RunName,
    Parameter(help="First digits of the run's address, as `anchorlab runs` lists it; or a run of the zoo, `zoo:NAME`."),
]
Where = Annotated[
    list[str] | None,
    Parameter(
        negative="",
        consume_multiple=True,
        show_default=False,
        help="Only runs that fulfil conditions, as for `anchorlab runs`.",
    ),
]
Figure = Annotated[Path | None, Parameter(help="Also draw what was found to this PNG, PDF or SVG file.")]
Sequences = Annotated[int, Parameter(help="Number of sequences to measure on.")]
Seed = Annotated[int, Parameter(help="Seed of the sequences.")]
Split = Annotated[str | None, Parameter(help="Split to measure on; by default the task's last.")]
Step = Annotated[int | None, Parameter(help="Training step of the checkpoint; by default the last.")]

Revision = Annotated[str | None, Parameter(help="Branch, tag or commit of the model on the hub, such as `step1000`.")]
Download = Annotated[Flag, Parameter(help="Fetch the model from the hub if it is not on this machine.")]

Workers = Annotated[
    int | None,
    Parameter(help="Number of CPU processes that share the members; by default chosen by the amount of work."),
]
Device = Annotated[str, Parameter(help="`cpu` or `cuda`.")]
DryRun = Annotated[
    Flag,
    Parameter(help="Train nothing: print what would be trained, and the time, memory and disk that it would take."),
]


def existing_store(folder: str | Path | None) -> "Store":
    """Return the store in a folder, or for None the default store. Errors: `StoreError` if there is no such folder."""
    from anchorlab.runs import Store

    kept = Store(folder)
    if folder is not None and not kept.root.is_dir():
        raise StoreError(f"{kept.root}: there is no such folder; name the folder of a store")
    return kept


def read_store(folder: str | Path | None) -> "Store":
    """Return the store in a folder, as `existing_store` does; for `zoo`, the store of the zoo."""
    if folder == "zoo":
        from anchorlab.trained.zoo import ROOT

        return existing_store(ROOT)
    return existing_store(folder)


def found_runs(folder: str | Path | None, *names: str) -> "list[Run]":
    """Return the stored runs whose addresses begin with `names`; for `zoo:NAME`, the zoo's run.

    Errors: as `Store.find` and `zoo`; `SpecError` for a folder if all runs are the zoo's.
    """
    if folder not in (None, "zoo") and all(name.startswith("zoo:") for name in names):
        raise SpecError("store", f"does not hold {names[0]}, a model of the package", "leave it out")
    return [_found_run(name, folder) for name in names]


def _found_run(name: str, folder: str | Path | None) -> "Run":
    if name.startswith("zoo:"):
        from anchorlab.trained import zoo

        return zoo(name.removeprefix("zoo:")).run
    return read_store(folder).find(name)


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """The options for where runs are trained, with how many processes and on which device.

    Parameters
    ----------
    on
        `local` trains on this machine, `ray` on a Ray cluster, and `slurm` in Slurm jobs on nodes that share the store.
    address
        Ray cluster, such as `10.0.0.1:6379`; by default $RAY_ADDRESS, else the cluster on this machine, else a new one.
    slurm
        Option of the jobs, such as `--slurm.partition gpu`, `--slurm.time 60` in minutes, or `--slurm.mem 8G`.
    """

    workers: Workers = None
    device: Device = "cpu"
    on: Literal["local", "ray", "slurm"] = "local"
    address: str | None = None
    slurm: Annotated[Fields, part("slurm")] = None

    def backend(self) -> "On | Backend":
        """Return the value of `on` for `run`. Errors: `SpecError` for an option without effect."""
        from anchorlab.engine import Ray, Slurm

        if self.address is not None and self.on != "ray":
            raise SpecError("address", "only a Ray cluster has one", "add --on ray")
        if self.slurm is not None and self.on != "slurm":
            raise SpecError("slurm", "only jobs of Slurm have options", "add --on slurm")
        if self.on == "slurm":
            return Slurm(nested(self.slurm, "slurm"), device=self.device)
        return Ray(self.address, device=self.device) if self.on == "ray" else self.on


Place = Annotated[PlaceOptions, Parameter(name="*", group="Where to train")]
HERE = PlaceOptions()
