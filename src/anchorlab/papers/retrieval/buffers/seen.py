"""What the claims of the study read."""

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.papers.retrieval.buffers.queries import token_queries, vector_queries
from anchorlab.papers.retrieval.buffers.tokens import SEQUENCES, Buffers, buffers
from anchorlab.papers.retrieval.buffers.vectors import VectorBuffers, alignment, pair_layers, vector_buffers
from anchorlab.papers.retrieval.settings import retrieval_of
from anchorlab.studies.readings import Reading, at_end, reading
from anchorlab.tasks.retrieval import StepRetrieval

SOLVED = 0.9  # accuracy on training sequences, from which a model counts as solved


class Seen(Reading):
    """The accuracies and buffers of the models on two steps, and the losses and buffers of the models on vectors."""

    trained = at_end("train", "accuracy")
    tested = at_end("test", "accuracy")
    loss = at_end("test", "loss")

    @reading
    def solved(self) -> Bool[Tensor, "seed"]:
        """Which models on two steps answer the training sequences."""
        return self.trained["two steps"] >= SOLVED

    @reading
    def buffers(self) -> Buffers:
        """The buffers of the models on two steps."""
        task = self.runs["two steps"].experiment.task
        assert isinstance(task, StepRetrieval)
        return buffers(self.runs["two steps"].ensemble(), token_queries(task, SEQUENCES))

    @reading
    def chains(self) -> VectorBuffers:
        """The buffers of the models on vectors."""
        task = retrieval_of(self.runs["chains"])
        return vector_buffers(self.runs["chains"].ensemble(), vector_queries(task, SEQUENCES), task.asked)

    @reading
    def matched(self) -> Float[Tensor, "seed"]:
        """How far the models on vectors match the first pair."""
        task, ensemble = retrieval_of(self.runs["chains"]), self.runs["chains"].ensemble()
        return alignment(ensemble, task.features, *pair_layers(ensemble, task, SEQUENCES))

    def seeds_of(self, label: str) -> Sequence[int]:
        """Return the seeds of a run's members."""
        return self.runs[label].experiment.members.seeds
