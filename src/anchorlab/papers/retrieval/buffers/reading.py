"""Readings of the models on tokens and of the models on vectors, with their figures and tables."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import LineFigure, Map, MapFigure, Table
from anchorlab.findings.figures import grid
from anchorlab.findings.provenance import seeds_text
from anchorlab.papers.retrieval import one_head
from anchorlab.papers.retrieval.buffers.queries import ENERGY, token_queries, vector_queries
from anchorlab.papers.retrieval.buffers.tokens import PAIRS, SEQUENCES, Buffers, buffers, hand_written
from anchorlab.papers.retrieval.buffers.vectors import VectorBuffers, alignment, pair_layers, vector_buffers
from anchorlab.papers.retrieval.settings import retrieval_of
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, column_table, curves_against, seed_table
from anchorlab.studies.readings import Reading, at_end, reading
from anchorlab.tasks.retrieval import StepRetrieval

SOLVED = 0.9  # accuracy on training sequences, from which a model counts as solved
STAGES = ("embedding", "layer 0", "layer 1", "layer 2")
ROW = 4  # maps in a row


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
    def following(self) -> Bool[Tensor, "seed"]:
        """Which models on vectors solve the problem."""
        return self.loss["chains"] <= one_head.SOLVED

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
        """How well scores that find the first pair match what the joining layer writes, in models on vectors."""
        task, ensemble = retrieval_of(self.runs["chains"]), self.runs["chains"].ensemble()
        return alignment(ensemble, task.features, *pair_layers(ensemble, task, SEQUENCES))

    def seeds_of(self, label: str) -> Sequence[int]:
        """Return the seeds of a run's members."""
        return self.runs[label].experiment.members.seeds


def readable(seen: Seen) -> LineFigure:
    """Return the figure of what probes read from the query's stream on two steps, in solved models if there are any."""
    seeds, shown = seen.seeds_of("two steps"), seen.solved if bool(seen.solved.any()) else torch.ones_like(seen.solved)
    decoded = seen.buffers.decoded[shown]
    figure = curves_against(
        "What a linear probe reads from the query's stream",
        range(len(STAGES)),
        {f"x_{value}": decoded[:, :, value] for value in range(3)},
        x_label="after the embedding (0) and each layer (1 to 3)",
        y_label="accuracy of the probe",
        caption=f"{MEAN_AND_RANGE} Test sequences, models that answer the training sequences; x_0 is the query's "
        "symbol, x_1 and x_2 follow it.",
        y_range=ACCURACY,
    )
    return replace(figure, seeds=seeds_text([seed for seed, one in zip(seeds, shown.tolist(), strict=True) if one]))


def readable_vectors(seen: Seen) -> MapFigure:
    """Return the figure of what a linear map reads from the query's stream, for each model on vectors."""
    seeds, decoded = seen.seeds_of("chains"), seen.chains.decoded.clamp(min=0).mT
    values = tuple(f"x_{value}" for value in range(decoded.shape[1]))
    return MapFigure(
        title="What a linear map reads from the query's stream, models on vectors",
        caption="Share of a symbol's variance that ridge regression explains, on sequences held out: after the "
        "embedding (E) and after each layer, counted from 0. x_0 is the query's symbol.",
        maps=_rows(decoded, seeds, values, ("E", *map(str, range(decoded.shape[2] - 1)))),
        x_label="after layer",
        y_label="symbol",
        value_label="share of variance",
        value_range=(0.0, 1.0),
        seeds=seeds_text(seeds),
    )


def moved_figure(seen: Seen) -> MapFigure:
    """Return the figure of the answers that move with what each layer writes."""
    seeds, moved = seen.seeds_of("chains"), seen.chains.moved.mT
    values = tuple(f"x_{step}" for step in seen.chains.asked)
    return MapFigure(
        title="Answers that move with what a layer writes, models on vectors",
        caption="Share of sequences whose answer is nearer to the other query's, once the subspace that a layer writes "
        "to is exchanged after this layer.",
        maps=_rows(moved, seeds, values, tuple(map(str, range(moved.shape[2])))),
        x_label="layer",
        y_label="answer",
        value_label="share moved",
        value_range=(0.0, 1.0),
        seeds=seeds_text(seeds),
    )


def _rows(
    values: Tensor, seeds: Sequence[int], row_ticks: tuple[str, ...], column_ticks: tuple[str, ...]
) -> tuple[tuple[Map, ...], ...]:
    maps = [Map(f"seed {seed}", grid(one), row_ticks, column_ticks) for seed, one in zip(seeds, values, strict=True)]
    return tuple(tuple(maps[start : start + ROW]) for start in range(0, len(maps), ROW))


def numbers(seen: Seen) -> Table:
    """Return the table of every model on two steps, and of the one written by hand."""
    both = (seen.buffers, hand_written())

    def joined(values: Sequence[Tensor]) -> list[float]:
        return torch.cat([one.double() for one in values]).tolist()

    stages = {
        f"x_{value} {when}": joined([one.decoded[:, stage, value] for one in both])
        for value in (1, 2)
        for stage, when in ((2, "after layer 1"), (3, "at the end"))
    }
    heads = list(enumerate(f"{one}, {other}" for one, other in PAIRS))
    return column_table(
        "Buffers in numbers",
        "The last row is the model written by hand, with chains as in retrieval/tokens. Accuracy on training and on "
        "test sequences, and of the probes of x_1 and x_2; matching scores of the second and the third head; mean "
        "squared cosine of the principal angles between the subspaces that two heads write to, each with "
        f"{ENERGY:.0%} of what the head writes, and the same divided by that of random subspaces (“over random”); the "
        "subspaces' dimensions; the shares of answers that move with the buffer of each head, and that stay right if "
        "all but the buffer of head 1 is exchanged.",
        {
            "model": [*(f"seed {one}" for one in seen.seeds_of("two steps")), "by hand"],
            "train": [*seen.trained["two steps"].tolist(), 1.0],
            "test": [*seen.tested["two steps"].tolist(), 1.0],
            **stages,
            "matches x_0": joined([one.matched[:, 0] for one in both]),
            "matches x_1": joined([one.matched[:, 1] for one in both]),
            **{f"heads {pair}": joined([one.overlap[:, at] for one in both]) for at, pair in heads},
            **{f"{pair} over random": joined([one.against_random[:, at] for one in both]) for at, pair in heads},
            **{f"dimensions {head}": joined([one.dimensions[:, head] for one in both]) for head in range(3)},
            **{f"moved by {head}": joined([one.moved[:, head] for one in both]) for head in range(3)},
            "kept": joined([one.kept for one in both]),
        },
    )


def vector_numbers(seen: Seen) -> Table:
    """Return the table of every model on vectors."""
    buffers = seen.chains
    layers = {f"x_{step}": layer for step, layer in enumerate(buffers.brought_by.T, start=1)}
    return seed_table(
        "Models of retrieval/circuits in numbers",
        "Loss; the layer that brings each symbol, in which the share that a linear map reads of it rises most, and the "
        f"dimensions of what this layer writes to the query ({ENERGY:.0%} of the squares); the share of x_0 read at "
        "the end; the overlap of successive layers that bring symbols, divided by that of random subspaces; the shares "
        "of answers that move with the layer that brings them, and of later answers that move with the layer that "
        "brings x_1; and the alignment of queries' scores with what the layer that joins pairs writes.",
        seen.seeds_of("chains"),
        {
            "loss": seen.loss["chains"],
            **{f"{name} in layer": layer for name, layer in layers.items()},
            **{
                f"dimensions for {name}": buffers.dimensions.gather(1, layer.unsqueeze(1))[:, 0]
                for name, layer in layers.items()
            },
            "x_0 at the end": buffers.decoded[:, -1, 0],
            "over random": buffers.successive,
            "moved by its own": buffers.moved_own,
            "later moved by x_1's": buffers.moved_later,
            "alignment": seen.matched,
        },
    )
