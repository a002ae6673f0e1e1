"""The working memory task: between its two anchors a transformer holds what the first has made of the key.

Source: anchor functions, section 4.5, Figure 8; settings in its appendix A.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, LineFigure, Provenance, Table, line
from anchorlab.lens import look
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import along, judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import AnchorFunction, Batch, task
from anchorlab.training import Experiment, Members, TrainedRun

SHORTEST = 3
"""Shorter stretches say little about what is held: one of a single position holds one value whatever it is."""

LEARNED = 0.9
"""Test accuracy from which on a seed's outputs are read; what an untrained model holds says nothing."""

_LOOKED_AT = 1000  # test sequences
_AROUND = 8  # positions before and after the second anchor in the figure

CLAIMS = (
    Claim(
        "anchor/working-memory/learns",
        "The task is learned and generalises",
        "anchor functions, section 4.5 and Fig 3",
        "about 1",
        "test accuracy, mean over seeds",
        (0.95, None),
    ),
    Claim(
        "anchor/working-memory/one-value",
        "From the first anchor until the second the output keeps one value",
        "anchor functions, section 4.5 and Fig 8",
        "at every position of its three examples",
        "share of those positions at which the output is the most common one of its sequence there, mean over seeds "
        f"that learned (test accuracy at least {LEARNED:g}); stretches of at least {SHORTEST} positions",
        (0.9, None),
    ),
    Claim(
        "anchor/working-memory/function-of-key",
        "That value is the key moved by a constant of the first anchor: an intermediate result",
        "anchor functions, section 4.5 and Fig 8",
        "at every position of its three examples",
        "share of the same positions at which the output is the key plus the constant learned for the first anchor, "
        "which is the most common difference of output and key; mean over the same seeds",
        (0.9, None),
    ),
    Claim(
        "anchor/working-memory/own-operation",
        "That constant is the one of the first anchor's operation",
        "anchor functions, Fig 8, whose text allows another one",
        "in its three examples",
        "share of first anchors whose learned constant is their operation's, mean over the same seeds",
        (0.9, None),
    ),
    Claim(
        "anchor/working-memory/answer-kept",
        "From the second anchor on the output is the final answer",
        "anchor functions, section 4.5 and Fig 8",
        "at every position of its three examples",
        "share of positions from the second anchor to the end at which the output is the answer, mean over the same "
        "seeds",
        (0.9, None),
    ),
)


def quick_experiments(size: int = 40_000, steps: int = 1800, seeds: int = 4) -> list[Experiment]:
    """One experiment: three layers of two heads, width 64."""
    return [
        Experiment(
            task("anchor/working-memory"),
            quick_model(layers=3, heads=2),
            quick_recipe(size, steps, batch=100, learning_rate=2e-3, weight_decay=0.1),
            Members(seeds=tuple(range(seeds))),
            "working memory",
        )
    ]


_QUICK = Profile(
    quick_experiments,
    "Quick profile: three layers of two heads, width 64 (0.1 M parameters), on the paper's 40000 sequences in batches "
    "of 100, but for 1800 steps (4.5 epochs) with learning rate 2e-3 and weight decay 0.1; four seeds. The paper "
    "trains four layers of four heads, width 400 (5.65 M parameters), for hundreds of epochs.",
)


def _paper() -> Profile:
    def experiments() -> list[Experiment]:
        return [
            Experiment(
                task("anchor/working-memory"),
                DecoderSpec(),
                paper_recipe(40_000, epochs=300, batch=100, every=10),
                Members(seeds=tuple(range(5))),
                "working memory",
            )
        ]

    return Profile(
        experiments,
        "Paper profile: the model and schedule of appendix A, and the 40000 sequences of the reference code, for the "
        "300 epochs that its figure shows, so that the learning rate is still rising at the end. The paper names no "
        "seeds (five here) and no weight decay (PyTorch's 0.01).",
    )


@dataclass(frozen=True)
class Held:
    """What members put out between the anchors and after them, over the sequences with long enough stretches.

    Shapes
        constant: share of positions with the most common output of their sequence's stretch `[member]`
        whole: share of stretches with a single output `[member]`
        offsets: the constant learned for each first anchor: most common output minus key `[member anchor]`
        intermediate: share of positions with the key plus that constant `[member]`
        possible: share of positions with what would be the answer under one second anchor or another `[member]`
        answered: share of positions from the second anchor on with the answer `[member]`
        is_intermediate, is_answer: whether an output is the one or the other `[member batch position]`
    """

    constant: Tensor
    whole: Tensor
    offsets: Tensor
    intermediate: Tensor
    possible: Tensor
    answered: Tensor
    is_intermediate: Tensor
    is_answer: Tensor


def first_stretch(batch: Batch) -> Tensor:
    """Positions from the first anchor up to before the second, `[batch position]`."""
    first, second = _anchors(batch)
    position = torch.arange(batch.inputs.shape[1])
    return (position >= first) & (position < second)


def _anchors(batch: Batch) -> tuple[Tensor, Tensor]:
    """Where the two anchors stand, each `[batch 1]`."""
    places = batch.latents["anchor_positions"]
    return places[:, :1], places[:, 1:2]


def read_held(outputs: Tensor, batch: Batch, first_anchors: Sequence[int], possible: Tensor) -> Held:
    """What outputs `[member batch position]` hold; `first_anchors` are those that may stand first.

    `possible` are the answers that each sequence would have under every anchor that may stand second, `[anchor batch]`.
    """
    stretch = first_stretch(batch)
    long = stretch.sum(dim=1) >= SHORTEST
    stretch = stretch & long[:, None]
    lengths = stretch.sum(dim=1)[long]
    key = batch.inputs.gather(1, batch.latents["key_positions"][:, :1])
    most_common = (_agreement(outputs) * stretch[:, :, None] * stretch[:, None, :]).sum(dim=-1).amax(dim=-1)[:, long]
    moved = outputs - key
    offsets, is_intermediate = [], torch.zeros(outputs.shape, dtype=torch.bool)
    for anchor in first_anchors:
        mine = batch.latents["anchors"][:, 0] == anchor
        offset = moved[:, stretch & mine[:, None]].mode(dim=-1).values
        offsets.append(offset)
        is_intermediate |= mine[:, None] & (moved == offset[:, None, None])
    after = torch.arange(batch.inputs.shape[1]) >= _anchors(batch)[1]
    is_answer = outputs == batch.answers[:, :1]
    is_possible = (outputs[..., None] == possible.T[:, None, :]).any(dim=-1)
    return Held(
        constant=most_common.sum(dim=1) / lengths.sum(),
        whole=(most_common == lengths).float().mean(dim=1),
        offsets=torch.stack(offsets, dim=1),
        intermediate=is_intermediate[:, stretch].float().mean(dim=1),
        possible=is_possible[:, stretch].float().mean(dim=1),
        answered=is_answer[:, after].float().mean(dim=1),
        is_intermediate=is_intermediate,
        is_answer=is_answer,
    )


def _agreement(outputs: Tensor) -> Tensor:
    """Whether two positions of a sequence hold the same output, `[member batch position position]`."""
    return outputs[..., :, None] == outputs[..., None, :]


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The numbers behind Figure 8, its examples, and the switch from the intermediate result to the answer."""
    (run,) = runs
    of = run.experiment.task
    assert isinstance(of, AnchorFunction)
    batch = of.sample("test", _LOOKED_AT, seed=0)
    outputs = look(run.ensemble(), batch.inputs)["output"].argmax(dim=-1)
    first_anchors = of.placement.choices["A"]
    held = read_held(outputs, batch, first_anchors, possible_answers(of, batch))
    accuracy = at_end(run, "test", "accuracy")
    learned = accuracy >= LEARNED
    own = torch.tensor([_offset(of, anchor) for anchor in first_anchors])
    measured: dict[str, Tensor | None] = {
        "one-value": held.constant[learned],
        "function-of-key": held.intermediate[learned],
        "own-operation": (held.offsets == own).float().mean(dim=1)[learned],
        "answer-kept": held.answered[learned],
    }
    if not learned.any():
        measured = dict.fromkeys(measured)
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="A key is followed by one of two anchors and, after noise of any length, by one of two others; the "
        f"answer is the key under both operations in turn, asked for at the end of {of.placement.length} tokens. Only "
        f"the last output is trained; here the outputs of all positions are read. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, {"learns": accuracy, **measured}, provenance.profile),
        figures=(_switch_figure(held, batch, of, learned), _learning_figure(run)),
        tables=(_example_table(run, of, batch, outputs), _seed_table(run, of, held, accuracy)),
    )


def possible_answers(of: AnchorFunction, batch: Batch) -> Tensor:
    """What each sequence's answer would be under every anchor that may stand second, `[anchor batch]`."""
    place = _anchors(batch)[1]
    return torch.stack(
        [of.oracle(batch.inputs.scatter(1, place, anchor)).answers[:, 0] for anchor in of.placement.choices["B"]]
    )


def _offset(of: AnchorFunction, anchor: int) -> int:
    """By how much an anchor's operation moves a key."""
    middle = sum(of.vocabulary.items) // 2
    return int(of.operations[anchor].results(of.vocabulary.size)[middle]) - middle


def around(values: Tensor, batch: Batch, rows: Tensor, reach: int) -> Tensor:
    """`[member batch position]`, aligned at the second anchor and averaged over the sequences in the mask `rows`.

    The result is `[member place]`; places run from `reach` before the second anchor to `reach` after it. Before it only
    positions from the first anchor on count; NaN where no sequence has such a place.
    """
    first, second = _anchors(batch)
    position = torch.arange(batch.inputs.shape[1])
    place = (position - second).masked_fill((position < first) | ~rows[:, None], reach + 1)
    return torch.stack([values[:, place == at].float().mean(dim=1) for at in range(-reach, reach + 1)], dim=1)


def _switch_figure(held: Held, batch: Batch, of: AnchorFunction, learned: Tensor) -> LineFigure:
    kept = learned if learned.any() else torch.ones_like(learned)
    changing = [anchor for anchor in of.placement.choices["B"] if _offset(of, anchor)]
    rows = torch.isin(batch.latents["anchors"][:, 1], torch.tensor(changing))
    places = range(-_AROUND, _AROUND + 1)
    names = ("key under the first anchor", "final answer")
    return LineFigure(
        title="What the output holds around the second anchor (Fig 8)",
        caption="Share of test sequences whose output is the intermediate result (the key plus the constant learned "
        "for the first anchor) or the final answer, by position relative to the second anchor; before it, only "
        "positions from the first anchor on. Only sequences whose second operation changes the value "
        f"(anchor {', '.join(map(str, changing))}), since elsewhere both are one. Mean over seeds that learned the "
        "task; the band reaches from the lowest to the highest.",
        x_label="position relative to the second anchor",
        y_label="share of sequences",
        lines=tuple(
            line(name, list(places), around(values, batch, rows, _AROUND)[kept])
            for name, values in zip(names, (held.is_intermediate, held.is_answer), strict=True)
        ),
        y_range=(0.0, 1.02),
    )


def _learning_figure(run: TrainedRun) -> LineFigure:
    steps, values = along(run, "test", "accuracy")
    unit = run.experiment.steps_per_unit
    return LineFigure(
        title="Test accuracy along training",
        caption="Mean over seeds; the band reaches from the lowest to the highest. In test the key stands at a "
        "position where training never shows it (modular residue).",
        x_label=run.experiment.recipe.unit,
        y_label="test accuracy",
        lines=(line("working memory", [step / unit for step in steps], values),),
        y_range=(0.0, 1.02),
    )


def _example_table(run: TrainedRun, of: AnchorFunction, batch: Batch, outputs: Tensor) -> Table:
    """Input and output of the first seed, one sequence for each pair of anchors, as Figure 8 shows them."""
    anchors, long = batch.latents["anchors"], first_stretch(batch).sum(dim=1) >= 2 * SHORTEST
    rows: list[tuple[str, str, str]] = []
    for first in of.placement.choices["A"]:
        for second in of.placement.choices["B"]:
            fitting = ((anchors == torch.tensor([first, second])).all(dim=1) & long).nonzero()
            if not len(fitting):
                continue
            at = int(fitting[0])
            key = int(batch.inputs[at, int(batch.latents["key_positions"][at, 0])])
            sum_text = f"{key}{_offset(of, first):+d}{_offset(of, second):+d}={int(batch.answers[at, 0])}"
            rows.append((f"input, anchors {first} and {second}", _tokens(batch.inputs[at]), sum_text))
            rows.append(("output", _tokens(outputs[0, at]), ""))
    return Table(
        title="Inputs and outputs (Fig 8)",
        caption=f"Seed {run.experiment.members.seeds[0]}; the first test sequence of each pair of anchors with at "
        f"least {2 * SHORTEST} positions from the first anchor until the second. Every position's most probable token.",
        columns=("", "tokens", "operations"),
        rows=tuple(rows),
    )


def _tokens(row: Tensor) -> str:
    return " ".join(map(str, row.tolist()))


def _seed_table(run: TrainedRun, of: AnchorFunction, held: Held, accuracy: Tensor) -> Table:
    first_anchors = of.placement.choices["A"]
    return Table(
        title="What the output holds, seed by seed",
        caption=f"On {_LOOKED_AT} test sequences; stretches from the first anchor until the second of at least "
        f"{SHORTEST} positions. A learned constant is the most common difference of output and key; a possible "
        "answer is the one that either second anchor would give. The last column is of positions from the second on.",
        columns=(
            "seed",
            "test accuracy",
            "positions with one value",
            "stretches of one value",
            *(f"constant of anchor {anchor} (operation {_offset(of, anchor):+d})" for anchor in first_anchors),
            "positions with key plus constant",
            "positions with a possible answer",
            "positions with the answer",
        ),
        rows=tuple(
            (
                seed,
                float(accuracy[member]),
                float(held.constant[member]),
                float(held.whole[member]),
                *(int(offset) for offset in held.offsets[member]),
                float(held.intermediate[member]),
                float(held.possible[member]),
                float(held.answered[member]),
            )
            for member, seed in enumerate(run.experiment.members.seeds)
        ),
    )


STUDY = Study(
    name="anchor/working-memory",
    title="Working memory: the intermediate result is held until the second anchor",
    claims=CLAIMS,
    profiles={
        "quick": _QUICK,
        "paper": _paper(),
        "smoke": Profile(
            lambda: quick_experiments(size=500, steps=4, seeds=2), "Smoke profile: four steps, for tests."
        ),
    },
    analyse=analyse,
)
