"""The names of tasks, studies and models, for those who want no more than names: no task or model is imported.

Studies are found by this list. Tasks and models register themselves; a test compares their names with these.
"""

TASKS = (
    "anchor/classification",
    "anchor/composite",
    "anchor/frequency",
    "anchor/identity",
    "anchor/multi-anchor",
    "anchor/reading-comprehension",
    "anchor/recitation",
    "anchor/statistical",
    "anchor/synonym",
    "anchor/two-distances",
    "anchor/working-memory",
    "associative/noisy",
    "recall/noisy",
    "retrieval/conditional",
    "retrieval/conditional-vectors",
    "retrieval/equations",
    "retrieval/functions",
    "retrieval/kingdoms",
    "retrieval/lives-with",
    "retrieval/minimal",
    "retrieval/relatives",
    "retrieval/tokens",
)
"""The registered tasks."""

STUDIES = (
    "anchor/composite",
    "anchor/frequency",
    "anchor/identity",
    "anchor/learners",
    "anchor/order",
    "anchor/multi-anchor",
    "anchor/recitation",
    "anchor/working-memory",
    "anchor/phase-diagram",
    "anchor/statistical",
    "anchor/synonym",
    "anchor/reading-comprehension",
    "anchor/nine-tasks",
    "anchor/two-distances",
    "anchor/structures",
    "anchor/simplified",
    "anchor/condensation",
    "anchor/mechanism",
    "anchor/open-questions",
    "anchor/every-token",
    "truncation/feedforward-noise",
    "truncation/noise-first",
    "truncation/avoided-noise",
    "truncation/memories",
    "truncation/feedforward-choices",
    "truncation/stability",
    "truncation/one-step",
    "truncation/attention-gradient",
    "truncation/associative-memory",
    "truncation/rank-one-noise",
    "retrieval/information-flow",
    "retrieval/depth",
    "retrieval/plateau",
    "retrieval/circuits",
    "retrieval/emergence",
    "retrieval/language-models",
    "retrieval/known-depth",
    "language/heads",
    "language/noise",
    "language/truncation-search",
    "language/along-training",
)
"""The studies, by paper."""

KINDS = ("associative", "decoder", "fnn", "lstm", "recall", "recall-one-layer", "vectors")
"""The kinds of models."""
