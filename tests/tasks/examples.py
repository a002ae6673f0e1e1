"""The tasks that the contract suite runs over: every registered one, and variants that reach every option."""

from functools import cache
from pathlib import Path

from anchorlab import tasks
from anchorlab.tasks import AnchorFunction, MinimalRetrieval, ModularResidue, NoisyRecall, Rule, Task, Vocabulary, task

PLUS_FIVE = Path(__file__).parents[2] / "examples" / "plus_five.toml"


@cache
def example(name: str) -> Task:
    """Return the task of `examples/<name>.toml`, loaded once per session."""
    return tasks.load_task(PLUS_FIVE.with_stem(name))


SUM_OF_TWO = AnchorFunction(
    rules={"mean": Rule.parse("A x . y -> (x + y) // 2")}, separation=ModularResidue(modulus=4, position="key")
)
FIRST_AFTER = AnchorFunction(
    vocabulary=Vocabulary(anchors=(1, 2, 3)),
    operations={1: "x", 2: "x", 3: "x"},
    rules={"later": Rule.parse("A . B x -> first_after(A)")},
    separation=tasks.CompositeAnchor(unseen=((1, 2), (2, 3))),
)

TASKS: dict[str, Task] = {
    **{name: task(name) for name in tasks.task_names()},
    "plus_five.toml": example("plus_five"),
    "anchors before the key": task("anchor/composite", order="anchors first", exceptions={"4,3": "-6"}),
    "identity two after": task("anchor/identity", rule="A . x -> A(x)"),
    "statistical, second kind": task("anchor/statistical", kind="second"),
    "statistical, distribution": task("anchor/statistical", targets="distribution"),
    "high frequency": task("anchor/frequency", level="high"),
    "synonym, plain": task("anchor/synonym", synonyms=False),
    "identity, every token": task("anchor/identity", every_token=True),
    "composite, noise on a chain": task("anchor/composite", successors=3),
    "sum of two": SUM_OF_TWO,
    "first after": FIRST_AFTER,
    "labels by anchors": AnchorFunction(
        vocabulary=Vocabulary(anchors=(3, 4)), operations={3: "x", 4: "+1"}, labels=tasks.Labels()
    ),
    "paper's sets": AnchorFunction(
        separation=ModularResidue(position="key", by_position={i: (i - 1,) for i in range(1, 9)}),
        scoring=tasks.Scoring(positions=(7, -1)),
    ),
    "recall after triggers": NoisyRecall(length=64, noise="existing", triggers=(1, 43), scored="after_trigger"),
    "recall drawn": NoisyRecall(length=64, drawn=3, scored="after_trigger", max_scored=9),
    "recall uniform": NoisyRecall(length=200, source="uniform", alpha=0.2),
    "recall, noise by trigger": NoisyRecall(length=64, triggers=(1, 43, 58), noises=2, by_trigger=True),
    "associative, many inputs": task("associative/noisy", inputs=40, alpha=0.4),
    "retrieval of the end": MinimalRetrieval(steps=2, implicit_curriculum=False, positions="pair"),
    "retrieval of some steps": MinimalRetrieval(steps=4, asked_steps=(1, 3)),
    "mixed, some steps": task("retrieval/mixed", steps=4, asked_steps=(1, 3)),
    "induction": task("retrieval/tokens", steps=1),
    "retrieval of tokens, the end": task("retrieval/tokens", steps=2, symbols=12, implicit_curriculum=False),
    "functions of arguments": task("retrieval/conditional", parents="0;1;2,3", roots=2, symbols=40),
    "retrieval of tokens, some steps": task("retrieval/tokens", chains=2, asked_steps=(2, 3)),
    "functions of arguments, vectors": task(
        "retrieval/conditional-vectors", parents="0;1;2,3", roots=2, positions="pair", asked_steps=(1, 3)
    ),
    "functions among others": task("retrieval/functions", chains=3, steps=3, order="shuffled", distractors=1),
    "equations of every depth": task("retrieval/equations", chains=3, steps=3, asked_steps=(1, 2, 3)),
    "division": task("classics/modular-arithmetic", prime=11, operation="/", fraction=0.3),
    "recall, full and soon": task("classics/associative-recall", pairs=8, length=24, vocabulary=8, power=1.0),
    "regression with noise": task("classics/linear-regression", dimension=3, examples=20, noise=0.5),
    "one period": task("classics/repeated-sequence", periods=(5, 5), vocabulary=9),
    "four kinds of brackets": task("classics/brackets", kinds=4, depth=2, deeper=8),
    "parity of all": task("classics/sparse-parity", length=6, relevant=(0, 1, 2, 3, 4, 5)),
    "retrieval with frequencies": MinimalRetrieval(chains=2, steps=1, features=2, frequencies=(0.3,)),
}
