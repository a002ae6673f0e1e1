"""Noisy recall: which memory each weight matrix holds.

The weights of a trained recall model are read as memories: how strongly does each associate the embeddings of tokens
and positions with each other and with the outputs? Layers 0 and 1 are the paper's layers 1 and 2.

Source: truncated weights, appendices A.1 and A.3, Figures 7 and 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import LineFigure, Map, MapFigure, Table, TimelineFigure, at_least, at_most, event, grid
from anchorlab.lens import emergence, first_crossing, memory
from anchorlab.lens.vectors.attribution import blocks, transformer
from anchorlab.papers.truncation.noisy_recall import FIVE, WITHOUT_F2, Setting, alpha_of, by_step, noisy_study
from anchorlab.studies import Reading, claim, measures_in
from anchorlab.studies.kit import along, mean_table
from anchorlab.studies.readings import Quantity
from anchorlab.tasks.recall.noisy import NoisyRecall
from anchorlab.training import Ensemble, Experiment

MOST_WITH_FIVE = 3
"""The largest number of seeds with five triggers: one claim reads them, and each takes twice as long to train."""


def experiments(setting: Setting) -> dict[str, Experiment]:
    """Return the experiments with one trigger and with five."""
    fewer = replace(setting, seeds=min(setting.seeds, MOST_WITH_FIVE))
    return {"one": setting.experiment(), "five": fewer.experiment("noisy recall, five triggers", triggers=FIVE)}


def without_noise(experiment: Experiment) -> NoisyRecall:
    """Return the control task without noise: every trigger is followed by its own output, with nothing to memorise."""
    return _task(experiment).replace(alpha=0.0)


@dataclass(frozen=True)
class Memories:
    """The bilinear forms of Figures 7 and 8 and of the term with -c in appendix A.1, and numbers derived from them."""

    previous: Float[Tensor, "member query key"]  # attention of layer 0 by positions alone, causal
    noise: Float[Tensor, "member token output"]  # logits of F_2(W_E(i))
    signal: Float[Tensor, "member token output"]  # logits of W_E(i) W_V of layer 1
    # the score in layer 1 of the query W_E(j) with the key W_E(i) W_V of layer 0, `[i, j]`
    match: Float[Tensor, "member token token"]
    own: Float[Tensor, "member token token"]  # the same with the key W_E(i)
    noise_token: int
    triggers: tuple[int, ...]

    def previous_share(self, positions: int | None = None) -> Float[Tensor, "member"]:
        """Return the share of the first `positions`, by default all, whose largest attention goes to the one before."""
        places = torch.arange(1, positions or self.previous.shape[-1])
        return (self.previous[:, places].argmax(dim=-1) == places - 1).double().mean(dim=1)

    @property
    def early_share(self) -> Float[Tensor, "member"]:
        """`previous_share` of the first quarter of the positions: 64 of 256 in the authors' public code."""
        return self.previous_share(max(2, self.previous.shape[-1] // 4))

    def noise_share(self, tokens: Sequence[int] | None = None) -> Float[Tensor, "member"]:
        """Return the share of tokens, by default of all, for which no output has a larger logit than the noise."""
        logits = self.noise if tokens is None else self.noise[:, list(tokens)]
        return (logits.argmax(dim=-1) == self.noise_token).double().mean(dim=1)

    @property
    def trigger_ratio(self) -> Float[Tensor, "member"]:
        """The noise's mean logit for triggers, divided by its mean logit for all other tokens."""
        of_noise = self.noise[:, :, self.noise_token]
        rest = torch.ones(of_noise.shape[1], dtype=torch.bool)
        rest[list(self.triggers)] = False
        return of_noise[:, ~rest].mean(dim=1) / of_noise[:, rest].mean(dim=1)

    @property
    def own_output(self) -> Float[Tensor, "member"]:
        """The share of tokens other than the noise whose own output has the largest logit."""
        tokens = torch.arange(self.signal.shape[1])
        own = self.signal.argmax(dim=-1) == tokens
        return own[:, tokens != self.noise_token].double().mean(dim=1)

    @property
    def noise_ratio(self) -> Float[Tensor, "member"]:
        """The noise token's own logit, divided by the mean of the other tokens' own logits."""
        own = self.signal.diagonal(dim1=1, dim2=2)
        others = torch.arange(own.shape[1]) != self.noise_token
        return own[:, self.noise_token] / own[:, others].mean(dim=1)

    @property
    def match_ratio(self) -> Float[Tensor, "member"]:
        """The smallest diagonal entry of `match` for a trigger, divided by the largest of all other entries."""
        index = list(self.triggers)
        rest = self.match.clone()
        rest[:, index, index] = -torch.inf
        return self.match[:, index, index].amin(dim=1) / rest.flatten(1).amax(dim=1)

    @property
    def noise_repelled(self) -> Float[Tensor, "member"]:
        """The noise's entry of `own` for the triggers, in standard deviations from the mean over other tokens."""
        scores = self.own[:, :, list(self.triggers)].mean(dim=2)
        others = scores[:, torch.arange(scores.shape[1]) != self.noise_token]
        return (scores[:, self.noise_token] - others.mean(dim=1)) / others.std(dim=1)


def memories(ensemble: Ensemble, task: NoisyRecall) -> Memories:
    """Compute the bilinear forms of a recall model with two perceptrons."""

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
        own=memory(ensemble, "embed.W_E", "embed.W_E @ blocks.1.attn.W_KQ"),
        noise_token=task.noise_token,
        triggers=task.triggers,
    )


def _task(experiment: Experiment) -> NoisyRecall:
    assert isinstance(experiment.task, NoisyRecall)
    return experiment.task


class Seen(Reading):
    """The memories at the end of training with one trigger and with five."""

    memories = Quantity(lambda run: memories(run.ensemble(), _task(run.experiment)))


@claim("Fig 7 left", "attends to the previous token", at_least(0.9))
def previous_token(seen: Seen) -> Float[Tensor, "seed"]:
    """By positions alone, layer 0 attends to the previous token.

    Share of positions whose largest attention, by positions alone, goes to the previous position, mean over seeds.
    """
    return seen.memories["one"].previous_share()


@claim(
    "our question; Fig 7 left",
    "attends to the previous token; the authors' public code looks at the first 64 of 256 positions",
    at_least(0.9),
    own=True,
)
def previous_token_early(seen: Seen) -> Float[Tensor, "seed"]:
    """By positions alone, layer 0 attends to the previous token at early positions, too.

    Share of the first quarter of positions whose largest attention, by positions alone, goes to the previous position,
    mean over seeds.
    """
    return seen.memories["one"].early_share


@claim("appendix A.1 and Fig 7 middle", "large, at least for the trigger", at_least(0.8))
def noise_from_trigger(seen: Seen) -> Bool[Tensor, "seed"]:
    """F_2 of the trigger's embedding has its largest logit on the noise.

    Share of seeds in which the noise has the largest logit of all outputs of F_2 for the trigger's embedding.
    """
    found = seen.memories["one"]
    return found.noise_share(found.triggers) == 1


@claim("Fig 7 middle", "large for all inputs", at_least(0.9))
def noise_from_all(seen: Seen) -> Float[Tensor, "seed"]:
    """F_2 of every token's embedding has large logits on the noise.

    Share of tokens whose embedding gives the noise the largest logit of all outputs of F_2, mean over seeds.
    """
    return seen.memories["one"].noise_share()


@claim("Fig 7 right", "large where i = j", at_least(0.9))
def signal_diagonal(seen: Seen) -> Float[Tensor, "seed"]:
    """Layer 1's value map takes each token to its own output.

    Share of tokens other than the noise whose own output has the largest logit, mean over seeds.
    """
    return seen.memories["one"].own_output


@claim("Fig 7 right", "not large", at_most(0.5))
def signal_but_noise(seen: Seen) -> Float[Tensor, "seed"]:
    """Layer 1's value map does not take the noise token to its own output.

    The noise token's own logit, divided by the mean of the other tokens' own logits, mean over seeds.
    """
    return seen.memories["one"].noise_ratio


@claim("Fig 8 left", "large only where i = j = q", at_least(1.0))
def match_one(seen: Seen) -> Float[Tensor, "seed"]:
    """One trigger: only at the trigger do layer 1's scores match what layer 0's values carry.

    Diagonal entry of layer 1's scores for the trigger, divided by the largest other entry, mean over seeds.
    """
    return seen.memories["one"].match_ratio


@claim("Fig 8 right", "large only where i = j is a trigger", at_least(1.0))
def match_five(seen: Seen) -> Float[Tensor, "seed"]:
    """Five triggers: only at the triggers do layer 1's scores match what layer 0's values carry.

    Smallest diagonal entry of layer 1's scores for a trigger over the largest other entry, mean over seeds.
    """
    return seen.memories["five"].match_ratio


@claim("appendix A.1", "-c W_E(N+1) W_E(q)^T with some positive c", at_most(-3.0))
def noise_avoided(seen: Seen) -> Float[Tensor, "seed"]:
    """In layer 1 the trigger's query is turned away from the noise token's embedding.

    Score of the trigger's query with the noise's embedding as key, in standard deviations of the other tokens' scores
    from their mean, mean over seeds.
    """
    return seen.memories["one"].noise_repelled


def _maps(seen: Seen) -> list[MapFigure]:
    task, seed = _task(seen.first.experiment), seen.first.experiment.members.seeds[0]
    one, five = seen.memories.values()
    texts = map(task.text_of, range(task.shape.input_size))
    names = tuple({"newline": "⏎", "space": "␣"}.get(text, text) for text in texts)
    drawn = f"Seed {seed}, at the end of training."
    matches = {"trigger ␣": one.match, f"triggers {' '.join(names[token] for token in FIVE)}": five.match}
    figures = [
        MapFigure(
            title="Layer 0: attention by positions alone (Fig 7, left)",
            caption=f"Softmax of the scores that W_KQ of layer 0 gives to positions without tokens. {drawn}",
            maps=((Map("", grid(one.previous[0])),),),
            value_range=(0.0, 1.0),
        ),
        _token_maps(
            "F₂ of each token's embedding (Fig 7, middle)",
            f"Logits of every output; the noise token is {names[task.noise_token]}. {drawn}",
            [Map("", grid(one.noise[0]), names, names)],
        ),
        _token_maps(
            "Layer 1's values of each token's embedding (Fig 7, right)",
            f"Logits of every output. {drawn}",
            [Map("", grid(one.signal[0]), names, names)],
        ),
        _token_maps(
            "Layer 1's queries, layer 0's values (Fig 8)",
            f"The product of the token's value in layer 0 with the query of another. {drawn}",
            [Map(title, grid(match[0]), names, names) for title, match in matches.items()],
            ("query's token j", "value's token i", "product"),
        ),
    ]
    return [replace(figure, seeds=str(seed)) for figure in figures]


def _token_maps(
    title: str, caption: str, maps: Sequence[Map], labels: tuple[str, str, str] = ("output", "token", "logit")
) -> MapFigure:
    return MapFigure(title, caption, (tuple(maps),), *labels, value_range=(None, None), signed=True)


def _along(seen: Seen) -> tuple[LineFigure, TimelineFigure]:
    run = seen.first

    def shares(ensemble: Ensemble) -> dict[str, Tensor]:
        found = memories(ensemble, _task(run.experiment))
        return {
            "tokens for which F₂ gives the noise": found.noise_share(),
            "tokens whose value gives themselves": found.own_output,
            "positions that attend to the one before": found.previous_share(),
            "early positions that do": found.early_share,
        }

    found = emergence(run, shares)
    lines = by_step(
        "When each memory forms",
        found.steps,
        found.values,
        "One trigger; mean and range over seeds, at each checkpoint.",
        y_label="share",
    )
    learned = {
        "noise at α": first_crossing(*along(run, "clean", "noise"), alpha_of(run)),
        "right token at half of 1 - α": first_crossing(*along(run, "clean", "right"), (1 - alpha_of(run)) / 2),
        "right token without F₂ at 0.9": first_crossing(*along(run, "clean", "right", WITHOUT_F2), 0.9),
    }
    events = (
        *(event(name, "memory, half of all", step + 1) for name, step in found.crossings(0.5).items()),
        *(event(name, "prediction on clean sequences", step + 1) for name, step in learned.items()),
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


def _table(seen: Seen) -> Table:
    return mean_table(
        "What the memories say",
        "Means over seeds at the end of training. Previous token: share of positions that attend to the one before by "
        "positions alone, of all and of the first quarter. Noise: share of tokens, or of triggers, for which F₂ gives "
        "the noise. Triggers to others: F₂'s logit of the noise at triggers over that at all other tokens, each on "
        "average. Own output: share of tokens whose value gives themselves. Noise's own: its own logit over the "
        "others' mean. Match: the smallest of the triggers' own entries over the largest other one. Noise repelled: "
        "layer 1's score of the triggers' queries with the noise's embedding, in standard deviations of the others'.",
        "model",
        {
            name: {
                "previous token": found.previous_share(),
                "previous token, early": found.early_share,
                "noise, all tokens": found.noise_share(),
                "noise, triggers": found.noise_share(found.triggers),
                "triggers to others": found.trigger_ratio,
                "own output": found.own_output,
                "noise's own": found.noise_ratio,
                "match at triggers": found.match_ratio,
                "noise repelled": found.noise_repelled,
            }
            for name, found in zip(("one trigger", "five triggers"), seen.memories.values(), strict=True)
        },
    )


STUDY = noisy_study(
    "truncation/memories",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_maps, _along, _table),
    other_task=without_noise,
)
