"""Two distances: layer 0 shifts by both, layer 1 reads where the anchor says.

After the anchor 3 the answer is the next token, after the anchor 4 the one after that.

Source: anchor functions, section 5.2 and Figure 14.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.findings import Map, MapFigure, Table, at_least, at_most, grid
from anchorlab.lens import broadcast_profile, look, shift_profile
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting, mirrored, only, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, quick_model, quick_recipe, reading
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.studies.kit import column_table, example
from anchorlab.studies.readings import first_at_end, sampled

DISTANCES = {"near": 1, "far": 2}  # positions from anchor to key, by rule: after 3 the next token, after 4 one later
LEARNED = 0.9  # the test accuracy from which a seed is judged
LOOKED_AT = 500  # test sequences
FIRST, SECOND = (f"blocks.{layer}.attn.hook_pattern" for layer in range(2))

QUICK = Setting(quick_model(heads=2), quick_recipe(2000, steps=1200), seeds=16)
MODEL = DecoderSpec(layers=2, heads=2, head_width=64)
SCALED = Setting(MODEL, paper_recipe(2000, epochs=400, every=10, whole=400), seeds=2)
PAPER = Setting(MODEL, paper_recipe(2000), seeds=5)


experiments = only("two distances", "anchor/two-distances", "two distances")


class Heads(Reading):
    """The shifts and sources of the heads of both layers, on test sequences."""

    accuracy = first_at_end("test", "accuracy")
    batch = sampled("test", LOOKED_AT)
    # the patterns `[member batch head query key]` of both layers
    record = reading(lambda seen: look(seen.first.ensemble(), seen.batch.inputs, record=[FIRST, SECOND]))
    # the shift to which each head of layer 0 gives most attention
    shifts = reading(lambda seen: shift_profile(seen.record[FIRST]).best)
    mass = reading(lambda seen: shift_profile(seen.record[FIRST]).value)  # its attention at this shift

    unrest = reading(lambda seen: unrest(seen.record[FIRST]))  # how much its map changes with the input

    @property
    def learned(self) -> Bool[Tensor, "member"]:
        """Which members learned the task."""
        return self.accuracy >= LEARNED

    @reading
    def sources(self) -> dict[str, Int[Tensor, "member head"]]:
        """By rule, how far after the anchor each head of layer 1 reads."""
        found, anchors = {}, self.batch.latents["anchor_positions"][:, 0]
        for rule in DISTANCES:
            of = self.batch.group == self.batch.groups.index(rule)
            found[rule] = broadcast_profile(self.record[SECOND][:, of], anchors[of], queries="last").best
        return found


def unrest(pattern: Float[Tensor, "member batch head query key"]) -> Float[Tensor, "member head"]:
    """Return the total variation of a row from its mean over sequences, averaged over rows; 0 for a constant map.

    The first row is left out, since a causal head has no choice there.
    """
    apart = (pattern - pattern.mean(dim=1, keepdim=True)).abs().sum(dim=-1) / 2
    return apart[..., 1:].mean(dim=(1, 3))


def _over_heads(values: Tensor, seen: Heads) -> Measurement:
    return over(values.float().mean(dim=1)[seen.learned], "seeds that learned")


@precondition("section 5.2 and Fig 14", "implied: maps are of a trained model", at_least(0.95))
def learned(seen: Heads) -> Float[Tensor, "seed"]:
    """The tasks of both distances are learned and generalise.

    Test accuracy, mean over seeds.
    """
    return seen.accuracy


@claim("section 5.2 and Fig 14a, b", "both heads of its model", at_least(0.8))
def two_shifts(seen: Heads) -> Bool[Tensor, "seed"]:
    """One head of layer 0 shifts by one position, the other by two.

    Share of seeds that learned whose two heads shift most strongly by 1 and by 2, in either order.
    """
    both = torch.tensor(sorted(DISTANCES.values()))
    return (seen.shifts.sort(dim=-1).values == both).all(dim=-1)[seen.learned]


@claim("section 5.2 and Fig 14a, b", "one dark diagonal each", at_least(0.5))
def shift_mass(seen: Heads) -> Measurement:
    """The heads that shift by one and by two positions do little else.

    Attention to the position of the head's strongest shift, mean over both heads and seeds that learned.
    """
    return _over_heads(seen.mass, seen)


@claim("section 5.2", "stable regardless of the input", at_most(0.2))
def stable(seen: Heads) -> Measurement:
    """Layer 0's maps are the same whatever the input.

    Total variation of a row of layer 0's maps from its mean over test sequences, mean over rows, heads and seeds that
    learned.
    """
    return _over_heads(seen.unrest, seen)


@claim("section 5.2 and Fig 14c", "one after the anchor", at_least(0.8))
def near_source(seen: Heads) -> Measurement:
    """Under the anchor 3 layer 1 broadcasts from the position after it.

    Share of heads of layer 1, over seeds that learned, in which the last position attends most to the first position
    after the anchor, on sequences with 3.
    """
    return _over_heads(seen.sources["near"] == DISTANCES["near"], seen)


@claim("section 5.2 and Fig 14d", "two after the anchor", at_least(0.8))
def far_source(seen: Heads) -> Measurement:
    """Under the anchor 4 layer 1 broadcasts from the second position after it.

    Share of heads of layer 1, over seeds that learned, in which the last position attends most to the second position
    after the anchor, on sequences with 4.
    """
    return _over_heads(seen.sources["far"] == DISTANCES["far"], seen)


def _maps(seen: Heads) -> MapFigure:
    run, batch, member = seen.first, seen.batch, int(seen.accuracy.argmax())
    middle, rows = batch.latents["anchor_positions"][:, 0] == 3, []
    for rule in DISTANCES:
        place, ticks = example(run.experiment.task, batch, middle & (batch.group == batch.groups.index(rule)))
        record = look(run.ensemble().select([member]), batch.inputs[place : place + 1], record=[FIRST, SECOND])
        maps = [
            Map(f"layer {layer}, head {head}", grid(values), ticks, ticks)
            for layer, site in enumerate((FIRST, SECOND))
            for head, values in enumerate(record[site][0, 0])
        ]
        rows.append(tuple(maps))
    seed = run.experiment.members.seeds[member]
    return MapFigure(
        title="Attention of a model of two layers with two heads (Fig 14)",
        caption=f"Seed {seed} on two test sequences, with the anchor 3 above and 4 below, both at the fourth "
        "position. In the paper one head of layer 0 shifts by one position and the other by two for every input; "
        "in layer 1 the position that is read lies one later for 4.",
        maps=tuple(rows),
        value_range=(0.0, 1.0),
        seeds=str(seed),
    )


def _table(seen: Heads) -> Table:
    heads, seeds = seen.shifts.shape[1], seen.first.experiment.members.seeds
    return column_table(
        "What the heads do, seed by seed",
        f"On {LOOKED_AT} test sequences. Shifts count positions back, sources positions after the anchor.",
        {
            "seed": [seed for seed in seeds for _ in range(heads)],
            "head": [*range(heads)] * len(seeds),
            "test accuracy": seen.accuracy.repeat_interleave(heads),
            "layer 0 shifts by": seen.shifts.flatten(),
            "its mass": seen.mass.flatten(),
            "its change with the input": seen.unrest.flatten(),
            "layer 1 reads, anchor 3": seen.sources["near"].flatten(),
            "layer 1 reads, anchor 4": seen.sources["far"].flatten(),
        },
    )


STUDY = Study(
    "anchor/two-distances",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Heads,
    draws=(_maps, _table),
    profiles={
        "quick": Profile(QUICK),
        "scaled": Profile(SCALED, "The paper's model; its schedule is shortened."),
        "paper": Profile(
            PAPER,
            f"The paper names neither the seeds nor the number of training sequences of this figure. {BATCH_NOTE}",
        ),
    },
    smoke=QUICK.shortened(steps=2, size=200),
    chosen_on=SEARCHED,
    other_task=mirrored,
)
