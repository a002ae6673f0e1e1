"""The tasks that the contract suite runs over: every registered one, and variants that reach every option."""

from pathlib import Path

from anchorlab.tasks import (
    AnchorBased,
    AnchorFunction,
    MinimalRetrieval,
    ModularResidue,
    NoisyRecall,
    Placement,
    Scoring,
    Task,
    Vocabulary,
    load_task,
    task,
    task_names,
)

PLUS_FIVE = Path(__file__).parents[2] / "examples" / "plus_five.toml"

TWO_DISTANCES = AnchorFunction(
    vocabulary=Vocabulary(anchors=(3, 4)),
    operations={3: "x", 4: "x"},
    placement=Placement(offset={3: 1, 4: 2}),
)
COMPOSITE = AnchorFunction(
    vocabulary=Vocabulary(anchors=(1, 2, 3, 4)),
    operations={1: "+5", 2: "+1", 3: "-2", 4: "-8"},
    placement=Placement(anchors=2, offset=-1),
)
MULTI_ANCHOR = AnchorFunction(
    vocabulary=Vocabulary(anchors=tuple(range(1, 11))),
    operations={anchor: f"+{anchor}" for anchor in range(1, 11)},
    separation=AnchorBased(held_out={a: ((12 + 8 * a, 12 + 8 * (a + 1) - 1),) for a in range(1, 11)}, covering=False),
)

TASKS: dict[str, Task] = {
    **{name: task(name) for name in task_names()},
    "plus_five.toml": load_task(PLUS_FIVE),
    "two distances": TWO_DISTANCES,
    "composite": COMPOSITE,
    "multi-anchor": MULTI_ANCHOR,
    "paper's sets": AnchorFunction(
        separation=ModularResidue(position="key", by_position={i: (i - 1,) for i in range(1, 9)}),
        scoring=Scoring(positions=(7, -1)),
    ),
    "recall after triggers": NoisyRecall(length=64, noise="existing", triggers=(1, 43), scored="after_trigger"),
    "recall drawn": NoisyRecall(length=64, drawn=3, scored="after_trigger", max_scored=9),
    "recall uniform": NoisyRecall(length=200, source="uniform", alpha=0.2),
    "retrieval of the end": MinimalRetrieval(steps=2, implicit_curriculum=False, positions="pair"),
    "retrieval with frequencies": MinimalRetrieval(chains=2, steps=1, features=2, frequencies=(0.3,)),
}
