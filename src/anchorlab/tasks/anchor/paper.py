"""The anchor functions of the paper."""

from itertools import product
from typing import Literal

from anchorlab.errors import SpecError
from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.labels import Labels
from anchorlab.tasks.anchor.noise import MarkovNoise
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Placement
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.scoring import Scoring
from anchorlab.tasks.anchor.separation import AnchorBased, Combined, CompositeAnchor, ModularResidue, MovingKeys
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.numbers import Numbers, Pair, Pairs, Texts
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

    With `every_token`, the training loss also scores all other positions, each by the token that follows it. With
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


@register_task("anchor/multi-anchor")
def multi_anchor(
    anchors: Numbers = tuple(range(1, 11)), held_out: int = 8, length: int = 9, items: Pair = (20, 100), size: int = 201
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


RIVALS = {
    "composed": "B(A(x))",
    "order swapped": "A(B(x))",
    "symmetric": "pair(B, A, x)",
    "memorised": "trained(A, B, x)",
}
"""Rules that may explain a model's answer, by name.

composed, order swapped: both operations in turn, in the right order or in the reverse order
symmetric: the label of the same two anchors in the reverse order
memorised: the label of the pair in training
"""


@register_task("anchor/composite")
def composite(
    length: int = 9,
    anchors: Numbers = (1, 2, 3, 4),
    operations: Texts = ("+5", "+1", "-2", "-8"),
    unseen: Pairs = ((3, 4),),
    exceptions: dict[str, Operation] | None = None,
    order: Literal["key first", "anchors first"] = "key first",
    items: Pair = (20, 100),
    size: int = 201,
    modulus: int | None = None,
    every_token: bool = False,
    successors: int | None = None,
) -> AnchorFunction:
    """Two operations in turn on a key; some pairs of anchors are never trained.

    (.., x, a, b, ..) -> g(g(x; a); b). Splits: `train`; `test on data`, trained pairs with keys at positions at which
    training never shows them; `test on task`, the unseen pairs.

    order: the paper's text puts the key first, its code the anchors
    exceptions: operations of certain pairs, such as `{"4,3": "-6"}` in the follow-up work on composing versus
        memorising
    every_token: whether the training loss also scores, at every other position, the token that follows it
    successors: the number of items that may follow an item, for noise that follows a chain; None: noise is independent

    Source: anchor functions, equation (5), section 4.4; operations and unseen pair from its code.
    """
    return AnchorFunction(
        vocabulary=Vocabulary(size=size, items=items, anchors=anchors),
        operations=operations_of(anchors, operations),
        exceptions=exceptions or {},
        rules={"composite": Rule.parse(f"{'x A B' if order == 'key first' else 'A B x'} -> pair(A, B, x)")},
        rivals=RIVALS,
        placement=Placement(length=length),
        separation=Combined(parts=(ModularResidue(modulus=modulus, position="key"), CompositeAnchor(unseen=unseen))),
        scoring=Scoring(every_token=every_token),
        noise=None if successors is None else MarkovNoise(successors=successors),
    )


def operations_of(anchors: tuple[int, ...], operations: tuple[str, ...]) -> dict[int, Operation]:
    """Return one operation for each anchor, in order.

    Errors: `SpecError` unless there are as many operations as anchors.
    """
    if len(operations) != len(anchors):
        raise SpecError("operations", f"{len(operations)} for {len(anchors)} anchors", "give one for each, in order")
    return {anchor: Operation.parse(text) for anchor, text in zip(anchors, operations, strict=True)}


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
            parts=(ModularResidue(modulus=modulus, position="key"), CompositeAnchor(unseen=unseen, seen=tuple(counts))),
            covering=synonyms,
        ),
        shares={f"{first},{second}": count for (first, second), count in counts.items()},
    )


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
