"""What was found to suffice: a circuit, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan

from anchorlab.lens.circuits.explanation import AttentionRule, Explanation

Head = tuple[int, int]
"""A layer and a head in it, both from 0."""


@dataclass(frozen=True)
class CircuitPath:
    """An attention path of a circuit: a head by which one role looks at one key.

    `attention` is how much the model itself attends along it, on average. When it is cut, its queries look where other
    paths of the head lead them, or else where the head's other queries do: `cut_loss` is the circuit's live loss then,
    `mapped_cut_loss` its loss.
    """

    layer: int
    head: int
    rule: AttentionRule
    attention: float
    cut_loss: float
    mapped_cut_loss: float

    def __str__(self) -> str:
        return f"{self.layer}.{self.head} {self.rule}"


@dataclass(frozen=True)
class Circuit:
    """A set of attention paths that suffices for a task, all other attention having been replaced.

    `explanations` says for every head of the model what stands in for its attention, None for one that keeps its own
    because nothing that was tried explains it; in all losses that attention counts as the circuit's. `roles` are the
    task's, as they mostly stand from left to right.

    Losses are on fresh sequences: `model_loss` of the model as it is; `loss` of the circuit, its maps in place of all
    attention, as the paper measures it; `live_loss` with the queries of its paths attending as the model makes them, so
    that heads count which only tell later ones where to look; `empty_loss` with every head's attention uniform;
    `rest_loss` of the model that has lost just the circuit's paths, other queries and heads attending as ever.
    `threshold` is what both losses of the circuit were to stay below where it was searched for. The model is `causal`
    if none of its heads ever looked ahead.
    """

    explanations: Mapping[Head, Explanation | None]
    paths: tuple[CircuitPath, ...]
    roles: tuple[str, ...]
    threshold: float
    model_loss: float
    loss: float
    live_loss: float
    empty_loss: float
    rest_loss: float
    causal: bool = True

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads with a path, in order."""
        return tuple(dict.fromkeys((path.layer, path.head) for path in self.paths))

    @property
    def unexplained(self) -> tuple[Head, ...]:
        """The heads that keep their own attention."""
        return tuple(head for head, one in self.explanations.items() if one is None)

    def without(self, path: CircuitPath) -> dict[Head, Explanation | None]:
        """The explanations with one path cut: its queries look where their other paths lead, or the rest does."""
        head = path.layer, path.head
        one = self.explanations[head]
        return {**self.explanations, head: one and one.without(path.rule)}

    @property
    def faithfulness(self) -> float:
        """How much of what attention does for the model the circuit does: 1 for all of it, 0 for none.

        More than 1 where its maps, sharper than the model's attention, do better; NaN where attention does nothing.
        """
        return self._share(self.empty_loss - self.loss)

    @property
    def completeness(self) -> float:
        """How much of what attention does is lost without the circuit's paths: 1 for all of it, 0 for none.

        NaN where attention does nothing.
        """
        return self._share(self.rest_loss - self.model_loss)

    @property
    def minimality(self) -> float:
        """By what factor cutting a path raises the circuit's live loss, at the least; infinite without a path."""
        least = min((path.cut_loss for path in self.paths), default=inf)
        return least / self.live_loss if self.live_loss else inf

    def _share(self, loss: float) -> float:
        """Of what attention does for the model."""
        whole = self.empty_loss - self.model_loss
        return loss / whole if whole else nan

    def __str__(self) -> str:
        size = f"circuit of {len(self.paths)} paths in {len(self.heads)} heads"
        others = f"the model's {self.model_loss:.4g}, without attention {self.empty_loss:.4g}"
        lines = [f"{size}: loss {self.loss:.4g}, live {self.live_loss:.4g} ({others})"]
        lines += [f"  {path}: attention {path.attention:.2f}, cut {path.cut_loss:.4g}" for path in self.paths]
        if self.unexplained:
            lines.append("  not explained: " + ", ".join(f"{layer}.{head}" for layer, head in self.unexplained))
        scores = [f"{name} {getattr(self, name):.3g}" for name in ("faithfulness", "completeness", "minimality")]
        return "\n".join([*lines, "  " + ", ".join(scores)])
