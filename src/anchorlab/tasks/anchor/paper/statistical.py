"""The statistical output task: the identity task whose labels follow a distribution."""

from typing import Literal

from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.labels import Labels
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.paper.identity import identity
from anchorlab.tasks.numbers import Numbers, Pair
from anchorlab.tasks.registry import register_task


@register_task("anchor/statistical")
def statistical(
    kind: Literal["first", "second"] = "first",
    copies: int = 5,
    probability: float = 0.2,
    change: str = "+1",
    targets: Literal["label", "distribution"] = "label",
    length: int = 9,
    anchors: Numbers = (3,),
    items: Pair = (20, 100),
    size: int = 201,
    modulus: int | None = None,
) -> AnchorFunction:
    """The token x after the anchor, but a fifth of the labels are x + 1.

    First kind: every sequence occurs five times in a row, and the last copy is labelled x + 1. Second kind: each label
    is x + 1 with probability 0.2. With `targets = "distribution"`, the training targets are both tokens with their
    probabilities. Groups: `unchanged` and `changed` labels.
    Source: anchor functions, section 4.8, Figure 11.
    """
    return identity(length=length, anchors=anchors, items=items, size=size, modulus=modulus).replace(
        labels=Labels(
            change=Operation.parse(change),
            copies=copies if kind == "first" else None,
            probability=probability,
            targets=targets,
        ),
        group_by="label",
    )
