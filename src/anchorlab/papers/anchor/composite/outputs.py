"""What composite models put out at every position: offsets from the key, and mapping sequences.

Source: anchor functions, section 4.4, Definition 1, Figures 6 and 7.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.findings import Table
from anchorlab.lens import distinct_counts, look, mapping_sequences
from anchorlab.studies.kit import column_table
from anchorlab.tasks import Batch, Task
from anchorlab.training import TrainedRun

UNSEEN = "test on task"  # the split of the pairs that are never trained
MOST = 0.5  # a pair's mapping sequences are counted if at least this share of its inputs is answered correctly
COMMON = 0.05  # a mapping sequence is common if at least this share of a pair's inputs has it
LOOKED_AT = 1600  # inputs of the 15 trained pairs, about 107 of each; the unseen pair has a 15th of that


@dataclass(frozen=True)
class Outputs:
    """The members' outputs at every position of test inputs; `pairs` names the pairs of anchors."""

    inputs: Int[Tensor, "batch position"]
    keys: Int[Tensor, "batch"]  # the key's position
    first_anchor: Int[Tensor, "batch"]
    pair: Int[Tensor, "batch"]  # index into `pairs`
    pairs: tuple[str, ...]
    unseen: Bool[Tensor, "pair"]  # whether a pair is never trained
    adds: Mapping[int, int]  # what each anchor adds to the key
    tokens: Int[Tensor, "member batch position"]  # the most probable ones
    sequences: Int[Tensor, "member batch move"]  # mapping sequences
    right: Bool[Tensor, "member batch"]  # whether the last position has the answer
    kept: Bool[Tensor, "member batch"]  # whether every position from the second anchor on has it
    first: Int[Tensor, "member batch"]  # offset from the key at the first anchor
    second: Int[Tensor, "member batch"]  # offset from the key at the second anchor

    @cached_property
    def counts(self) -> Float[Tensor, "member pair"]:
        """The number of mapping sequences among each pair's correct inputs; NaN if fewer than `MOST` are correct."""
        return self._per_pair(lambda count: torch.tensor(len(count)))

    @cached_property
    def most_common(self) -> Float[Tensor, "member pair"]:
        """The share of each pair's correct inputs with its most common mapping sequence; NaN as in `counts`."""
        return self._per_pair(lambda count: count[0] / count.sum())

    @cached_property
    def common(self) -> Float[Tensor, "member pair"]:
        """The number of mapping sequences that each occur in at least `COMMON` of a pair's correct inputs."""
        return self._per_pair(lambda count: (count >= COMMON * count.sum()).sum())

    def over_pairs(self, values: Float[Tensor, "member pair"], unseen: bool = False) -> Float[Tensor, "member"]:
        """Return the mean of `values` over the trained or the unseen pairs, leaving out NaN."""
        return values[:, self.unseen == unseen].nanmean(dim=1)

    def _per_pair(self, number: Callable[[Tensor], Tensor]) -> Float[Tensor, "member pair"]:
        values = torch.full((len(self.tokens), len(self.pairs)), float("nan"))
        for member, sequences in enumerate(self.sequences):
            for pair in range(len(self.pairs)):
                right = self.right[member] & (self.pair == pair)
                count = distinct_counts(sequences[right])
                if len(count) and right.sum() >= MOST * (self.pair == pair).sum():
                    values[member, pair] = number(count)
        return values

    @cached_property
    def answer_kept(self) -> Float[Tensor, "member"]:
        """The share of correct inputs with the answer from the second anchor on; NaN if none is correct."""
        return (self.kept & self.right).sum(dim=1) / self.right.sum(dim=1)

    @cached_property
    def learned_first(self) -> Int[Tensor, "anchor member"]:
        """The most common difference of output and key at an anchor that comes first, for each anchor."""
        return torch.stack([self.first[:, self.first_anchor == one].mode(dim=1).values for one in self.adds])

    def share_of_learned_first(self) -> Float[Tensor, "anchor member"]:
        """Return, for each first anchor, the share of its inputs with its most common offset, `learned_first`."""
        shares = [
            (self.first[:, self.first_anchor == one] == learned[:, None]).float().mean(dim=1)
            for one, learned in zip(self.adds, self.learned_first, strict=True)
        ]
        return torch.stack(shares)


def see_outputs(run: TrainedRun) -> Outputs:
    """Read a run's outputs on inputs of all pairs, the unseen one last."""
    of = run.experiment.task
    batches = [of.sample("test on data", LOOKED_AT, seed=0), of.sample(UNSEEN, LOOKED_AT // 15, seed=0)]
    record = look(run.ensemble(), torch.cat([batch.inputs for batch in batches]))
    return read_outputs(batches, record["output"].argmax(dim=-1), added_by(of))


def added_by(of: Task) -> dict[int, int]:
    """Return the shift that each anchor of an anchor function adds to the key."""
    zero = np.zeros(1, dtype=np.int64)
    return {one: int(operation(zero)[0]) for one, operation in of.operations.items()}  # type: ignore[attr-defined]


def read_outputs(
    batches: Sequence[Batch], tokens: Int[Tensor, "member batch position"], adds: Mapping[int, int]
) -> Outputs:
    """Read outputs on the inputs of batches, one batch after the other."""
    inputs = torch.cat([batch.inputs for batch in batches])
    anchors, places, keys = (
        torch.cat([batch.latents[name] for batch in batches])
        for name in ("anchors", "anchor_positions", "key_positions")
    )
    key, second = inputs.gather(1, keys), places[:, 1:]
    answered = tokens == torch.cat([batch.answers for batch in batches])
    before = torch.arange(inputs.shape[1]) < second
    pair = torch.cat([batch.group for batch in batches if batch.group is not None])
    never = torch.cat([torch.full((len(batch.inputs),), batch.split == UNSEEN) for batch in batches])
    return Outputs(
        inputs,
        keys[:, 0],
        first_anchor=anchors[:, 0],
        pair=pair,
        pairs=batches[0].groups,
        unseen=torch.isin(torch.arange(len(batches[0].groups)), pair[never]),
        adds=adds,
        tokens=tokens,
        sequences=mapping_sequences(inputs, tokens, keys[:, 0]),
        right=answered[..., -1],
        kept=(answered | before).all(dim=-1),
        first=_at(tokens - key, places[:, :1]),
        second=_at(tokens - key, second),
    )


def _at(values: Int[Tensor, "member batch position"], place: Int[Tensor, "batch 1"]) -> Int[Tensor, "member batch"]:
    return values.gather(-1, place.expand(len(values), -1, 1)).squeeze(-1)


def output_tables(outputs: Outputs, layers: int) -> list[Table]:
    """Return the tables of Figure 6: learned operations at the first anchor, by pair, and examples."""
    return [_first_table(outputs, layers), _pair_table(outputs, layers), _example_table(outputs, layers)]


def _signed(values: Sequence[int]) -> list[str]:
    return [f"{value:+d}" for value in values]


def _first_table(outputs: Outputs, layers: int) -> Table:
    given, learned = list(outputs.adds.values()), outputs.learned_first.mode(dim=1).values
    return column_table(
        f"Learned operation at the first anchor, {layers} layers (Fig 6)",
        "Learned: what most seeds add to the key at the first anchor in most of their outputs there. The loss never "
        "asks for an output at the first anchor, which cannot see the second.",
        {
            "anchor": list(outputs.adds),
            "given": _signed(given),
            "given, twice": _signed([2 * one for one in given]),
            "learned": _signed(learned.tolist()),
            "share of seeds": (outputs.learned_first == learned[:, None]).float().mean(dim=1),
            "share of inputs": outputs.share_of_learned_first().mean(dim=1),
        },
    )


def _pair_table(outputs: Outputs, layers: int) -> Table:
    given = [[outputs.adds[int(anchor)] for anchor in pair.split(",")] for pair in outputs.pairs]
    chosen = [outputs.pair == pair for pair in range(len(outputs.pairs))]
    first = [int(outputs.first[0, of].mode().values) for of in chosen]
    second = [int(outputs.second[0, of].mode().values) for of in chosen]
    return column_table(
        f"Given and learned operations by pair, {layers} layers (Fig 6)",
        "Learned: the most common offset from the key at the first anchor, and what the second adds to it, of the "
        "first seed. The last three columns are means over seeds.",
        {
            "pair": outputs.pairs,
            "given operations": [", ".join(_signed(both)) for both in given],
            "answer - key": _signed([sum(both) for both in given]),
            "learned operations": [", ".join(_signed([a, b - a])) for a, b in zip(first, second, strict=True)],
            "output at second anchor - key": _signed(second),
            "accuracy": [float(outputs.right[:, of].float().mean()) for of in chosen],
            "mapping sequences": outputs.counts.nanmean(dim=0),
            "share of the most common": outputs.most_common.nanmean(dim=0),
        },
    )


def _example_table(outputs: Outputs, layers: int, count: int = 3) -> Table:
    rows = []
    for index in ((outputs.keys <= 2) & outputs.right[0]).nonzero()[:count, 0].tolist():
        key, moves = int(outputs.keys[index]), outputs.sequences[0, index]
        last = int(moves.nonzero()[-1, 0]) if moves.any() else 0
        shown = ["·"] * (key + 1) + [str(token) for token in outputs.tokens[0, index, key + 1 :].tolist()]
        tokens = " ".join(map(str, outputs.inputs[index].tolist()))
        rows.append((tokens, " ".join(shown), ", ".join(_signed(moves[: last + 1].tolist()))))
    return Table(
        f"Outputs at every position, {layers} layers (Fig 6, examples)",
        "Test inputs that the first seed answers rightly, its output from the first anchor on, and their mapping "
        "sequences.",
        columns=("input", "output", "mapping sequence"),
        rows=tuple(rows),
    )
