"""Two distances between anchor and key: the first layer's heads shift by either, the second's source follows.

Source: anchor functions, section 5.2, Figure 14.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, Map, MapFigure, Provenance, Table, grid
from anchorlab.lens import broadcast_profile, look, shift_profile
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import Batch, task
from anchorlab.training import Experiment, Members, TrainedRun

DISTANCES = {"near": 1, "far": 2}
"""Positions from the anchor to its key, by rule: 3 has it right behind, 4 one later."""

LEARNED = 0.9
"""A seed is judged once its test accuracy is at least this."""

_LOOKED_AT = 500
_FIRST, _SECOND = (f"blocks.{layer}.attn.hook_pattern" for layer in range(2))
_SOURCE = "anchor functions, section 5.2 and Fig 14"

CLAIMS = (
    Claim(
        "anchor/two-distances/learned",
        "Both distances are learned and generalise",
        _SOURCE,
        "implied: maps are of a trained model",
        "test accuracy, mean over seeds",
        (0.95, 1.0),
    ),
    Claim(
        "anchor/two-distances/two-shifts",
        "One head of the first layer shifts by one position, the other by two",
        f"{_SOURCE}a, b",
        "both heads of its model",
        "share of seeds whose two heads shift best by 1 and by 2, either way round; seeds that learned",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/two-distances/shift-mass",
        "These heads do little else",
        f"{_SOURCE}a, b",
        "one dark diagonal each",
        "attention that goes to the position of the head's best shift, mean over both heads and seeds that learned",
        (0.5, 1.0),
    ),
    Claim(
        "anchor/two-distances/stable",
        "The first layer's maps are the same whatever the input",
        "anchor functions, section 5.2",
        "stable regardless of the input",
        "distance (total variation) of a row from its mean over test sequences, mean over rows, heads and seeds that "
        "learned",
        (None, 0.2),
    ),
    Claim(
        "anchor/two-distances/near-source",
        "Under the anchor 3 the second layer broadcasts from the position after it",
        f"{_SOURCE}c",
        "one after the anchor",
        "share of heads and seeds whose last position reads most from there, on sequences with 3; seeds that learned",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/two-distances/far-source",
        "Under the anchor 4 it broadcasts from one position later",
        f"{_SOURCE}d",
        "two after the anchor",
        "share of heads and seeds whose last position reads most from two after the anchor, on sequences with 4; seeds "
        "that learned",
        (0.8, 1.0),
    ),
)


def quick_experiments(steps: int = 1200, seeds: int = 5, size: int = 2000) -> list[Experiment]:
    """Two layers of two heads, width 64, as many sequences as the paper's."""
    return [
        Experiment(
            task("anchor/two-distances"),
            quick_model(heads=2),
            quick_recipe(size, steps),
            Members(seeds=tuple(range(seeds))),
            "two distances",
        )
    ]


def _paper_experiments() -> list[Experiment]:
    members = Members(seeds=tuple(range(5)))
    model = DecoderSpec(layers=2, heads=2)
    return [Experiment(task("anchor/two-distances"), model, paper_recipe(2000), members, "two distances")]


@dataclass(frozen=True)
class Heads:
    """What the heads of both layers do on test sequences.

    Shapes
        shifts, mass: by how much each head of layer 1 shifts best, and the attention there, `[member head]`
        unrest: mean distance of a row of layer 1's maps from its mean over sequences, `[member head]`
        sources: where the last position reads most, in positions after the anchor, by rule, `[member head]`
    """

    shifts: Tensor
    mass: Tensor
    unrest: Tensor
    sources: dict[str, Tensor]

    @property
    def both_shifts(self) -> Tensor:
        """Whether a member's two heads shift by the two distances, `[member]`."""
        wanted = torch.tensor(sorted(DISTANCES.values()))
        return (self.shifts.sort(dim=-1).values == wanted).all(dim=-1)


def measure_heads(first: Tensor, second: Tensor, batch: Batch) -> Heads:
    """Shifts of the first layer and sources of the second, from patterns `[member batch head query key]`."""
    shifts = shift_profile(first)
    anchors, rules = batch.latents["anchor_positions"][:, 0], batch.group
    sources = {}
    for rule in DISTANCES:
        of = rules == batch.groups.index(rule)
        sources[rule] = broadcast_profile(second[:, of], anchors[of], queries="last").best
    return Heads(shifts.best, shifts.value, unrest(first), sources)


def unrest(pattern: Tensor) -> Tensor:
    """How much a head's map depends on the input: the total variation of a row from its mean over sequences, averaged.

    Takes patterns `[member batch head query key]` and gives `[member head]`; 0 for maps that never change. The first
    row of a causal head has no choice and is left out.
    """
    apart = (pattern - pattern.mean(dim=-4, keepdim=True)).abs().sum(dim=-1) / 2
    return apart[..., 1:].mean(dim=(-1, -3))


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The four maps of Figure 14, and what they show over all seeds."""
    (run,) = runs
    batch = run.experiment.task.sample("test", _LOOKED_AT, seed=0)
    record = look(run.ensemble(), batch.inputs, record=[_FIRST, _SECOND])
    heads = measure_heads(record[_FIRST], record[_SECOND], batch)
    accuracy = at_end(run, "test", "accuracy")
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary=f"After the anchor 3 the answer is the next token, after the anchor 4 the one after that. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(
            CLAIMS,
            _measured(accuracy, heads),
            provenance.profile,
            dict.fromkeys(("shift-mass", "stable", "near-source", "far-source"), "heads of all seeds that learned"),
        ),
        figures=(_figure(run, batch, accuracy),),
        tables=(_table(run, accuracy, heads),),
    )


def _measured(accuracy: Tensor, heads: Heads) -> dict[str, Tensor | None]:
    learned = accuracy >= LEARNED

    def of(values: Tensor) -> Tensor | None:
        return values[learned].float().flatten() if bool(learned.any()) else None

    return {
        "learned": accuracy,
        "two-shifts": of(heads.both_shifts),
        "shift-mass": of(heads.mass),
        "stable": of(heads.unrest),
        **{f"{rule}-source": of(heads.sources[rule] == distance) for rule, distance in DISTANCES.items()},
    }


def _figure(run: TrainedRun, batch: Batch, accuracy: Tensor) -> MapFigure:
    """The maps of one model: the first layer's two heads, and both heads of the second under either anchor."""
    member = int(accuracy.argmax())
    middle = batch.latents["anchor_positions"][:, 0] == 3
    rows = []
    for rule in DISTANCES:
        chosen = int((middle & (batch.group == batch.groups.index(rule))).nonzero()[0])
        inputs = batch.inputs[chosen : chosen + 1]
        ticks = tuple(token.text for token in run.experiment.task.render(inputs)[0].tokens)
        record = look(run.ensemble().select([member]), inputs, record=[_FIRST, _SECOND])
        rows.append(
            tuple(
                Map(f"layer {layer}, head {head}", grid(values), ticks, ticks)
                for layer, site in ((1, _FIRST), (2, _SECOND))
                for head, values in enumerate(record[site][0, 0])
            )
        )
    seed = run.experiment.members.seeds[member]
    return MapFigure(
        title="Attention of a model of two layers with two heads (Fig 14)",
        caption=f"Seed {seed} on two test sequences, with the anchor 3 above and 4 below, both at the fourth position. "
        "In the paper one head of layer 1 shifts by one position and the other by two, whatever the input; in layer 2 "
        "the position that is read lies one later for 4.",
        maps=tuple(rows),
        value_range=(0.0, 1.0),
    )


def _table(run: TrainedRun, accuracy: Tensor, heads: Heads) -> Table:
    rows = [
        (
            seed,
            head,
            float(accuracy[index]),
            int(heads.shifts[index, head]),
            float(heads.mass[index, head]),
            float(heads.unrest[index, head]),
            *(int(heads.sources[rule][index, head]) for rule in DISTANCES),
        )
        for index, seed in enumerate(run.experiment.members.seeds)
        for head in range(heads.shifts.shape[1])
    ]
    return Table(
        title="What the heads do, seed by seed",
        caption=f"On {_LOOKED_AT} test sequences. Shifts count positions back, sources positions after the anchor.",
        columns=(
            "seed",
            "head",
            "test accuracy",
            "layer 1 shifts by",
            "its mass",
            "its change with the input",
            "layer 2 reads, anchor 3",
            "layer 2 reads, anchor 4",
        ),
        rows=tuple(rows),
    )


STUDY = Study(
    name="anchor/two-distances",
    title="Two distances: the first layer shifts by both, the second reads where the anchor says",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            quick_experiments,
            "Quick profile: two layers of two heads, width 64, on 2000 sequences, 1200 steps of batch 50 with learning "
            "rate 6e-3 and weight decay 0.3, five seeds. The paper's model has the same heads and is 400 wide.",
        ),
        "paper": Profile(
            _paper_experiments,
            "Paper profile: two layers of two heads, width 400, 2000 sequences, 4000 epochs. The paper names neither "
            "the seeds (five here) nor the training sequences of this figure.",
        ),
        "smoke": Profile(lambda: quick_experiments(steps=2, seeds=2, size=200), "Smoke profile: two steps, for tests."),
    },
    analyse=analyse,
)
