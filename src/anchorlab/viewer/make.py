"""Attention views made of what is at hand: a trained run, or the attention patterns of any model."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens import Circuit, Record, describe, detect, look, record_patterns
from anchorlab.lens.circuits import rule_cells
from anchorlab.tasks import Batch, Task
from anchorlab.tasks.task import Example, Token
from anchorlab.training import Ensemble, TrainedRun
from anchorlab.viewer.live import can_run, live_model
from anchorlab.viewer.view import AttentionView, LiveModel, ViewPath

_PATTERNS = "blocks.*.attn.hook_pattern"
_PATTERN_AXES = ("member", "batch", "head", "query", "key")
_MEMBERS, _STEPS = 2, 8  # shown where nobody says which
_LABELLED = 64  # sequences by which detectors name a head
_CARRIED = 2**23  # bytes of weights that a page takes along for running the models itself
_RECORDED = 2**26  # bytes of recorded weights, above which browsers become slow


def view_run(
    run: TrainedRun,
    *,
    members: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    examples: int = 4,
    live: bool = True,
    title: str | None = None,
    circuits: Sequence[Circuit] | None = None,
) -> AttentionView:
    """A view of a run's members along training, on the first sequences of each split of its task.

    `members` are places among the run's members, by default the first two; `steps` are checkpoints, by default all that
    were kept or eight of them, the first and the last included; `examples` counts sequences of each split. Every head
    has its label of `anchorlab.lens.describe`, over 64 sequences of the last split. With `live`, the view takes the
    weights along where a page can run the model (`anchorlab.viewer.live.can_run`), at most 8 MiB: then at fewer
    checkpoints, the last included. Else the view says why not. `circuits`, one for each member that is shown, are drawn
    on the examples (`anchorlab.lens.find_circuit`).

    Errors: `SpecError` for a member or checkpoint that the run does not have, for circuits of another number, and for a
    view above 64 MiB; `SiteError` for a model without attention.
    """
    task, seeds = run.experiment.task, run.experiment.members.seeds
    members = range(min(_MEMBERS, len(seeds))) if members is None else members
    steps = _spread(run.checkpoints, _STEPS) if steps is None else steps
    _check_chosen("members", members, range(len(seeds)))
    _check_chosen("steps", steps, run.checkpoints)
    if examples < 1:
        raise SpecError("examples", f"cannot show {examples} sequences of a split", "ask for at least 1")
    batches = [task.sample(split, examples, seed=0) for split in task.splits]
    inputs = torch.cat([batch.inputs for batch in batches])
    asked = torch.cat([_last_scored(batch) for batch in batches])
    sample = task.sample(task.splits[-1], _LABELLED, seed=0)

    patterns, predicted, labels = [], [], []
    ensembles = [run.ensemble(step).select(members) for step in steps]
    for ensemble in ensembles:
        record = look(ensemble, inputs, record=[_PATTERNS])
        patterns.append(torch.stack([record[site] for site in record if record.axes(site) == _PATTERN_AXES], dim=2))
        if 2 * patterns[0].numel() * len(steps) > _RECORDED:
            raise SpecError("view", "holds more than 64 MiB of patterns", "ask for fewer members, steps or examples")
        predicted.append(_predicted(record["output"], asked, task))
        labels.append(_labels_on(ensemble, sample))
    why_not = can_run(run.experiment.model, task) if live else ""
    view = AttentionView.of(
        title or f"Attention of {run.run.label or task.name or task.family}",
        [example for batch in batches for example in task.render(batch.inputs)],
        steps,
        torch.stack(patterns, dim=1),
        members=_names(seeds, members),
        predicted=list(zip(*predicted, strict=True)) if task.loss == "cross_entropy" else (),
        labels=list(zip(*labels, strict=True)),
        live=_live(ensembles, task) if why_not is None else None,
        circuits=[_paths(circuit, batches, task) for circuit in circuits or ()],
    )
    return replace(view, recorded_only=_recorded_only(why_not) if why_not else "")


def view_patterns(
    patterns: Sequence[Any],
    tokens: Sequence[str] | Sequence[Sequence[str]],
    *,
    title: str = "Attention",
    roles: Sequence[str] | Sequence[Sequence[str]] | None = None,
) -> AttentionView:
    """A view of the attention patterns of any model, such as the `attentions` of a Hugging Face model.

    `patterns` has one array `[batch head query key]` for each layer, of anything that torch takes; `tokens` are the
    texts of each sequence, `[batch][position]`, or `[position]` for a single one, and `roles`, where given, say what
    part each token plays. Heads are labelled by the detectors that need no more than patterns and tokens.

    Errors: `SpecError` where shapes do not fit, and for weights outside 0..1.
    """
    batch, length = (1, len(tokens)) if tokens and isinstance(tokens[0], str) else (len(tokens), len(tokens[0]))
    texts = _rows("tokens", tokens, batch, length)
    parts = [["token"] * length] * batch if roles is None else _rows("roles", roles, batch, length)
    ids = {text: number for number, text in enumerate(dict.fromkeys(chain(*texts)))}
    record = record_patterns(patterns, torch.tensor([[ids[text] for text in row] for row in texts]))
    return AttentionView.of(
        title,
        [
            Example(tuple(Token(text, role) for text, role in zip(*row, strict=True)), (), "", "")
            for row in zip(texts, parts, strict=True)
        ],
        [0],
        torch.stack(list(record.arrays.values()), dim=2).unsqueeze(1),
        members=["model"],
        labels=[_labels(record)],
    )


def _rows(field: str, given: Sequence[Any], batch: int, length: int) -> list[list[str]]:
    """Texts `[batch][position]`."""
    rows = [[*given]] if batch == 1 and given and isinstance(given[0], str) else [[*row] for row in given]
    if [len(row) for row in rows] != [length] * batch:
        raise SpecError(field, f"are not {batch} sequences of {length}", "give [batch][position]")
    return rows


def _check_chosen(field: str, chosen: Sequence[int], known: Sequence[int]) -> None:
    if not chosen:
        raise SpecError(field, "is empty", "name at least one")
    if strange := [one for one in chosen if one not in known]:
        raise SpecError(field, f"{strange[0]} is none of the run's", f"choose from {', '.join(map(str, known))}")


def _spread(values: Sequence[int], most: int) -> list[int]:
    """At most so many of the values, evenly apart, the last and (for two or more) the first included."""
    if len(values) <= most:
        return list(values)
    return [values[round(at)] for at in torch.linspace(len(values) - 1, 0, most).tolist()][::-1]


def _names(seeds: Sequence[int], members: Sequence[int]) -> list[str]:
    """What members are called: by their seeds, and by their places too where seeds come twice."""
    unique = len(set(seeds)) == len(seeds)
    return [f"seed {seeds[at]}" if unique else f"member {at}, seed {seeds[at]}" for at in members]


def _last_scored(batch: Batch) -> Tensor:
    """Where each sequence is asked last, `[batch]`."""
    positions = batch.positions.expand(len(batch), -1)
    if batch.weights is not None:
        positions = positions.where(batch.weights > 0, -1)
    return positions.amax(dim=-1)


def _predicted(outputs: Tensor, asked: Tensor, task: Task) -> list[list[str]]:
    """The text predicted where each sequence is asked last, `[member][example]`."""
    final = outputs[:, torch.arange(len(asked)), asked].argmax(dim=-1)
    return [[task.text_of(token) for token in row] for row in final.tolist()]


def _paths(circuit: Circuit, batches: Sequence[Batch], task: Task) -> list[ViewPath]:
    """A circuit's paths with their places in every sequence of the batches."""
    cells: list[list[Tensor]] = [[] for _ in circuit.paths]
    for batch in batches:
        roles, length = task.roles(batch), batch.inputs.shape[1]
        tokens = batch.inputs if batch.inputs.ndim == 2 else None
        for path, found in zip(circuit.paths, cells, strict=True):
            found += rule_cells(path.rule, roles, length, tokens, circuit.causal)
    return [
        ViewPath(
            path.layer,
            path.head,
            f"{path.rule} (loss {path.cut_loss:.2g} when cut)",
            tuple(tuple(map(tuple, row.nonzero().tolist())) for row in found),
        )
        for path, found in zip(circuit.paths, cells, strict=True)
    ]


def _labels_on(ensemble: Ensemble, batch: Batch) -> list[list[str]]:
    return _labels(look(ensemble, batch.inputs, record=[_PATTERNS]), batch)


def _labels(record: Record, batch: Batch | None = None) -> list[list[str]]:
    """What detectors call every head, `[member][layer*heads + head]`."""
    heads = describe(detect(record, batch)).sort("member", "layer", "head")
    return [part["label"].to_list() for part in heads.partition_by("member", maintain_order=True)]


def _recorded_only(why_not: str) -> str:
    """What a page says in place of a live model: `Recorded examples only: model has 5652361 parameters, ...`."""
    field, _, problem = why_not.partition(";")[0].partition(": ")
    return f"Recorded examples only: {field} {problem}."


def _live(ensembles: Sequence[Ensemble], task: Task) -> LiveModel:
    """The models for the page to run, at as many checkpoints as it takes along."""
    each = 4 * sum(value.numel() for value in ensembles[0].weights.values())
    carried = _spread(range(len(ensembles)), max(1, _CARRIED // each))
    return live_model([one if at in carried else None for at, one in enumerate(ensembles)], task)
