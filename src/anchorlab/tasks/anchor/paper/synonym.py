"""The synonym task: does a second anchor with the same operation help with pairs that were never trained?"""

from itertools import product

from anchorlab.errors import SpecError
from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.paper.composite import RIVALS, operations_of
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.separation import Combined, CompositeAnchor, ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Numbers, Pair, Texts
from anchorlab.tasks.registry import register_task


@register_task("anchor/synonym")
def synonym(
    total: int = 4000,
    synonyms: bool = True,
    plain: Numbers = (1, 2, 4),
    rare: int = 9,
    common: int = 3,
    operations: Texts = ("+5", "+1", "-8"),
    rare_operation: str = "-2",
    rare_size: int = 100,
    length: int = 9,
    items: Pair = (20, 100),
    size: int = 201,
    modulus: int | None = None,
) -> AnchorFunction:
    """Two operations in turn on a key; one anchor has a synonym, and two of its pairs are never trained.

    This is the composite task with the anchors 1, 2, 4 and 9; the pairs (4, 9) and (9, 4) are never trained. With
    `synonyms`, anchor 3, which has the same operation as 9, is also paired with 1, 2 and 4. Of `total` training
    sequences, each trained pair with 9 then gets `rare_size`, and the other pairs share the rest equally. Without
    synonyms, all ten trained pairs have equal shares. Pairs of an anchor with itself belong to no split. A sample of
    `total` training sequences has exactly these counts.

    The paper separates by composite anchors only. Its code also separates by modular residue, as here, so that trained
    pairs can be tested too (`test on data`).
    Source: anchor functions, section 4.6, Figure 9.
    """
    if len(plain) < 2:
        raise SpecError("plain", f"{list(plain)} are too few", "give at least two anchors")
    if rare in plain or common in plain or rare == common:
        raise SpecError("rare", f"{rare}, {common} and {list(plain)} overlap", "give different anchors")
    everyday = [pair for pair in product(plain, plain) if pair[0] != pair[1]]
    last = plain[-1]
    rarely = [pair for other in plain[:-1] for pair in ((other, rare), (rare, other))]
    unseen = ((last, rare), (rare, last))
    if synonyms:
        everyday += [pair for other in plain for pair in ((other, common), (common, other))]
        rest = total - rare_size * len(rarely)
        if rest < len(everyday):
            raise SpecError("total", f"{total} leaves {rest} for {len(everyday)} pairs", "give more, or rare_size less")
        counts = {**dict.fromkeys(everyday, rest / len(everyday)), **dict.fromkeys(rarely, float(rare_size))}
    else:
        counts = dict.fromkeys([*everyday, *rarely], 1.0)
    anchors = (*plain, rare, common)
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=anchors),
        operations=operations_of(anchors, (*operations, rare_operation, rare_operation)),
        rules={"composite": Rule.parse("x A B -> pair(A, B, x)")},
        rivals={name: RIVALS[name] for name in ("order swapped", "memorised")},
        placement=Placement(length=length),
        separation=Combined(
            parts=(
                ModularResidue(modulus=modulus, position="key"),
                CompositeAnchor(unseen=unseen, seen=tuple(counts)),
            ),
            covering=synonyms,
        ),
        shares={f"{first},{second}": count for (first, second), count in counts.items()},
    )
