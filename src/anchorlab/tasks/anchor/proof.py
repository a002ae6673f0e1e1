"""The proof of an anchor function's separation: disjoint splits, and a test without unseen keys or answers."""

from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Int

from anchorlab.errors import SpecError
from anchorlab.tasks.anchor.drawing import Drawing
from anchorlab.tasks.anchor.latent import Latent
from anchorlab.tasks.anchor.reader import Reader
from anchorlab.tasks.task import Proof, Task, crossings

MOST_LATENTS = 2**20
"""The largest number of latents that a proof lists; with more latents, it draws samples."""

_ROWS_AT_ONCE = 2**16

Drawings = Mapping[str, Drawing]


def every_latent(
    reader: Reader, items: Int[np.ndarray, "item"] | None = None
) -> tuple[Latent, Int[np.ndarray, "row"]] | None:
    """Return every frame with every combination of `items` in its slots; None: of all items.

    Returns: the latents, and the frame of each; None if there are more than `MOST_LATENTS`, or if an answer reads
    noise.
    """
    frames, (first, last) = reader.layout.frames, reader.layout.vocabulary.items
    items = np.arange(first, last + 1) if items is None else items
    slots = (frames.key_positions >= 0).sum(axis=1)
    if (float(len(items)) ** slots).sum() > MOST_LATENTS or any(r.answer.reads_noise for r in reader.rules.values()):
        return None
    parts, indices = [], []
    for count in np.unique(slots).tolist():
        mine = np.flatnonzero(slots == count)
        choices = np.stack(np.meshgrid(*[items] * count, indexing="ij"), axis=-1).reshape(-1, count) if count else None
        ways = 1 if choices is None else len(choices)
        index = np.repeat(mine, ways)
        keys = np.full((len(index), frames.keys.shape[1]), -1)
        if choices is not None:
            keys[:, :count] = np.tile(choices, (len(mine), 1))
        parts.append(frames.select(index).with_keys(keys))
        indices.append(index)
    return Latent.concatenate(parts), np.concatenate(indices)


def prove_coverage(reader: Reader, drawings: Drawings) -> None:
    """Raise `SpecError` if an operation leaves the vocabulary, or test has keys or answers that training never shows.

    If there are too many latents to list, operations are checked at the first and last keys of each slot, and only keys
    are compared, exactly; `prove` compares answers.
    """
    every = every_latent(reader)
    listed = every or every_latent(reader, np.array(sorted(set().union(*_keys(drawings, [0, -1])) - {-1})))
    if listed is not None:
        side = reader.separation.side(listed[0], reader.layout.placement.length)
        kept = np.flatnonzero(side >= 0)
        latents, frame, side = listed[0].select(kept), listed[1][kept], side[kept]
        answer = reader.answer(latents, None).answer
        _check_answers(reader, latents, answer)
    if every is None:
        if reader.separation.covering:
            for unseen in _unseen_keys(drawings):
                raise _uncovered("key", unseen)
        return
    drawable = answer >= 0
    if not reader.layout.alone:
        for rows, again in _read_back(reader, latents, frame):
            drawable[rows] &= again.found
    for index, (name, drawing) in enumerate(drawings.items()):
        if np.setdiff1d(drawing.frames, frame[drawable & (side == index)]).size:
            problem = f"have no single answer for some anchors and places of {name}"
            raise SpecError("rules", problem, "use more items or other rules")
    if not reader.separation.covering:
        return
    good = np.flatnonzero(drawable)
    latents, answer, side = latents.select(good), answer[good], side[good]
    for what, tokens in (("key", latents.keys), ("answer", answer[:, None])):
        unseen_tokens = np.setdiff1d(tokens[side > 0], tokens[side == 0])
        unseen_tokens = unseen_tokens[unseen_tokens >= 0]
        if unseen_tokens.size:
            raise _uncovered(what, int(unseen_tokens[0]))


def _check_answers(reader: Reader, latents: Latent, answer: Int[np.ndarray, "row"]) -> None:
    """Raise `SpecError`, naming operation and keys, if a rule that should always have an answer lacks one."""
    for index, (name, rule) in enumerate(reader.rules.items()):
        missing = np.flatnonzero((answer < 0) & (latents.rule == index))
        if not missing.size or rule.answer.may_be_nothing:
            continue
        one = latents.select(missing[:1])
        held = dict(zip(rule.pattern.anchors, one.anchors[0].tolist(), strict=False))
        held |= dict(zip(rule.pattern.keys, one.keys[0].tolist(), strict=False))
        anchor_at = {int(p): int(a) for p, a in zip(one.anchor_positions[0], one.anchors[0], strict=True)}
        field, what = f"rules.{name}", f"`{rule.answer.text:.60}`"
        for _, position, value in reader.answer(one, None).steps:
            if value[0] < 0:
                anchor = anchor_at[int(position[0])]
                field, what = f"operations.{anchor}", str(reader.operations[anchor])
                break
        values = ", ".join(f"{slot} = {value}" for slot, value in held.items())
        problem = f"{what} leaves the {reader.size} tokens where {values}"
        raise SpecError(field, problem, "use a larger vocabulary.size or a smaller step")


def _read_back(
    reader: Reader, latents: Latent, frame: Int[np.ndarray, "row"]
) -> Iterator[tuple[Int[np.ndarray, "part"], Latent]]:
    """Write latents into sequences and read them back, part by part; yield the rows and the latents read."""
    layout = reader.layout
    for start in range(0, len(latents), _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(latents)))
        sequences = np.full((len(rows), layout.placement.length), layout.vocabulary.items[0])
        layout.write(sequences, frame[rows], latents.select(rows))
        yield rows, layout.find(sequences)


def _uncovered(what: str, token: int) -> SpecError:
    held = f"token {token} as a key" if what == "key" else f"the answer {token}"
    problem = f"has {held} in test, but never in training"
    return SpecError("separation", problem, "hold out fewer keys, or allow it with covering = false")


def _unseen_keys(drawings: Drawings) -> list[int]:
    """Return the test keys that training never shows."""
    shown = _keys(drawings)
    return sorted(set().union(*shown[1:]) - shown[0] - {-1})


def _keys(drawings: Drawings, at: list[int] | slice = slice(None)) -> list[set[int]]:
    """Return the keys of each split that are at these places in a list of a slot's allowed keys; -1 for no key."""
    return [
        {int(key) for kind in np.unique(drawing.kind).tolist() for key in drawing.listed(kind)[at]}
        for drawing in drawings.values()
    ]


def prove(task: Task, reader: Reader, drawings: Drawings) -> Proof:
    """Prove a task's separation, by listing every latent if there are few enough, else on drawn sequences."""
    listed = every_latent(reader)
    return _by_samples(task, reader, drawings) if listed is None else _by_enumeration(reader, *listed)


def _by_enumeration(reader: Reader, latents: Latent, frame: Int[np.ndarray, "row"]) -> Proof:
    """Prove on all latents that no two splits share a latent, and that each is read back as it was written."""
    splits, length = reader.separation.splits, reader.layout.placement.length
    side = reader.separation.side(latents, length)
    drawn, read, misread = np.zeros(len(latents), dtype=bool), 0, 0
    answer = reader.answer(latents, None).answer
    for rows, again in _read_back(reader, latents, frame):
        drawn[rows] = again.found & (answer[rows] >= 0)
        kept = np.flatnonzero(drawn[rows])
        same = (again.columns() == latents.select(rows).columns()).all(axis=1)
        same &= reader.separation.side(again, length) == side[rows]
        read, misread = read + len(kept), misread + int((~same[kept]).sum())
    columns = latents.columns()
    sets = [columns[drawn & (side == index)] for index in range(len(splits))]
    counts = dict(zip(splits, map(len, sets), strict=True))
    # a latent counts once in each split: it may come from several frames, which differ in where a token is repeated
    together = np.concatenate([np.unique(one, axis=0) for one in sets])
    meeting = len(together) - len(np.unique(together, axis=0))
    seen = {
        what: {
            split: set(tokens[drawn & (side == index)].ravel().tolist()) - {-1} for index, split in enumerate(counts)
        }
        for what, tokens in (("keys", latents.keys), ("answers", answer))
    }
    unseen = {
        what: sorted(set().union(*list(by_split.values())[1:]) - by_split["train"]) for what, by_split in seen.items()
    }
    different = {what: {split: len(tokens) for split, tokens in by_split.items()} for what, by_split in seen.items()}
    covered = not any(unseen.values()) or not reader.separation.covering
    left_out = int((~drawn).sum())
    nowhere = int((drawn & (side < 0)).sum())
    listed = ", ".join(f"{count:,} in {split}" for split, count in counts.items())
    words = [
        f"All {len(latents):,} choices of anchors, positions and keys were listed: {listed}"
        + (f", {nowhere:,} in no split." if nowhere else "."),
        f"{meeting:,} of them are in two splits.",
        f"Each was written into a sequence and read back: {misread:,} of {read:,} were misread.",
        *([f"{left_out:,} are never drawn: they fit several rules, or have no answer."] if left_out else []),
        *_coverage_words(different, unseen),
    ]
    numbers = {
        "latents": counts,
        "nowhere": nowhere,
        "never drawn": left_out,
        "meeting": meeting,
        "misread": misread,
        **different,
        "unseen": unseen,
    }
    return Proof("enumeration", not meeting and not misread and covered, tuple(words), numbers)


def _by_samples(task: Task, reader: Reader, drawings: Drawings) -> Proof:
    """Prove on drawn sequences that each is read back as belonging to its own split; keys are compared exactly."""
    samples = task.proof_samples
    crossed = crossings(task, samples)
    latents = {split: drawing.latents for split, drawing in drawings.items()}
    drawn = {split: task.sample(split, samples // 5, seed=1).inputs.numpy() for split in task.splits}
    seen = {split: np.unique(reader.read(inputs).answer).tolist() for split, inputs in drawn.items()}
    unseen = {
        "keys": _unseen_keys(drawings),
        "answers": sorted(set().union(*list(seen.values())[1:]) - set(seen["train"])),
    }
    different = {"answers": {split: len(tokens) for split, tokens in seen.items()}}
    covered = not any(unseen.values()) or not reader.separation.covering
    counted = ", ".join(f"{count:.3g} latents in {split}" for split, count in latents.items())
    total = sum(crossed.values())
    words = [
        f"There are {counted}: too many to list. No key is allowed in both training and test in the same slot of the "
        "same frame.",
        f"{samples:,} sequences of each split were drawn; {total:,} of them belong to another split or none.",
        *_coverage_words(different, unseen),
    ]
    numbers = {"samples": samples, "crossed": crossed, "latents": latents, "unseen": unseen, **different}
    return Proof("samples", not total and covered, tuple(words), numbers)


def _coverage_words(counts: dict[str, dict[str, int]], unseen: dict[str, list[int]]) -> list[str]:
    words = [
        f"Different {what}: " + ", ".join(f"{count} in {split}" for split, count in by_split.items()) + "."
        for what, by_split in counts.items()
    ]
    for what, tokens in unseen.items():
        listed = ", ".join(map(str, tokens[:5])) + (", ..." if len(tokens) > 5 else "")
        words.append(
            f"Test contains {len(tokens)} {what} that training never shows: {listed}."
            if tokens
            else f"Training shows all of the {what} that test contains."
        )
    return words
