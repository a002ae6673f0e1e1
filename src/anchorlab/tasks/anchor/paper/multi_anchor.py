"""The multi-anchor task: many operations, each trained on its own keys."""

from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.separation import AnchorBased
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Numbers, Pair
from anchorlab.tasks.registry import register_task


@register_task("anchor/multi-anchor")
def multi_anchor(
    anchors: Numbers = tuple(range(1, 11)),
    held_out: int = 8,
    length: int = 9,
    items: Pair = (20, 100),
    size: int = 201,
) -> AnchorFunction:
    """The key plus the anchor; each anchor is tested on different keys.

    f_a(x) = x + a for a = 1 .. 10. The keys held out for the i-th anchor are the i-th run of `held_out` items; for the
    paper's anchor a, the keys 12 + 8a to 19 + 8a. Training never shows some test answers: 21 arises only as 20 + 1, and
    key 20 is held out for anchor 1.
    Source: anchor functions, section 4.9, Figure 12.
    """
    first = items[0]
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=anchors),
        operations={anchor: Operation.parse(f"+{anchor}") for anchor in anchors},
        placement=Placement(length=length),
        separation=AnchorBased(
            held_out={
                anchor: ((first + held_out * index, first + held_out * (index + 1) - 1),)
                for index, anchor in enumerate(anchors)
            },
            covering=False,
        ),
    )
