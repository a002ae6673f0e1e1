"""What is to be learned: benchmark functions that draw sequences, know the right answers and prove their separation."""

from anchorlab.tasks.anchor import (
    AnchorBased,
    AnchorFunction,
    Combined,
    CompositeAnchor,
    Labels,
    ModularResidue,
    Operation,
    Placement,
    Rule,
    Scoring,
    Separation,
    Vocabulary,
    load_task,
)
from anchorlab.tasks.export.export import export
from anchorlab.tasks.proof import Proof
from anchorlab.tasks.recall.associative import NoisyAssociative
from anchorlab.tasks.recall.noisy import NoisyRecall
from anchorlab.tasks.registry import (
    parse_task,
    register_task,
    task,
    task_arguments,
    task_description,
    task_family,
    task_names,
)
from anchorlab.tasks.retrieval.minimal import MinimalRetrieval
from anchorlab.tasks.retrieval.tokens import TokenRetrieval
from anchorlab.tasks.task import Answer, Batch, Example, Task, Token, TraceStep, example_data, loss_per_position

__all__ = [
    "AnchorBased",
    "AnchorFunction",
    "Answer",
    "Batch",
    "Combined",
    "CompositeAnchor",
    "Example",
    "Labels",
    "MinimalRetrieval",
    "ModularResidue",
    "NoisyAssociative",
    "NoisyRecall",
    "Operation",
    "Placement",
    "Proof",
    "Rule",
    "Scoring",
    "Separation",
    "Task",
    "Token",
    "TokenRetrieval",
    "TraceStep",
    "Vocabulary",
    "example_data",
    "export",
    "load_task",
    "loss_per_position",
    "parse_task",
    "register_task",
    "task",
    "task_arguments",
    "task_description",
    "task_family",
    "task_names",
]
