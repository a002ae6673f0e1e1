"""A transformer as a graph: units that write to the stream, inputs that read it, and an edge from each to each."""

from anchorlab.lens.scoring.scores import Edge
from anchorlab.lens.vectors.attribution import blocks
from anchorlab.models.transformer import Transformer

EMBED, LOGITS = "embed", "logits"


def units_of(template: Transformer) -> tuple[str, ...]:
    """Return the names of the units that write to the stream, in the order of the model."""
    units = [EMBED]
    for layer, block in enumerate(blocks(template)):
        units += [f"{layer}.{head}" for head in range(block.attn.heads)]
        units += [f"{layer}.mlp"] if block.mlp is not None else []
    return tuple(units)


def receivers_of(template: Transformer) -> tuple[str, ...]:
    """Return the names of the inputs that read the stream: of heads by block, first all queries, keys, then values."""
    receivers: list[str] = []
    for layer, block in enumerate(blocks(template)):
        receivers += [f"{layer}.{head}.{role}" for role in "qkv" for head in range(block.attn.heads)]
        receivers += [f"{layer}.mlp"] if block.mlp is not None else []
    return (*receivers, LOGITS)


def edges_of(template: Transformer) -> tuple[Edge, ...]:
    """Return every edge, ordered by receiver, then by sender.

    Without a residual path, a block's output replaces the stream, and no earlier unit has an edge past it.
    """
    edges: list[Edge] = []
    stream = [EMBED]
    for layer, block in enumerate(blocks(template)):
        heads = [f"{layer}.{head}" for head in range(block.attn.heads)]
        edges += [Edge(sender, f"{head}.{role}") for role in "qkv" for head in heads for sender in stream]
        before, stream = stream, [*(stream if block.residual else ()), *heads]
        if block.mlp is not None:
            edges += [Edge(sender, f"{layer}.mlp") for sender in (before if block.parallel else stream)]
            stream = [*(stream if block.residual or block.parallel else ()), f"{layer}.mlp"]
    return (*edges, *(Edge(sender, LOGITS) for sender in stream))


def cells_of(template: Transformer) -> tuple[list[int], list[int]]:
    """Return, for every edge, the index of its sender among the units, and of its receiver among the inputs."""
    edges, units, receivers = edges_of(template), units_of(template), receivers_of(template)
    return [units.index(edge.sender) for edge in edges], [receivers.index(edge.receiver) for edge in edges]
