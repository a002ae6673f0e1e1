"""Noisy in-context recall: what each weight matrix remembers, read off between embeddings.

Source: truncated weights, appendices A.1 and A.3, Figures 7 and 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import (
    Claim,
    Findings,
    LineFigure,
    Map,
    MapFigure,
    Provenance,
    Table,
    TimelineFigure,
    event,
    grid,
    line,
)
from anchorlab.lens import emergence, first_crossing, memory
from anchorlab.lens.vectors.attribution import blocks, transformer
from anchorlab.studies.kit import along, judge_means
from anchorlab.studies.study import Study
from anchorlab.studies.truncation.noisy_recall import ALPHA, FIVE, WITHOUT_F2, noisy_recall, profiles
from anchorlab.tasks.recall.noisy import NoisyRecall
from anchorlab.training import Ensemble, Experiment, TrainedRun

CLAIMS = (
    Claim(
        "truncation/memories/previous-token",
        "By positions alone, the first layer attends to the previous token",
        "truncated weights, Fig 7 left",
        "a line beside the diagonal",
        "share of positions whose largest attention by positions alone is to the position before, mean over seeds",
        (0.9, None),
    ),
    Claim(
        "truncation/memories/noise-from-trigger",
        "F_2 of the trigger's embedding has its largest logit on the noise",
        "truncated weights, appendix A.1",
        "large",
        "share of seeds in which no other output has a larger logit",
        (0.99, None),
    ),
    Claim(
        "truncation/memories/noise-from-all",
        "F_2 of every token's embedding has large logits on the noise",
        "truncated weights, Fig 7 middle",
        "for all inputs",
        "share of tokens for which no output has a larger logit than the noise, mean over seeds",
        (0.9, None),
    ),
    Claim(
        "truncation/memories/signal-diagonal",
        "The second layer's value map takes each token to its own output",
        "truncated weights, Fig 7 right",
        "large where i = j",
        "share of tokens other than the noise whose own output has the largest logit, mean over seeds",
        (0.9, None),
    ),
    Claim(
        "truncation/memories/signal-but-noise",
        "It does not do so for the noise token",
        "truncated weights, Fig 7 right",
        "not large",
        "the noise token's own logit over the mean of the others', mean over seeds",
        (None, 0.5),
    ),
    Claim(
        "truncation/memories/match-one",
        "One trigger: the second layer's scores match what the first layer's values carry at the trigger alone",
        "truncated weights, Fig 8 left",
        "large only where i = j = q",
        "the trigger's own entry over the largest of all other entries, mean over seeds",
        (1.0, None),
    ),
    Claim(
        "truncation/memories/match-five",
        "Five triggers: they match at each trigger alone",
        "truncated weights, Fig 8 right",
        "large only where i = j is a trigger",
        "the smallest of the triggers' own entries over the largest of all other entries, mean over seeds",
        (1.0, None),
    ),
)


@dataclass(frozen=True)
class Memories:
    """The four bilinear forms of Figures 7 and 8, vectors as rows.

    Shapes
        previous: `[member query key]`, attention of the first layer by positions alone, causal
        noise: `[member token output]`, logits of F_2(W_E(i))
        signal: `[member token output]`, logits of W_E(i) W_V of the second layer
        match: `[member token token]`, how much a query W_E(j) of the second layer asks for W_E(i) W_V of the first,
            `[i, j]`
    """

    previous: Float[Tensor, "member query key"]
    noise: Float[Tensor, "member token output"]
    signal: Float[Tensor, "member token output"]
    match: Float[Tensor, "member token token"]


def memories(ensemble: Ensemble) -> Memories:
    """Reads the forms off a recall model with two perceptrons."""

    def values(layer: int) -> str:
        maps = (f"blocks.{layer}.attn.{name}" for name in ("W_V", "W_O"))
        return " @ ".join(["embed.W_E", *(name for name in maps if name in ensemble.weights)])

    scores = memory(ensemble, "pos_embed.W_pos @ blocks.0.attn.W_KQ", "pos_embed.W_pos")
    ahead = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
    scores = scores * blocks(transformer(ensemble))[0].attn.scale
    return Memories(
        previous=torch.softmax(scores.masked_fill(ahead, -torch.inf), dim=-1),
        noise=memory(ensemble, "embed.W_E @ blocks.1.mlp", "unembed.W_U.T"),
        signal=memory(ensemble, values(1), "unembed.W_U.T"),
        match=memory(ensemble, values(0), "embed.W_E @ blocks.1.attn.W_KQ"),
    )


def previous_share(attention: Float[Tensor, "member query key"]) -> Float[Tensor, "member"]:
    """The share of positions, the first aside, whose largest attention goes to the position before."""
    positions = torch.arange(1, attention.shape[-1])
    return (attention[:, 1:].argmax(dim=-1) == positions - 1).double().mean(dim=1)


def noise_share(
    logits: Float[Tensor, "member token output"], noise: int, tokens: Sequence[int]
) -> Float[Tensor, "member"]:
    """The share of `tokens` for which no output has a larger logit than the noise."""
    return (logits[:, list(tokens)].argmax(dim=-1) == noise).double().mean(dim=1)


def trigger_ratio(
    logits: Float[Tensor, "member token output"], noise: int, triggers: Sequence[int]
) -> Float[Tensor, "member"]:
    """The mean logit of the noise over triggers, over that over all other tokens."""
    of_noise = logits[:, :, noise]
    rest = torch.ones(of_noise.shape[1], dtype=torch.bool)
    rest[list(triggers)] = False
    return of_noise[:, ~rest].mean(dim=1) / of_noise[:, rest].mean(dim=1)


def diagonal_share(logits: Float[Tensor, "member token output"], noise: int) -> Float[Tensor, "member"]:
    """The share of tokens other than the noise whose own output has the largest logit."""
    tokens = torch.arange(logits.shape[1])
    own = logits.argmax(dim=-1) == tokens
    return own[:, tokens != noise].double().mean(dim=1)


def noise_on_diagonal(logits: Float[Tensor, "member token output"], noise: int) -> Float[Tensor, "member"]:
    """The noise token's own logit over the mean of the other tokens' own ones."""
    diagonal = logits.diagonal(dim1=1, dim2=2)
    others = torch.arange(diagonal.shape[1]) != noise
    return diagonal[:, noise] / diagonal[:, others].mean(dim=1)


def match_ratio(match: Float[Tensor, "member token token"], triggers: Sequence[int]) -> Float[Tensor, "member"]:
    """The smallest of the triggers' own entries over the largest of all other entries."""
    index = list(triggers)
    rest = match.clone()
    rest[:, index, index] = -torch.inf
    return match[:, index, index].amin(dim=1) / rest.flatten(1).amax(dim=1)


def _measures(found: Memories, task: NoisyRecall) -> dict[str, Tensor]:
    noise = task.noise_token
    return {
        "previous-token": previous_share(found.previous),
        "noise-from-trigger": noise_share(found.noise, noise, task.triggers),
        "noise-from-all": noise_share(found.noise, noise, range(found.noise.shape[1])),
        "trigger-ratio": trigger_ratio(found.noise, noise, task.triggers),
        "signal-diagonal": diagonal_share(found.signal, noise),
        "signal-but-noise": noise_on_diagonal(found.signal, noise),
        "match": match_ratio(found.match, task.triggers),
    }


def _experiments(profile: str) -> list[Experiment]:
    return [
        noisy_recall(profile, "noisy recall"),
        noisy_recall(profile, "noisy recall, five triggers", triggers=FIVE),
    ]


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The forms of Figures 7 and 8 at the end, and what they say along training."""
    tasks = [run.experiment.task for run in runs]
    ends = [memories(run.ensemble()) for run in runs]
    one, five = (_measures(end, task) for end, task in zip(ends, tasks, strict=True) if isinstance(task, NoisyRecall))
    measured: dict[str, Tensor | None] = {
        **{name: value for name, value in one.items() if name not in ("match", "trigger-ratio")},
        "match-one": one["match"],
        "match-five": five["match"],
    }
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Weights of a trained recall model as memories: how strongly each joins the embeddings of tokens and "
        f"positions with each other and with the outputs. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measured, provenance.profile),
        figures=(*_maps(runs, ends), *_along(runs[0])),
        tables=(_table({"one trigger": one, "five triggers": five}),),
    )


def _maps(runs: Sequence[TrainedRun], ends: Sequence[Memories]) -> tuple[MapFigure, ...]:
    task, drawn = runs[0].experiment.task, "First seed, at the end of training."
    assert isinstance(task, NoisyRecall)
    names = tuple(_shown(task.text_of(token)) for token in range(task.shape.input_size))
    five = " ".join(_shown(task.text_of(token)) for token in FIVE)
    one = ends[0]
    return (
        MapFigure(
            title="First layer: attention by positions alone (Fig 7, left)",
            caption=f"Softmax of the scores that W_KQ of the first layer gives to positions without tokens. {drawn}",
            maps=((Map("", grid(one.previous[0])),),),
            value_range=(0.0, 1.0),
        ),
        _logits(
            "F₂ of each token's embedding (Fig 7, middle)",
            f"Logits of every output; the noise token is {_shown(task.text_of(task.noise_token))}. {drawn}",
            Map("", grid(one.noise[0]), names, names),
        ),
        _logits(
            "Second layer's values of each token's embedding (Fig 7, right)",
            f"Logits of every output. {drawn}",
            Map("", grid(one.signal[0]), names, names),
        ),
        MapFigure(
            title="Second layer's queries, first layer's values (Fig 8)",
            caption=f"The product of the token's value in the first layer with the query of another. {drawn}",
            maps=(
                tuple(
                    Map(title, grid(end.match[0]), names, names)
                    for title, end in zip(("trigger ␣", f"triggers {five}"), ends, strict=True)
                ),
            ),
            x_label="query's token j",
            y_label="value's token i",
            value_label="product",
            value_range=(None, None),
            signed=True,
        ),
    )


def _logits(title: str, caption: str, drawn: Map) -> MapFigure:
    return MapFigure(
        title=title,
        caption=caption,
        maps=((drawn,),),
        x_label="output",
        y_label="token",
        value_label="logit",
        value_range=(None, None),
        signed=True,
    )


def _along(run: TrainedRun) -> tuple[LineFigure, TimelineFigure]:
    task = run.experiment.task
    assert isinstance(task, NoisyRecall)
    found = emergence(run, lambda ensemble: _measures(memories(ensemble), task))
    labels = {
        "noise-from-all": "tokens for which F₂ gives the noise",
        "signal-diagonal": "tokens whose value gives themselves",
        "previous-token": "positions that attend to the one before",
    }
    at = [step + 1 for step in found.steps]
    lines = LineFigure(
        title="When each memory forms",
        caption="One trigger; mean and range over seeds, at each checkpoint. The step axis starts at 1 for the model "
        "before the first step.",
        x_label="step + 1",
        y_label="share",
        lines=tuple(line(label, at, found.values[name]) for name, label in labels.items()),
        log_x=True,
        y_range=(0.0, 1.0),
    )
    crossed = found.crossings(0.5, list(labels))
    learned = {
        "noise at α": first_crossing(*along(run, "clean", "noise"), ALPHA),
        "right token at half of 1 - α": first_crossing(*along(run, "clean", "right"), (1 - ALPHA) / 2),
        "right token without F₂ at 0.9": first_crossing(*along(run, "clean", "right", WITHOUT_F2), 0.9),
    }
    events = (
        *(event(labels[name], "memory, half of all", crossing + 1) for name, crossing in crossed.items()),
        *(event(name, "prediction on clean sequences", crossing + 1) for name, crossing in learned.items()),
    )
    timeline = TimelineFigure(
        title="Memories and predictions along training",
        caption="One trigger; when a memory holds half of its tokens or positions, and when predictions pass a level, "
        "by interpolation between checkpoints or evaluations. A point for each seed, a bar at the median.",
        x_label="step + 1",
        events=tuple(sorted(events, key=lambda one: median(np.inf if at is None else at for at in one.at))),
        end=found.steps[-1] + 1,
        log_x=True,
    )
    return lines, timeline


def _table(models: dict[str, dict[str, Tensor]]) -> Table:
    columns = {
        "previous-token": "previous token",
        "noise-from-all": "noise, all tokens",
        "noise-from-trigger": "noise, triggers",
        "trigger-ratio": "triggers to others",
        "signal-diagonal": "own output",
        "signal-but-noise": "noise's own",
        "match": "match at triggers",
    }
    rows: list[tuple[str | float, ...]] = [
        (name, *(float(found[column].mean()) for column in columns)) for name, found in models.items()
    ]
    return Table(
        title="What the memories say",
        caption="Means over seeds at the end of training. Previous token: share of positions that attend to the one "
        "before by positions alone. Noise: share of tokens, or of triggers, for which F₂ gives the noise. Triggers to "
        "others: F₂'s logit of the noise at triggers over that at all other tokens, each on average. Own output: "
        "share of tokens whose value gives themselves; the noise's own logit over the mean of theirs. Match: the "
        "smallest of the triggers' own entries over the largest of all others.",
        columns=("model", *columns.values()),
        rows=tuple(rows),
    )


def _shown(text: str) -> str:
    return {"newline": "⏎", "space": "␣"}.get(text, text)


STUDY = Study(
    name="truncation/memories",
    title="Noisy recall: which memory each weight matrix holds",
    claims=CLAIMS,
    profiles=profiles(_experiments),
    analyse=analyse,
)
