"""Two distances: two anchors with keys at different distances."""

from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.separation import ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Pair
from anchorlab.tasks.registry import register_task


@register_task("anchor/two-distances")
def two_distances(
    near: int = 3,
    far: int = 4,
    distance: int = 2,
    length: int = 9,
    items: Pair = (20, 100),
    size: int = 201,
    modulus: int | None = None,
) -> AnchorFunction:
    """The token right after one anchor, or the second token after another.

    (.., 3, x, ..) -> x and (.., 4, *, x, ..) -> x.
    Source: anchor functions, section 5.2, Figure 14.
    """
    noise = " ." * (distance - 1)
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=(near, far)),
        operations={near: Operation(), far: Operation()},
        rules={"near": Rule.parse(f"{near} x -> x"), "far": Rule.parse(f"{far}{noise} x -> x")},
        placement=Placement(length=length),
        separation=ModularResidue(modulus=modulus, position="key"),
        group_by="rule",
    )
