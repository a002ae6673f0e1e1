"""Tasks: benchmark functions that draw sequences, answer them, and prove that their splits are separate."""

from anchorlab.axes import TaskShape
from anchorlab.rng import generator
from anchorlab.tasks.anchor import (
    AnchorBased,
    AnchorFunction,
    Combined,
    CompositeAnchor,
    Labels,
    MarkovNoise,
    ModularResidue,
    Operation,
    Placement,
    Rule,
    Scoring,
    Separation,
    Vocabulary,
)
from anchorlab.tasks.batch import Answer, Batch, Example, Token, TraceStep, example_data
from anchorlab.tasks.build import load_task, task
from anchorlab.tasks.check import check_task
from anchorlab.tasks.classics import (
    AssociativeRecall,
    Brackets,
    LinearRegression,
    ModularArithmetic,
    RepeatedSequence,
    SparseParity,
    Superposition,
)
from anchorlab.tasks.export import export
from anchorlab.tasks.metrics import loss_per_position
from anchorlab.tasks.recall import NoisyAssociative, NoisyRecall
from anchorlab.tasks.registry import (
    parse_task,
    register_task,
    task_arguments,
    task_description,
    task_family,
    task_names,
)
from anchorlab.tasks.retrieval import MinimalRetrieval, Question, RetrievalPrompts, TokenRetrieval
from anchorlab.tasks.task import Proof, Task
