"""The forward-backward recitation task."""

from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.separation import ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Pair
from anchorlab.tasks.registry import register_task


@register_task("anchor/recitation")
def recitation(
    length: int = 9, anchor: int = 3, items: Pair = (20, 100), size: int = 201, modulus: int | None = None
) -> AnchorFunction:
    """The token after the anchor if the sequence ends with the token before it, and vice versa.

    (.., m, 3, n, .., m) -> n is the forward task, (.., m, 3, n, .., n) -> m the backward task (names of section 3.1.3);
    m and n differ. In test, both are at positions at which training never shows them.
    Source: anchor functions, equation (6), sections 3.1.3 and 4.7.
    """
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=(anchor,)),
        operations={anchor: Operation()},
        rules={
            "forward": Rule.parse(f"m {anchor} n ... m $ -> n"),
            "backward": Rule.parse(f"m {anchor} n ... n $ -> m"),
        },
        rivals={"always forward": "n", "always backward": "m"},
        placement=Placement(length=length),
        separation=ModularResidue(modulus=modulus, position="key"),
        group_by="rule",
    )
