"""Proofs that the splits of a task never meet, in words and numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from anchorlab.tasks.task import Task

SAMPLES = 1_000_000
"""How many sequences of each split the predicate is tried on where the latents are too many to list."""

_AT_ONCE = 100_000


@dataclass(frozen=True)
class Proof:
    """What was shown about a task's splits, and how.

    `method` is `enumeration` when every latent was listed, `samples` when the predicate was tried on many sequences;
    `words` tells it in sentences, `numbers` holds the same as plain data. `holds`: everything that splits owe is so.
    """

    method: Literal["enumeration", "samples"]
    holds: bool
    words: tuple[str, ...]
    numbers: Mapping[str, Any]


def prove_by_samples(task: "Task", samples: int | None = None) -> Proof:
    """Draws from every split, a million sequences unless told otherwise, and asks on which side each one stands."""
    samples = SAMPLES if samples is None else samples
    crossed = crossings(task, samples)
    total = sum(crossed.values())
    words: tuple[str, ...]
    if task.separated:
        words = (f"{samples:,} sequences of each split were drawn; {total:,} of them stand outside their split.",)
    else:
        words = (
            "Splits differ in how sequences are drawn; the same sequence may come up in several.",
            f"{samples:,} sequences of each split were drawn; {total:,} of them could not have come from it.",
        )
    return Proof("samples", total == 0, words, {"samples": samples, "crossed": crossed, "separated": task.separated})


def crossings(task: "Task", samples: int) -> dict[str, int]:
    """For each split, how many of its sequences the predicate places elsewhere, or nowhere."""
    crossed = {}
    for index, split in enumerate(task.splits):
        found = 0
        for start in range(0, samples, _AT_ONCE):
            inputs = task.sample(split, min(_AT_ONCE, samples - start), seed=start).inputs
            sides = task.split_of(inputs)
            found += int(((sides != index) if task.separated else (sides < 0)).sum())
        crossed[split] = found
    return crossed
