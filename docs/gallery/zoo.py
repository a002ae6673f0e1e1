"""Make the zoo, the trained models that the package ships, from runs of the published studies.

    python docs/gallery/zoo.py --store runs
    python docs/gallery/zoo.py --store runs anchor/identity classics/brackets
    python docs/gallery/zoo.py --store runs --paper

The second makes these runs alone and keeps the others as they are. The third makes a second store, of models in the
papers' own settings, which is not in the package; it has the parts without weights too, which `anchorlab verify --part`
writes there.
A study's quick run is taken from the store, with its first members; where the store has none, these members alone are
trained, from where an earlier call stopped. No setting is searched here. Classics without a study of their own get the
recipe of the retrieval studies' quick profiles, and the anchor studies' quick model at half its width, or a network
like that of the source.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.engine import run
from anchorlab.lens import look
from anchorlab.models import FNNSpec, ModelSpec
from anchorlab.models.superposition import SuperpositionSpec
from anchorlab.papers.retrieval import settings
from anchorlab.progress import reported
from anchorlab.runs import Run, Store
from anchorlab.runs.atomic_files import write_file
from anchorlab.runs.kept import keep
from anchorlab.runs.lock import READ_ONLY
from anchorlab.runs.metrics import last_metrics
from anchorlab.studies import study
from anchorlab.studies.quick import quick_model
from anchorlab.studies.seeds import fresh
from anchorlab.tasks import Batch, Task, task
from anchorlab.trained.zoo import ROOT
from anchorlab.training import Ensemble, Evaluation, Experiment, Members, Times, TrainedRun

STEPS = 2000  # of the classics
SMALL_DECODER = quick_model(width=32)
SMALL = 50_000  # bytes of weights that stay in float32, since nothing would be gained
PAPER = Path(__file__).parent / "paper-models"
LARGEST = {ROOT: 12_000_000, PAPER: 25_000_000}  # bytes of a store
CHECKED = 2000  # sequences of each split whose answers must not change by rounding the weights


@dataclass(frozen=True)
class Cell:
    """A run of the zoo: an experiment, its study if it has one, and how much of it is kept."""

    experiment: Experiment
    study: str | None = None
    members: int = 3
    checkpoints: int = 1


def of_study(name: str, label: str, members: int = 3, checkpoints: int = 1, profile: str = "quick") -> Cell:
    """Return a cell of a study's profile by its label."""
    (found,) = (one for one in study(name).experiments_of(profile) if one.label == label)
    return Cell(found, name, members, checkpoints)


def classic(name: str, model: ModelSpec = SMALL_DECODER, members: int = 3, checkpoints: int = 8) -> Cell:
    """Return a training of one of the classics, on a stream, with its weights along it."""
    every = STEPS // 8
    recipe = settings.quick(1, 1, STEPS, seeds=3).recipe.replace(
        evaluation=Evaluation(every=every), checkpoints=Times(every=every)
    )
    return Cell(Experiment(task(name), model, recipe, Members(seeds=fresh(3)), name), None, members, checkpoints)


def cells() -> dict[str, Cell]:
    """Return the runs of the zoo by name, that of their task."""
    found = [
        of_study("anchor/identity", "identity, 2000 sequences"),
        of_study("anchor/nine-tasks", "reading comprehension"),
        of_study("anchor/order", "classification", members=1),
        of_study("anchor/nine-tasks", "composite, 4 layers", members=1),
        of_study("anchor/working-memory", "working memory", members=1),
        of_study("anchor/synonym", "synonyms, 10000 sequences", members=1),
        of_study("anchor/recitation", "recitation, 7000 sequences", members=2),
        of_study("anchor/statistical", "statistical, first kind"),
        of_study("anchor/multi-anchor", "multi-anchor", members=1),
        of_study("anchor/frequency", "low frequency"),
        of_study("anchor/two-distances", "two distances", members=2),
        of_study("truncation/feedforward-noise", "noisy recall", members=1),
        of_study("truncation/associative-memory", "d = 12"),
        of_study("retrieval/circuits", "six layers", members=2),
        classic("classics/brackets", checkpoints=1),
        classic("classics/repeated-sequence"),
        classic("classics/sparse-parity", FNNSpec(layers=1, width=4, hidden=64)),
        classic("classics/superposition", SuperpositionSpec()),
    ]
    nameless = {  # studies that make their tasks without a name
        "classics/associative-recall": of_study("classics/associative-recall", "attention, 4 pairs, width 64"),
        "classics/linear-regression": of_study("classics/in-context-regression", "exact values"),
        "classics/modular-arithmetic": of_study("classics/grokking", "weight decay"),
    }
    return {one.experiment.task.name: one for one in found} | nameless


def paper_cells() -> dict[str, Cell]:
    """Return the runs in the papers' own settings."""
    return {
        f"associative memory, d = {width}": of_study(
            "truncation/associative-memory", f"d = {width}", members=20, profile="paper"
        )
        for width in (8, 12)
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what the store lacks, and write the zoo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="runs to make; by default all")
    parser.add_argument("--paper", action="store_true", help="make the store of models in the papers' own settings")
    parser.add_argument("--store", type=Path, default=None, help="the folder of runs")
    parser.add_argument("--workers", type=int, default=None, help="processes that train")
    chosen = parser.parse_args(arguments)
    root, known = (PAPER, paper_cells()) if chosen.paper else (ROOT, cells())
    if unknown := [name for name in chosen.names if name not in known]:
        parser.error(f"the zoo has no {unknown[0]!r}; it has {', '.join(known)}")
    wanted = {name: known[name] for name in chosen.names or known}
    runs = trained(list(wanted.values()), Store(chosen.store), chosen.workers)
    listed = root.with_suffix(".json")
    before = json.loads(listed.read_text("utf-8")) if listed.exists() else []
    kept = {one["name"]: one for one in before if one["name"] in known.keys() - wanted.keys()}
    models = {path.parent.name for path in root.glob("*/checkpoints")}  # the others are parts
    for gone in models - {one["run"] for one in kept.values()}:
        shutil.rmtree(root / gone)
    made = {name: write(root, name, cell, found) for (name, cell), found in zip(wanted.items(), runs, strict=True)}
    write_file(root, READ_ONLY, [b"anchorlab writes nothing into this folder.\n"])
    entries = [(kept | made)[name] for name in known if name in kept | made]
    listed.write_text(json.dumps(entries, indent=1) + "\n", "utf-8")
    if (size := sum(path.stat().st_size for path in root.rglob("*") if path.is_file())) > LARGEST[root]:
        raise SystemExit(f"the zoo has {size} bytes, more than {LARGEST[root]}")


def trained(wanted: Sequence[Cell], store: Store, workers: int | None) -> list[TrainedRun]:
    """Return the run of each cell: with all its study's members if the store has it, else with the first alone."""
    whole = [one.experiment for one in wanted]
    first = [one.experiment.take(range(one.members)) for one in wanted]
    experiments = [all_ if all_.cell in store else some for all_, some in zip(whole, first, strict=True)]
    with reported(None, None) as show:
        return run(experiments, store, workers, report=show)


def write(root: Path, name: str, cell: Cell, found: TrainedRun) -> dict[str, Any]:
    """Write what the zoo keeps of a run, and return its line of the list."""
    experiment = replace(found.experiment.take(range(cell.members)), label=name)
    dtype = weight_type(found.ensemble().select(range(cell.members)), experiment.task)
    checkpoints = (
        (step, {key: value[: cell.members].to(dtype) for key, value in found.run.read_checkpoint(step).items()})
        for step in spread(found.checkpoints, cell.checkpoints)
    )
    metrics = found.run.metrics().filter(pl.col("member") < cell.members)
    folder = keep(root, experiment.cell, found.run, metrics, checkpoints)
    split = experiment.task.splits[-1]
    end = last_metrics(metrics).filter(split=split, group="all", edit="none")
    values = dict(zip(end["metric"], end["mean"], strict=True))
    return {
        "name": name,
        "study": cell.study,
        "model": experiment.model.kind,
        "members": cell.members,
        "checkpoints": cell.checkpoints,
        "split": split,
        "accuracy": round(values["accuracy"], 6) if "accuracy" in values else None,
        "loss": values["loss"],
        "weights": str(dtype).removeprefix("torch."),
        "MB": round(Run(folder).size / 1e6, 3),
        "run": experiment.cell.address,
    }


def weight_type(ensemble: Ensemble, chosen: Task) -> torch.dtype:
    """Return bfloat16 if every answer of every member stays what it is, else float32."""
    weights = ensemble.weights
    if chosen.loss != "cross_entropy" or sum(value.nbytes for value in weights.values()) < SMALL:
        return torch.float32
    rounded = ensemble.with_weights({key: value.bfloat16().float() for key, value in weights.items()})
    drawn = (chosen.sample(split, CHECKED, seed=0) for split in chosen.splits)
    same = all(torch.equal(answers(ensemble, batch), answers(rounded, batch)) for batch in drawn)
    return torch.bfloat16 if same else torch.float32


def answers(ensemble: Ensemble, batch: Batch) -> Int[Tensor, "member batch scored"]:
    """Return every member's most probable tokens."""
    return look(ensemble, batch.inputs, positions=batch.positions)["output"].argmax(dim=-1)


def spread(steps: Sequence[int], count: int) -> list[int]:
    """Return `count` steps, evenly spaced, with the first and the last; a single one is the last."""
    if count == 1:
        return [steps[-1]]
    return [steps[round(at * (len(steps) - 1) / (count - 1))] for at in range(count)]


if __name__ == "__main__":
    main()
