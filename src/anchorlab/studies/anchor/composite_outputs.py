"""What composite models put out at every position: offsets from the key, and mapping sequences.

Source: anchor functions, section 4.4, Definition 1, Figures 6 and 7.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.lens import distinct_counts, look, mapping_sequences
from anchorlab.tasks import Batch
from anchorlab.training import TrainedRun

ADDS = {1: 5, 2: 1, 3: -2, 4: -8}  # what each anchor adds to the key

LOOKED_AT = 1600  # inputs of the 15 trained pairs, about 107 of each; the unseen pair has a 15th of that


@dataclass(frozen=True)
class Outputs:
    """What members put out at every position of test inputs; `pairs` names the pairs of anchors."""

    inputs: Int[Tensor, "batch position"]
    keys: Int[Tensor, "batch"]  # the key's position
    first_anchor: Int[Tensor, "batch"]
    pair: Int[Tensor, "batch"]  # index into `pairs`
    pairs: tuple[str, ...]
    tokens: Int[Tensor, "member batch position"]  # the most probable ones
    sequences: Int[Tensor, "member batch move"]  # mapping sequences
    right: Bool[Tensor, "member batch"]  # whether the last position has the answer
    kept: Bool[Tensor, "member batch"]  # whether every position from the second anchor on has it
    first: Int[Tensor, "member batch"]  # offset from the key at the first anchor
    second: Int[Tensor, "member batch"]  # offset from the key at the second anchor

    @cached_property
    def counts(self) -> Float[Tensor, "member pair"]:
        """The number of mapping sequences over each pair's inputs answered rightly; NaN for no such input."""
        return self._per_pair(lambda count: torch.tensor(len(count)))

    @cached_property
    def most_common(self) -> Float[Tensor, "member pair"]:
        """The share of each pair's inputs answered rightly that have its most common mapping sequence; NaN for none."""
        return self._per_pair(lambda count: count[0] / count.sum())

    def _per_pair(self, number: Callable[[Tensor], Tensor]) -> Float[Tensor, "member pair"]:
        values = torch.full((len(self.tokens), len(self.pairs)), float("nan"))
        for member, sequences in enumerate(self.sequences):
            for pair in range(len(self.pairs)):
                count = distinct_counts(sequences[self.right[member] & (self.pair == pair)])
                if len(count):
                    values[member, pair] = number(count)
        return values

    @cached_property
    def answer_kept(self) -> Float[Tensor, "member"]:
        """The share of the inputs answered rightly that have the answer from the second anchor on; NaN for none."""
        return (self.kept & self.right).sum(dim=1) / self.right.sum(dim=1)

    @cached_property
    def learned_first(self) -> Int[Tensor, "anchor member"]:
        """The most common offset from the key at the first anchor, for each anchor that comes first."""
        return torch.stack([self.first[:, self.first_anchor == one].mode(dim=1).values for one in ADDS])

    def share_of_learned_first(self) -> Float[Tensor, "anchor member"]:
        """Return the share of each first anchor's inputs that have its most common offset there."""
        shares = [
            (self.first[:, self.first_anchor == one] == learned[:, None]).float().mean(dim=1)
            for one, learned in zip(ADDS, self.learned_first, strict=True)
        ]
        return torch.stack(shares)


def see_outputs(run: TrainedRun) -> Outputs:
    """Read a run's outputs on inputs of all pairs, the unseen one last."""
    of = run.experiment.task
    batches = [of.sample("test on data", LOOKED_AT, seed=0), of.sample("test on task", LOOKED_AT // 15, seed=0)]
    record = look(run.ensemble(), torch.cat([batch.inputs for batch in batches]))
    return read_outputs(batches, record["output"].argmax(dim=-1))


def read_outputs(batches: Sequence[Batch], tokens: Int[Tensor, "member batch position"]) -> Outputs:
    """Read outputs on the inputs of batches, one batch after the other."""
    inputs = torch.cat([batch.inputs for batch in batches])
    anchors, places, keys = (
        torch.cat([batch.latents[name] for batch in batches])
        for name in ("anchors", "anchor_positions", "key_positions")
    )
    key, second = inputs.gather(1, keys), places[:, 1:]
    answered = tokens == torch.cat([batch.answers for batch in batches])
    before = torch.arange(inputs.shape[1]) < second
    return Outputs(
        inputs,
        keys[:, 0],
        first_anchor=anchors[:, 0],
        pair=torch.cat([batch.group for batch in batches if batch.group is not None]),
        pairs=batches[0].groups,
        tokens=tokens,
        sequences=mapping_sequences(inputs, tokens, keys[:, 0]),
        right=answered[..., -1],
        kept=(answered | before).all(dim=-1),
        first=_at(tokens - key, places[:, :1]),
        second=_at(tokens - key, second),
    )


def _at(values: Int[Tensor, "member batch position"], place: Int[Tensor, "batch 1"]) -> Int[Tensor, "member batch"]:
    return values.gather(-1, place.expand(len(values), -1, 1)).squeeze(-1)
