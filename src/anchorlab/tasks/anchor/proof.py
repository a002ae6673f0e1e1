"""What an anchor function's separation owes: disjoint splits, and tests that ask for nothing unseen."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Int

from anchorlab.errors import SpecError
from anchorlab.tasks.anchor.latent import Latent
from anchorlab.tasks.proof import SAMPLES, Proof, crossings

if TYPE_CHECKING:
    from anchorlab.tasks.anchor.function import AnchorFunction

MOST_LATENTS = 2**20
"""How many latents a proof lists; beyond that it tries samples."""

_MOST_AT_ONCE = 2**17  # what every construction of a task lists


def every_latent(task: "AnchorFunction", most: int = MOST_LATENTS) -> Latent | None:
    """Every frame with every item in each of its slots, once; None where they are more than `most`."""
    frames, items = task.layout.frames, np.arange(task.vocabulary.items[0], task.vocabulary.items[1] + 1)
    slots = (frames.key_positions >= 0).sum(axis=1)
    if (float(len(items)) ** slots).sum() > MOST_LATENTS or any(
        rule.answer.reads_noise for rule in task.rules.values()
    ):
        return None
    parts = []
    for count in np.unique(slots).tolist():
        mine = frames.select(np.flatnonzero(slots == count))
        choices = np.stack(np.meshgrid(*[items] * count, indexing="ij"), axis=-1).reshape(-1, count) if count else None
        ways = 1 if choices is None else len(choices)
        keys = np.full((len(mine) * ways, frames.keys.shape[1]), -1)
        if choices is not None:
            keys[:, :count] = np.tile(choices, (len(mine), 1))
        parts.append(mine.select(np.repeat(np.arange(len(mine)), ways)).with_keys(keys))
    return Latent(*(np.concatenate(values) for values in zip(*(vars(part).values() for part in parts), strict=True)))


def prove_coverage(task: "AnchorFunction") -> None:
    """Raises `SpecError` where an operation leaves the vocabulary or test asks for what training never shows.

    Where latents are too many to list, keys are still compared exactly; answers only by `prove`.
    """
    latents = every_latent(task, _MOST_AT_ONCE)
    if latents is None:
        if task.separation.covering:
            for unseen in _unseen_keys(task):
                raise _uncovered("key", unseen)
        return
    side = task.separation.side(latents, task.placement.length)
    kept = np.flatnonzero(side >= 0)
    latents, side = latents.select(kept), side[kept]
    answer = task.answer(latents, None).answer
    _check_answers(task, latents, answer)
    drawable = answer >= 0
    if not task.layout.alone:
        for rows, again in _read_back(task, latents):
            drawable[rows] &= again.found
    _check_frames(task, latents, side, drawable)
    if not task.separation.covering:
        return
    good = np.flatnonzero(drawable)
    latents, answer, side = latents.select(good), answer[good], side[good]
    for what, tokens in (("key", latents.keys), ("answer", answer[:, None])):
        unseen_tokens = np.setdiff1d(tokens[side > 0], tokens[side == 0])
        unseen_tokens = unseen_tokens[unseen_tokens >= 0]
        if unseen_tokens.size:
            raise _uncovered(what, int(unseen_tokens[0]))


def _check_answers(task: "AnchorFunction", latents: Latent, answer: Int[np.ndarray, "row"]) -> None:
    for index, (name, rule) in enumerate(task.rules.items()):
        missing = np.flatnonzero((answer < 0) & (latents.rule == index))
        if not missing.size or rule.answer.may_be_nothing:
            continue
        one = latents.select(missing[:1])
        shown = {**dict(zip(rule.pattern.anchors, one.anchors[0].tolist(), strict=False)),
                 **dict(zip(rule.pattern.keys, one.keys[0].tolist(), strict=False))}  # fmt: skip
        values = ", ".join(f"{slot} = {value}" for slot, value in shown.items())
        field, what = f"rules.{name}", f"`{rule.answer.text:.60}`"
        for step in rule.answer.evaluate(task.reading(one, index, None))[2]:
            if step.value[0] < 0:
                anchor = shown[step.slot]
                field, what = f"operations.{anchor}", str(task.operations[anchor])
                break
        raise SpecError(
            field,
            f"{what} leaves the {task.vocabulary.size} tokens where {values}",
            "use a larger vocabulary.size or a smaller step",
        )


def _check_frames(
    task: "AnchorFunction", latents: Latent, side: Int[np.ndarray, "row"], drawable: Bool[np.ndarray, "row"]
) -> None:
    frame = task.layout.frame_of(latents)
    for index, (name, drawing) in enumerate(zip(task.splits, task.drawings, strict=True)):
        assert drawing is not None  # refused at construction
        if np.setdiff1d(drawing.frames, frame[drawable & (side == index)]).size:
            raise SpecError(
                "rules", f"have no single answer for some anchors and places of {name}", "use more items or other rules"
            )


def _read_back(task: "AnchorFunction", latents: Latent) -> Iterator[tuple[Int[np.ndarray, "row"], Latent]]:
    """The latents, some at a time, as they are read after being written into sequences."""
    for start in range(0, len(latents), 2**16):
        rows = np.arange(start, min(start + 2**16, len(latents)))
        mine = latents.select(rows)
        sequences = np.full((len(rows), task.placement.length), task.vocabulary.items[0])
        task.layout.write(sequences, task.layout.frame_of(mine), mine)
        yield rows, task.layout.find(sequences)


def _uncovered(what: str, token: int) -> SpecError:
    problem = (
        f"asks in test for token {token}, which is never a key in training"
        if what == "key"
        else f"asks in test for the answer {token}, which training never shows"
    )
    return SpecError("separation", problem, "hold out fewer keys, or let it pass with covering = false")


def _unseen_keys(task: "AnchorFunction") -> list[int]:
    shown: list[set[int]] = []
    for drawing in task.drawings:
        assert drawing is not None  # refused at construction
        kinds = np.unique(drawing.kind).tolist()
        shown.append({int(key) for kind in kinds for key in drawing.listed(kind)})
    return sorted(set().union(*shown[1:]) - shown[0] - {-1})


def prove(task: "AnchorFunction") -> Proof:
    """Enumeration of every latent where they are few, else the predicate on a million sequences of each split."""
    latents = every_latent(task)
    return _by_samples(task) if latents is None else _by_enumeration(task, latents)


def _by_enumeration(task: "AnchorFunction", latents: Latent) -> Proof:
    side = task.separation.side(latents, task.placement.length)
    drawn, read, misread = np.zeros(len(latents), dtype=bool), 0, 0
    answer = task.answer(latents, None).answer
    for rows, again in _read_back(task, latents):
        drawn[rows] = again.found & (answer[rows] >= 0)
        kept = np.flatnonzero(drawn[rows])
        same = (again.columns() == latents.select(rows).columns()).all(axis=1)
        same &= task.separation.side(again, task.placement.length) == side[rows]
        read, misread = read + len(kept), misread + int((~same[kept]).sum())
    columns = latents.columns()
    sets = [columns[drawn & (side == index)] for index in range(len(task.splits))]
    counts = dict(zip(task.splits, map(len, sets), strict=True))
    together = np.concatenate(sets)
    meeting = len(together) - len(np.unique(together, axis=0))
    seen = {
        what: {
            split: set(tokens[drawn & (side == index)].ravel().tolist()) - {-1} for index, split in enumerate(counts)
        }
        for what, tokens in (("keys", latents.keys), ("answers", answer))
    }
    unseen = {
        what: sorted(set().union(*list(sets_of.values())[1:]) - sets_of["train"]) for what, sets_of in seen.items()
    }
    covered = not any(unseen.values()) or not task.separation.covering
    left_out = int((~drawn).sum())
    nowhere = int((drawn & (side < 0)).sum())
    words = [
        f"All {len(latents):,} ways to set anchors, positions and keys were listed: "
        + ", ".join(f"{count:,} for {split}" for split, count in counts.items())
        + (f", {nowhere:,} for none" if nowhere else "") + ".",
        f"{meeting:,} of them stand in two splits.",
        f"Each was written into a sequence and read back: {misread:,} of {read:,} were read otherwise.",
        *([f"{left_out:,} are never drawn: they fit several rules, or have no answer."] if left_out else []),
        *_coverage_words({what: {s: len(v) for s, v in sets_of.items()} for what, sets_of in seen.items()}, unseen),
    ]  # fmt: skip
    numbers = {
        "latents": counts,
        "nowhere": nowhere,
        "never drawn": left_out,
        "meeting": meeting,
        "misread": misread,
        "keys": {split: len(tokens) for split, tokens in seen["keys"].items()},
        "answers": {split: len(tokens) for split, tokens in seen["answers"].items()},
        "unseen": unseen,
    }
    return Proof("enumeration", not meeting and not misread and covered, tuple(words), numbers)


def _by_samples(task: "AnchorFunction") -> Proof:
    crossed = crossings(task, SAMPLES)
    latents = {split: drawing.latents for split, drawing in zip(task.splits, task.drawings, strict=True) if drawing}
    seen = {split: torch.unique(task.sample(split, SAMPLES // 5, seed=1).answers).tolist() for split in task.splits}
    unseen = {
        "keys": _unseen_keys(task),
        "answers": sorted(set().union(*list(seen.values())[1:]) - set(seen["train"])),
    }
    covered = not any(unseen.values()) or not task.separation.covering
    words = [
        "There are " + ", ".join(f"{count:.3g} latents for {split}" for split, count in latents.items())
        + ": too many to list. In each slot of each frame the keys allowed in training and in test do not meet.",
        f"{SAMPLES:,} sequences of each split were drawn; {sum(crossed.values()):,} of them stand outside their split.",
        *_coverage_words({"answers": {split: len(tokens) for split, tokens in seen.items()}}, unseen),
    ]  # fmt: skip
    numbers = {"samples": SAMPLES, "crossed": crossed, "latents": latents, "unseen": unseen,
               "answers": {split: len(tokens) for split, tokens in seen.items()}}  # fmt: skip
    return Proof("samples", not sum(crossed.values()) and covered, tuple(words), numbers)


def _coverage_words(counts: dict[str, dict[str, int]], unseen: dict[str, list[int]]) -> list[str]:
    words = [
        f"Different {what}: " + ", ".join(f"{count} in {split}" for split, count in by_split.items()) + "."
        for what, by_split in counts.items()
    ]
    for what, tokens in unseen.items():
        listed = ", ".join(map(str, tokens[:5])) + (", ..." if len(tokens) > 5 else "")
        words.append(
            f"Test asks for {len(tokens)} {what} that training never shows: {listed}."
            if tokens
            else f"Every one of the {what} that test asks for is shown in training."
        )
    return words
