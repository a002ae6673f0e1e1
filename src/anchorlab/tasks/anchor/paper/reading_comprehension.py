"""The reading comprehension task."""

from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.separation import ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Numbers, Pair
from anchorlab.tasks.registry import register_task


@register_task("anchor/reading-comprehension")
def reading_comprehension(
    pairs: int = 4,
    anchors: Numbers = tuple(range(1, 9)),
    items: Pair = (20, 100),
    size: int = 201,
    modulus: int | None = None,
) -> AnchorFunction:
    """The item after the anchor that the question repeats.

    (a1, x1, ..., a4, x4, a) -> x_k where a_k = a; the anchors before the question all differ. In test, every x is at a
    position at which training never shows it.
    Source: anchor functions, section 4.2.
    """
    text = " ".join(f"A{index} x{index}" for index in range(1, pairs + 1))
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=anchors),
        operations=dict.fromkeys(anchors, Operation()),
        rules={f"asks for {index}": Rule.parse(f"^ {text} A{index} $ -> x{index}") for index in range(1, pairs + 1)},
        placement=Placement(length=2 * pairs + 1, distinct=True),
        separation=ModularResidue(modulus=modulus, position="key"),
        group_by="rule",
    )
