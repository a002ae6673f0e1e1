"""Render sequences of anchor functions as readable examples."""

import numpy as np
from jaxtyping import Int
from torch import Tensor

from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.reader import Found, Reader
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.batch import Example, Token


def render(reader: Reader, inputs: Int[Tensor, "batch position"]) -> list[Example]:
    """Return the sequences with the role of each token, and the oracle's trace in words."""
    sequences = inputs.numpy()
    found, sides = reader.read(sequences), reader.side(sequences).tolist()
    splits = [reader.separation.splits[side] if side >= 0 else "nowhere" for side in sides]
    return [_example(reader, found, row, tokens, splits[row]) for row, tokens in enumerate(sequences.tolist())]


def _example(reader: Reader, found: Found, row: int, tokens: list[int], split: str) -> Example:
    rule = int(found.latent.rule[row])
    if rule < 0 or found.answer[row] < 0:
        why = "no single arrangement of anchors and keys"
        if rule >= 0:
            why = f"{list(reader.rules.values())[rule].answer.text} has no answer"
        return Example(tuple(Token(str(token), "noise") for token in tokens), (why,), "unknown", split)
    name, one = list(reader.rules.items())[rule]
    pattern, latent = one.pattern, found.latent
    anchors, keys = latent.anchors[row].tolist(), latent.keys[row].tolist()
    held = dict(zip(pattern.anchors, anchors, strict=False)) | dict(zip(pattern.keys, keys, strict=False))
    where = reader.layout.places(rule, np.array(tokens))
    roles = ["noise"] * len(tokens)
    for place, slot in zip(where, pattern.places, strict=True):
        roles[place] = "anchor" if slot < len(pattern.anchors) else "key"
    trace = [f"rule {name}: {one.text}"] if len(reader.rules) > 1 else []
    for index, (slot_name, token) in enumerate(held.items()):
        what = "anchor" if slot_name in pattern.anchors else "key"
        trace.append(f"{what} {token} at position {where[pattern.first[index]]}")
    trace += [
        f"{text} = {int(value[row])} ({_operation(reader, one, text, held)})"
        for text, position, value in found.steps
        if position[row] >= 0
    ]
    shown = tuple(Token(str(token), role) for token, role in zip(tokens, roles, strict=True))
    return Example(shown, tuple(trace), str(int(found.answer[row])), split)


def _operation(reader: Reader, rule: Rule, text: str, held: dict[str, int]) -> Operation:
    """Return the operation applied last in a step such as `B(A(x))`: anchor B's own, or the exception of A and B."""
    last, before = (*text.split("("), "")[:2]
    if "pair(" in rule.answer.text and before in held:
        pair = (held[before], held[last])
        if pair in reader.exceptions:
            return reader.exceptions[pair]
    return reader.operations[held[last]]
