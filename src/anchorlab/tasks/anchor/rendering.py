"""Sequences of anchor functions as people read them."""

from typing import TYPE_CHECKING

from jaxtyping import Int
from torch import Tensor

from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.task import Example, Token

if TYPE_CHECKING:
    from anchorlab.tasks.anchor.function import AnchorFunction


def render(task: "AnchorFunction", inputs: Int[Tensor, "batch position"]) -> list[Example]:
    """The sequences with the parts of their tokens, and the oracle's trace in words."""
    sequences = inputs.cpu().numpy()
    found, sides = task.read(sequences), task.split_of(inputs).tolist()
    rules = list(task.rules.items())
    examples = []
    for row, tokens in enumerate(sequences.tolist()):
        split = task.splits[sides[row]] if sides[row] >= 0 else "nowhere"
        rule = int(found.latent.rule[row])
        if rule < 0 or found.answer[row] < 0:
            plain = tuple(Token(str(token), "noise") for token in tokens)
            why = (
                "no single arrangement of anchors and keys"
                if rule < 0
                else f"{rules[rule][1].answer.text} has no answer"
            )
            examples.append(Example(plain, (why,), "unknown", split))
            continue
        name, one = rules[rule]
        anchors, keys = found.latent.anchors[row].tolist(), found.latent.keys[row].tolist()
        held = dict(zip(one.pattern.anchors, anchors, strict=False)) | dict(zip(one.pattern.keys, keys, strict=False))
        where = task.layout.places(rule, found.latent, row)
        roles = ["noise"] * len(tokens)
        for place, shown in zip(where, one.pattern.places, strict=True):
            roles[place] = "anchor" if shown < len(one.pattern.anchors) else "key"
        trace = [f"rule {name}: {one.text}"] if len(rules) > 1 else []
        for slot, token in held.items():
            first = where[one.pattern.first[one.pattern.slots.index(slot)]]
            what = "anchor" if slot in one.pattern.anchors else "key"
            trace.append(f"{what} {token} at position {first}")
        trace += [
            f"{text} = {int(value[row])} ({_operation(task, one, text, held)})"
            for text, position, value in found.steps
            if position[row] >= 0
        ]
        examples.append(
            Example(
                tuple(Token(str(token), role) for token, role in zip(tokens, roles, strict=True)),
                tuple(trace), str(int(found.answer[row])), split,
            )
        )  # fmt: skip
    return examples


def _operation(task: "AnchorFunction", rule: Rule, text: str, held: dict[str, int]) -> Operation:
    """What was applied in a step such as `B(A(x))`: the last anchor's operation, or the pair's own."""
    last, before = (*text.split("("), "")[:2]
    if "pair(" in rule.answer.text and before in held:
        pair = (held[before], held[last])
        if pair in task.pairs:
            return task.pairs[pair]
    return task.operations[held[last]]
