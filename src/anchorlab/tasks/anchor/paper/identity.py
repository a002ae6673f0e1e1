"""The identity learning task, and its statistical variants."""

from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.noise import MarkovNoise
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.scoring import Scoring
from anchorlab.tasks.anchor.separation import ModularResidue, MovingKeys
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Numbers, Pair
from anchorlab.tasks.registry import register_task


@register_task("anchor/identity")
def identity(
    length: int = 9,
    anchors: Numbers = (3,),
    items: Pair = (20, 100),
    size: int = 201,
    rule: str = "A x -> A(x)",
    modulus: int | None = None,
    moving_keys: bool = False,
    every_token: bool = False,
    successors: int | None = None,
) -> AnchorFunction:
    """The token right after the anchor.

    (43, 33, 13, 3, 20, 89, 44, 24, 56) -> 20 for the anchor 3. A key x after an anchor at 0-based position p belongs to
    test if (x - p) mod (n - 1) = 0, else to training. Another `rule`, such as `A . x -> A(x)`, puts the key elsewhere.

    With `moving_keys`, as in the authors' code, x - p ranges from the first to the second-last item: with the default
    items, keys range from 20 + p to 99 + p. The items then extend up to the largest key.

    With `every_token`, the training loss also scores, at every other position, the token that follows it. With
    `successors`, noise follows a chain in which each item has this number of successors.
    Source: anchor functions, equation (1), sections 3.2.1 and 4.1.
    """
    separation, (first, last) = ModularResidue(modulus=modulus), items
    if moving_keys:
        separation, items = MovingKeys(modulus=modulus, numbers=(first, last - 1)), (first, last - 1 + length - 2)
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=anchors),
        operations=dict.fromkeys(anchors, Operation()),
        rules={"identity": Rule.parse(rule)},
        placement=Placement(length=length),
        separation=separation,
        scoring=Scoring(every_token=every_token),
        noise=None if successors is None else MarkovNoise(successors=successors),
    )
