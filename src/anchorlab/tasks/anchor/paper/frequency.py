"""The frequency tasks: two anchors with the same operation, or nearly the same."""

from typing import Literal

from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.paper.composite import operations_of
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.separation import ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Numbers, Pair
from anchorlab.tasks.registry import register_task


@register_task("anchor/frequency")
def frequency(
    level: Literal["low", "high"] = "low",
    anchors: Numbers = (3, 4),
    length: int = 9,
    items: Pair = (20, 100),
    size: int = 201,
    modulus: int | None = None,
) -> AnchorFunction:
    """The key after either anchor (low frequency), or the key plus one after the second anchor (high frequency).

    A function has a higher frequency if a change of anchor changes its answer.
    Source: anchor functions, section 6.1, Figure 18.
    """
    operations = tuple("x" if level == "low" else f"+{index}" if index else "x" for index in range(len(anchors)))
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=anchors),
        operations=operations_of(anchors, operations),
        placement=Placement(length=length),
        separation=ModularResidue(modulus=modulus),
    )
