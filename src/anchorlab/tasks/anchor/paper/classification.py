"""The classification task."""

from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.separation import ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Numbers, Pair
from anchorlab.tasks.registry import register_task


@register_task("anchor/classification")
def classification(
    pairs: int = 4,
    anchors: Numbers = tuple(range(1, 9)),
    items: Pair = (20, 100),
    size: int = 201,
    modulus: int | None = None,
) -> AnchorFunction:
    """The anchor after the item nearest to the last item.

    (x1, a1, ..., x4, a4, x5) -> a_k where |x_k - x5| is smallest; all anchors differ. Ties are never drawn. In test,
    every x is at a position at which training never shows it.
    Source: anchor functions, section 4.3.
    """
    text = " ".join(f"x{index} A{index}" for index in range(1, pairs + 1))
    table = ", ".join(f"x{index}: A{index}" for index in range(1, pairs + 1))
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=anchors),
        operations=dict.fromkeys(anchors, Operation()),
        rules={"nearest": Rule.parse(f"^ {text} q $ -> nearest(q, {{{table}}})")},
        placement=Placement(length=2 * pairs + 1, distinct=True),
        separation=ModularResidue(modulus=modulus, position="key"),
        group_by="nothing",
    )
