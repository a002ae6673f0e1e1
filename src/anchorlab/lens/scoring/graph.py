"""A model as a graph: units that write to the stream, inputs that read it, and edges from units to later inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.scoring.scores import Edge
from anchorlab.models.stack import Stack
from anchorlab.spec import unknown_name

EMBED, LOGITS = "embed", "logits"


@dataclass(frozen=True)
class Graph:
    """The units, inputs and edges of a model, each in the order of the model.

    Without a residual path, a block's output replaces the stream, and no earlier unit has an edge past it.

    Fields
        units: the names of the units that write to the stream
        edges: every edge, ordered by receiver, then by sender
        fed: for every input but the logits, the units that it feeds: one, or the heads that share a key and value; in
            each layer all queries, then keys, then values, then the feed-forward layer. Shared keys and values are
            numbered by key-value head
    """

    units: tuple[str, ...]
    edges: tuple[Edge, ...]
    fed: Mapping[str, tuple[str, ...]]

    @property
    def receivers(self) -> tuple[str, ...]:
        """The names of the inputs that read the stream."""
        return (*self.fed, LOGITS)

    @property
    def cells(self) -> Int[Tensor, "end edge"]:
        """For every edge, the index of its sender among the units, and of its receiver among the inputs."""
        places = [{name: at for at, name in enumerate(names)} for names in (self.units, self.receivers)]
        return torch.tensor([[place[edge[end]] for edge in self.edges] for end, place in enumerate(places)])

    def chosen(self, edges: Sequence[tuple[str, str]] | None, field: str) -> dict[Edge, int]:
        """Return the given edges, or all edges for None, each with its index among all edges."""
        every = {edge: at for at, edge in enumerate(self.edges)}
        for place, edge in enumerate(edges or ()):
            if isinstance(edge, str) or len(edge) != 2:
                raise SpecError(
                    f"{field}.{place}", f"{edge!r} is no edge", "give sender and receiver, ('embed', 'logits')"
                )
            sender, receiver = edge
            if (sender, receiver) not in every:
                near = [str(each) for each in every if sender == each.sender or receiver == each.receiver]
                known = near or [*map(str, every)]
                raise unknown_name(f"{field}.{place}", str(Edge(sender, receiver)), known, "edge")
        return every if edges is None else {Edge(*edge): every[Edge(*edge)] for edge in edges}


def graph_of(template: Stack) -> Graph:
    """Return the graph of a model."""
    units, edges, fed = [EMBED], list[Edge](), dict[str, tuple[str, ...]]()
    stream = [EMBED]
    for layer, block in enumerate(template.blocks):
        heads = [f"{layer}.{head}" for head in range(block.attn.heads)]
        units += heads
        for role in "qkv":
            size = 1 if role == "q" else len(heads) // block.attn.key_value_heads
            for head in range(len(heads) // size):
                reader = f"{layer}.{head}.{role}"
                fed[reader] = tuple(heads[head * size : (head + 1) * size])
                edges += [Edge(sender, reader) for sender in stream]
        before, stream = stream, [*(stream if block.residual else ()), *heads]
        if block.mlp is not None:
            name = f"{layer}.mlp"
            units.append(name)
            fed[name] = (name,)
            edges += [Edge(sender, name) for sender in (before if block.parallel else stream)]
            stream = [*(stream if block.residual or block.parallel else ()), name]
    return Graph(tuple(units), (*edges, *(Edge(sender, LOGITS) for sender in stream)), fed)
