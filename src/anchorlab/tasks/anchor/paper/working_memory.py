"""The working memory task: noise separates the two anchors."""

from anchorlab.errors import SpecError
from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.paper.composite import operations_of
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.separation import ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Numbers, Pair, Texts
from anchorlab.tasks.registry import register_task


@register_task("anchor/working-memory")
def working_memory(
    length: int = 20,
    first: Numbers = (1, 2),
    second: Numbers = (3, 4),
    operations: Texts = ("x", "+1", "x", "-2"),
    items: Pair = (20, 100),
    size: int = 201,
    modulus: int | None = None,
) -> AnchorFunction:
    """Two operations in turn, with noise between the two anchors.

    (.., x, a, .., b, ..) -> g(g(x; a); b) for a in `first` and b in `second`, at any distance. `operations` are in the
    order of `first`, then `second`. The defaults follow Figure 8, which calls the anchors 1, 2 and 3, 4; the text of
    section 4.5 calls them 2, 3 and 4, 5.
    Source: anchor functions, section 4.5, Figure 8.
    """
    if set(first) & set(second):
        raise SpecError("second", f"{sorted(set(first) & set(second))} are in both", "keep the two sets apart")
    anchors = (*first, *second)
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=anchors),
        operations=operations_of(anchors, operations),
        rules={"working memory": Rule.parse("x A ... B -> B(A(x))")},
        rivals={"first operation only": "A(x)", "second operation only": "B(x)"},
        placement=Placement(length=length, choices={"A": first, "B": second}),
        separation=ModularResidue(modulus=modulus, position="key"),
    )
