"""The composite task: two anchors in a row, their operations applied in turn."""

from typing import Literal

from anchorlab.errors import SpecError
from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.noise import MarkovNoise
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.scoring import Scoring
from anchorlab.tasks.anchor.separation import Combined, CompositeAnchor, ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Numbers, Pair, Pairs, Texts
from anchorlab.tasks.registry import register_task

RIVALS = {
    "composed": "B(A(x))",
    "order swapped": "A(B(x))",
    "symmetric": "pair(B, A, x)",
    "memorised": "trained(A, B, x)",
}
"""Rules that may explain a model's answer, by name.

composed, order swapped: both operations in turn, in the right order or in the reverse order
symmetric: the label of the same two anchors in the reverse order
memorised: the label of the pair in training
"""


@register_task("anchor/composite")
def composite(
    length: int = 9,
    anchors: Numbers = (1, 2, 3, 4),
    operations: Texts = ("+5", "+1", "-2", "-8"),
    unseen: Pairs = ((3, 4),),
    exceptions: dict[str, Operation] | None = None,
    order: Literal["key first", "anchors first"] = "key first",
    items: Pair = (20, 100),
    size: int = 201,
    modulus: int | None = None,
    every_token: bool = False,
    successors: int | None = None,
) -> AnchorFunction:
    """Two operations in turn on a key; some pairs of anchors are never trained.

    (.., x, a, b, ..) -> g(g(x; a); b). Splits: `train`; `test on data`, trained pairs with keys at positions at which
    training never shows them; `test on task`, the unseen pairs.

    order: the paper's text puts the key first, its code the anchors
    exceptions: operations of certain pairs, such as `{"4,3": "-6"}` in the follow-up work on composing versus
        memorising
    every_token: whether the training loss also scores, at every other position, the token that follows it
    successors: the number of items that may follow an item, for noise that follows a chain; None: noise is independent

    Source: anchor functions, equation (5), section 4.4; operations and unseen pair from its code.
    """
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=anchors),
        operations=operations_of(anchors, operations),
        exceptions=exceptions or {},
        rules={"composite": Rule.parse(f"{'x A B' if order == 'key first' else 'A B x'} -> pair(A, B, x)")},
        rivals=RIVALS,
        placement=Placement(length=length),
        separation=Combined(parts=(ModularResidue(modulus=modulus, position="key"), CompositeAnchor(unseen=unseen))),
        scoring=Scoring(every_token=every_token),
        noise=None if successors is None else MarkovNoise(successors=successors),
    )


def operations_of(anchors: tuple[int, ...], operations: tuple[str, ...]) -> dict[int, Operation]:
    """Return one operation for each anchor, in order.

    Errors: `SpecError` unless there are as many operations as anchors.
    """
    if len(operations) != len(anchors):
        raise SpecError("operations", f"{len(operations)} for {len(anchors)} anchors", "give one for each, in order")
    return {anchor: Operation.parse(text) for anchor, text in zip(anchors, operations, strict=True)}
