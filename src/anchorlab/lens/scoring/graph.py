"""A model as a graph: units that write to the stream, inputs that read it, and an edge from each to each."""

from collections.abc import Sequence

from anchorlab.lens.scoring.scores import Edge
from anchorlab.models.stack import Stack, StackedAttention
from anchorlab.spec import unknown_name

EMBED, LOGITS = "embed", "logits"


def units_of(template: Stack) -> tuple[str, ...]:
    """Return the names of the units that write to the stream, in the order of the model."""
    units = [EMBED]
    for layer, block in enumerate(template.blocks):
        units += [f"{layer}.{head}" for head in range(block.attn.heads)]
        units += [f"{layer}.mlp"] if block.mlp is not None else []
    return tuple(units)


def readers_of(layer: int, attention: StackedAttention) -> tuple[str, ...]:
    """Return the names of the inputs of attention: first all queries, then keys, then values.

    Where several heads share a key and value, these are numbered by key-value head.
    """
    roles = {"q": attention.heads, "k": attention.key_value_heads, "v": attention.key_value_heads}
    return tuple(f"{layer}.{head}.{role}" for role, heads in roles.items() for head in range(heads))


def receivers_of(template: Stack) -> tuple[str, ...]:
    """Return the names of the inputs that read the stream, in the order of the model."""
    receivers: list[str] = []
    for layer, block in enumerate(template.blocks):
        receivers += readers_of(layer, block.attn)
        receivers += [f"{layer}.mlp"] if block.mlp is not None else []
    return (*receivers, LOGITS)


def fed_by(template: Stack) -> dict[str, tuple[str, ...]]:
    """Return, for every input but the logits, the units that it feeds: one, or the heads that share a key and value."""
    fed: dict[str, tuple[str, ...]] = {}
    for layer, block in enumerate(template.blocks):
        for reader in readers_of(layer, block.attn):
            _, head, role = reader.split(".")
            size = 1 if role == "q" else block.attn.heads // block.attn.key_value_heads
            fed[reader] = tuple(f"{layer}.{one}" for one in range(int(head) * size, (int(head) + 1) * size))
        fed[f"{layer}.mlp"] = (f"{layer}.mlp",)
    return fed


def edges_of(template: Stack) -> tuple[Edge, ...]:
    """Return every edge, ordered by receiver, then by sender.

    Without a residual path, a block's output replaces the stream, and no earlier unit has an edge past it.
    """
    edges: list[Edge] = []
    stream = [EMBED]
    for layer, block in enumerate(template.blocks):
        heads = [f"{layer}.{head}" for head in range(block.attn.heads)]
        edges += [Edge(sender, reader) for reader in readers_of(layer, block.attn) for sender in stream]
        before, stream = stream, [*(stream if block.residual else ()), *heads]
        if block.mlp is not None:
            edges += [Edge(sender, f"{layer}.mlp") for sender in (before if block.parallel else stream)]
            stream = [*(stream if block.residual or block.parallel else ()), f"{layer}.mlp"]
    return (*edges, *(Edge(sender, LOGITS) for sender in stream))


def chosen_edges(template: Stack, edges: Sequence[tuple[str, str]] | None, field: str) -> dict[Edge, int]:
    """Return given edges, or for None all, each with its place among all.

    Errors: `SpecError` for an edge that the model does not have.
    """
    every = {edge: at for at, edge in enumerate(edges_of(template))}
    if edges is None:
        return every
    chosen = [Edge(*edge) for edge in edges]
    for place, edge in enumerate(chosen):
        if edge not in every:
            near = [str(each) for each in every if edge.sender == each.sender or edge.receiver == each.receiver]
            raise unknown_name(f"{field}.{place}", str(edge), near or [*map(str, every)], "edge")
    return {edge: every[edge] for edge in chosen}


def cells_of(template: Stack) -> tuple[list[int], list[int]]:
    """Return, for every edge, the index of its sender among the units, and of its receiver among the inputs."""
    units = {unit: at for at, unit in enumerate(units_of(template))}
    receivers = {receiver: at for at, receiver in enumerate(receivers_of(template))}
    edges = edges_of(template)
    return [units[edge.sender] for edge in edges], [receivers[edge.receiver] for edge in edges]
