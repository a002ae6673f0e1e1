"""The second control of anchor functions: the same sequences, with the key on the anchor's other side."""

from anchorlab.tasks import AnchorFunction, Task
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.training import Experiment


def mirrored(experiment: Experiment) -> Task:
    """Return an experiment's anchor function with every pattern read from right to left.

    `A x -> A(x)`, the token after the anchor, becomes `x A -> A(x)`, the token before it: what follows the anchor does
    not matter any more.
    """
    task = experiment.task
    assert isinstance(task, AnchorFunction)
    rules = {name: _reversed(rule) for name, rule in task.rules.items()}
    return task.replace(name=f"{task.name}-mirrored", rules=rules)


def _reversed(rule: Rule) -> Rule:
    pattern = " ".join(reversed(rule.pattern.text.split()))
    return Rule.parse(f"{pattern} -> {rule.answer.text}")
