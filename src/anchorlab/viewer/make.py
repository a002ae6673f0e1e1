"""Make attention views of trained runs, or of the attention patterns of any model."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.findings.view import AttentionView, LiveModel, ViewPath, ViewScores
from anchorlab.lens import Circuit, describe, detect, look, record_patterns
from anchorlab.lens.circuits import rule_cells
from anchorlab.tasks import Batch, Task
from anchorlab.tasks.batch import Example, Token
from anchorlab.training import Ensemble, TrainedRun
from anchorlab.viewer.live import can_run, live_model

if TYPE_CHECKING:
    import polars

_PATTERNS = "blocks.*.attn.hook_pattern"
_PATTERN_AXES = ("member", "batch", "head", "query", "key")
_MEMBERS, _STEPS = 2, 8  # shown by default
_LABELLED = 64  # sequences for the detectors
_DIGITS = 3  # decimal digits of a score, as for the weights of a view
_CARRIED = 1_400_000  # most bytes of weights in a view, unless a single model has more; makes a page of about 2 MB
MOST_RECORDED = 2**26
"""The largest size in bytes of the recorded attention in a view; above it, browsers become slow."""


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
    """Return a view of a run's members along training, on sequences of each split of its task.

    The detectors (`anchorlab.lens.describe`) label and score every head, over 64 sequences of the last split.

    Args:
        run: a trained run
        members: indices among the run's members; by default the first two
        steps: training steps of checkpoints; by default all, or if there are more than eight, eight that are evenly
            spaced and include the first and the last
        examples: number of sequences per split
        live: whether to include weights, if a page can run the model (`can_run`). If the weights of all members and
            steps exceed 1.4 MB, they are included for fewer steps (always the last one), and then for fewer members
            (always the first one). If a page cannot run the model, the view gives the reason.
        title: heading of the view; by default the name of the run
        circuits: the circuit of each member shown (`anchorlab.lens.find_circuit`), drawn on the examples

    Errors: `SpecError` for a member or checkpoint that the run lacks, if the numbers of circuits and members differ,
    and for a view above 64 MiB; `SiteError` for a model without attention.
    """
    task, seeds = run.experiment.task, run.experiment.members.seeds
    members = range(min(_MEMBERS, len(seeds))) if members is None else members
    steps = _spread(run.checkpoints, _STEPS) if steps is None else steps
    _check_chosen("members", members, range(len(seeds)))
    _check_chosen("steps", steps, run.checkpoints)
    if examples < 1:
        raise SpecError("examples", f"cannot show {examples} sequences of a split", "give 1 or more")
    batches = [task.sample(split, examples, seed=0) for split in task.splits]
    inputs = torch.cat([batch.inputs for batch in batches])
    scored = torch.cat([batch.asked.amax(dim=-1) for batch in batches])  # the last scored positions
    sample = task.sample(task.splits[-1], _LABELLED, seed=0)

    patterns, predicted, heads = [], [], []
    ensembles = [run.ensemble(step).select(members) for step in steps]
    for ensemble in ensembles:
        record = look(ensemble, inputs, record=[_PATTERNS])
        patterns.append(torch.stack([record[site] for site in record if record.axes(site) == _PATTERN_AXES], dim=2))
        if 2 * patterns[0].numel() * len(steps) > MOST_RECORDED:
            raise SpecError("view", "has more than 64 MiB of patterns", "choose fewer members, steps or examples")
        final = record["output"][:, torch.arange(len(scored)), scored].argmax(dim=-1)  # [member example]
        predicted.append([[task.text_of(token) for token in row] for row in final.tolist()])
        heads.append(detect(look(ensemble, sample.inputs, record=[_PATTERNS]), sample))
    why_not = can_run(run.experiment.model, task) if live else ""
    unique = len(set(seeds)) == len(seeds)
    view = AttentionView.of(
        title or f"Attention of {run.run.label or task.name or task.family}",
        [example for batch in batches for example in task.render(batch.inputs)],
        steps,
        torch.stack(patterns, dim=1),
        members=[f"seed {seeds[at]}" if unique else f"member {at}, seed {seeds[at]}" for at in members],
        predicted=list(zip(*predicted, strict=True)) if task.loss == "cross_entropy" else (),
        labels=head_labels(heads),
        scores=head_scores(heads),
        live=_live(ensembles, task) if why_not is None else None,
        circuits=[_paths(circuit, batches, task) for circuit in circuits or ()],
    )
    return replace(view, recorded_only=_recorded_only(why_not) if why_not else "")


def view_patterns(
    patterns: Iterable[Any],
    tokens: Sequence[str] | Sequence[Sequence[str]],
    *,
    title: str = "Attention",
    roles: Sequence[str] | Sequence[Sequence[str]] | None = None,
) -> AttentionView:
    """Return a view of the attention patterns of any model, such as the `attentions` of a Hugging Face model.

    The detectors that need only patterns and tokens label and score the heads.

    Args:
        patterns: one array `[batch head query key]` per layer, of any type that torch accepts; for a single sequence
            also `[head query key]` per layer, or one array `[layer head query key]`
        tokens: texts `[batch][position]`, or `[position]` for a single sequence
        title: heading of the view
        roles: role of each token in the shape of `tokens`, such as `anchor`, `key` or `noise`

    Errors: `SpecError` for fewer than two tokens, if shapes do not fit each other, or if a weight is outside 0..1.
    """
    first = tokens[0] if tokens else ""
    batch, length = (1, len(tokens)) if isinstance(first, str) else (len(tokens), len(first))
    if length < 2:
        raise SpecError("tokens", f"has {length} in a sequence, which leaves attention no choice", "give at least 2")
    texts = _rows("tokens", tokens, batch, length)
    parts = [["token"] * length] * batch if roles is None else _rows("roles", roles, batch, length)
    ids = {text: number for number, text in enumerate(dict.fromkeys(chain(*texts)))}
    layers = [one[None] if batch == 1 and getattr(one, "ndim", 4) == 3 else one for one in patterns]
    record = record_patterns(layers, torch.tensor([[ids[text] for text in row] for row in texts]))
    heads = [detect(record)]
    return AttentionView.of(
        title,
        [
            Example(tuple(Token(text, role) for text, role in zip(*row, strict=True)), (), "", "")
            for row in zip(texts, parts, strict=True)
        ],
        [0],
        torch.stack(list(record.arrays.values()), dim=2).unsqueeze(1),
        members=["model"],
        labels=head_labels(heads),
        scores=head_scores(heads),
    )


def _rows(field: str, given: Sequence[Any], batch: int, length: int) -> list[list[str]]:
    """Return texts as lists, `[batch][position]`. Errors: `SpecError` at `field` for another shape."""
    rows = [[*given]] if batch == 1 and given and isinstance(given[0], str) else [[*row] for row in given]
    if [len(row) for row in rows] != [length] * batch:
        raise SpecError(field, f"does not have {batch} sequences of {length}", "give [batch][position]")
    return rows


def _check_chosen(field: str, chosen: Sequence[int], known: Sequence[int]) -> None:
    if not chosen:
        raise SpecError(field, "is empty", "give at least one")
    if unknown := [one for one in chosen if one not in known]:
        raise SpecError(field, f"the run has no {unknown[0]}", f"choose from {', '.join(map(str, known))}")


def _spread(values: Sequence[int], most: int) -> list[int]:
    """Return at most `most` of the values, evenly spaced: always the last and, if `most` is 2 or more, the first."""
    if len(values) <= most:
        return list(values)
    return [values[round(at)] for at in torch.linspace(len(values) - 1, 0, most).tolist()][::-1]


def _paths(circuit: Circuit, batches: Sequence[Batch], task: Task) -> list[ViewPath]:
    """Return a circuit's paths with their (query, key) positions in every sequence of the batches."""
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


def _recorded_only(why_not: str) -> str:
    """Return the note for a model that the page cannot run: `Recorded examples only: model has 5652361 parameters`."""
    field, _, problem = why_not.partition(";")[0].partition(": ")
    return f"Recorded examples only: {field} {problem}."


def _live(ensembles: Sequence[Ensemble], task: Task) -> LiveModel:
    """Pack models for the page to run: as many checkpoints as fit, at least one; if only one fits, fewer members."""
    each = 4 * sum(value[0].numel() for value in ensembles[0].weights.values())
    models = max(1, _CARRIED // each)
    carried = _spread(range(len(ensembles)), max(1, models // ensembles[0].size))
    made = live_model([one if at in carried else None for at, one in enumerate(ensembles)], task)
    data = [row if member < models else (None,) * len(row) for member, row in enumerate(made.data)]
    return replace(made, data=tuple(data))


def head_labels(found: "Sequence[polars.DataFrame]") -> list[list[list[str]]]:
    """Return the label of every head, `[member][step][layer*heads + head]`; `found` has one `detect` table per step."""
    steps = [_by_member(describe(one), "label") for one in found]
    return [list(member) for member in zip(*steps, strict=True)]


def head_scores(found: "Sequence[polars.DataFrame]") -> tuple[ViewScores, ...]:
    """Return the scores of every detector that occurs in the tables of all steps; `found` is as in `head_labels`."""
    scores = []
    for name in found[0]["detector"].unique(maintain_order=True):
        if all(name in one["detector"] for one in found):
            steps = [
                [
                    tuple(round(value, _DIGITS) for value in member)
                    for member in _by_member(one.filter(detector=name), "value")
                ]
                for one in found
            ]
            scores.append(ViewScores(name, tuple(zip(*steps, strict=True))))
    return tuple(scores)


def _by_member(heads: "polars.DataFrame", column: str) -> list[list[Any]]:
    """Return a column of a table of heads, `[member][layer*heads + head]`."""
    members = heads.sort("member", "layer", "head").partition_by("member", maintain_order=True)
    return [member[column].to_list() for member in members]
