"""Circuits as plain values: their paths, losses and derived measures."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import TYPE_CHECKING

from anchorlab.drawable import Drawable, plotted
from anchorlab.lens.circuits.explanation import AttentionRule, Explanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Head = tuple[int, int]
"""A layer and a head of that layer, both from 0."""


@dataclass(frozen=True)
class CircuitPath:
    """An attention path of a circuit: one head, in which the queries of a role attend to one key.

    Fields
        layer, head: the head, both from 0.
        rule: the queries and their key.
        attention: the model's own mean attention along the path.
        cut_loss: the circuit's `live_loss` without the path. The path's queries then follow the head's other paths,
            or the `rest` of the head's explanation.
        mapped_cut_loss: the circuit's `loss`, with attention maps, without the path.
    """

    layer: int
    head: int
    rule: AttentionRule
    attention: float
    cut_loss: float
    mapped_cut_loss: float

    @property
    def stays(self) -> bool:
        """Whether the queries attend to themselves, so that nothing moves from one position to another."""
        return self.rule.key == 0

    def __str__(self) -> str:
        return f"{self.layer}.{self.head} {self.rule}"


@dataclass(frozen=True)
class Circuit(Drawable):
    """A set of attention paths that suffices for a task when all other attention is replaced.

    All losses are on sequences that the search did not use.

    Fields
        explanations: the replacement of every head's attention; None for a head that keeps its own because no
            hypothesis explains it. Such attention is part of the circuit in all losses.
        paths: the paths of the circuit, by layer and head.
        roles: the task's roles, ordered by mean position.
        threshold: the bound on `loss` and `live_loss` during the search.
        model_loss: the loss of the unchanged model.
        loss: the loss with attention maps in place of all attention, as in the paper.
        live_loss: the loss if only the attention of queries without a path is replaced; queries with a path keep the
            attention that the model computes from the resulting stream. So this loss also depends on heads that only
            determine where later heads attend.
        empty_loss: the loss with uniform attention in every head.
        rest_loss: the loss of the model if the queries of the circuit's paths attend uniformly and all other attention
            is unchanged.
        causal: whether no query ever attended to a later position.
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
    def useful_heads(self) -> tuple[Head, ...]:
        """The heads with a path from one position to another, in order.

        The paper replaces heads that do no useful computation "with either uniform attention or an identity matrix"
        (stacked attention heads, appendix E). A head whose queries attend only to themselves is such a head.
        """
        return tuple(dict.fromkeys((path.layer, path.head) for path in self.paths if not path.stays))

    @property
    def unexplained(self) -> tuple[Head, ...]:
        """The heads that no hypothesis explains, which keep their own attention."""
        return tuple(head for head, one in self.explanations.items() if one is None)

    def without(self, path: CircuitPath) -> dict[Head, Explanation | None]:
        """Return the explanations with one path cut; the path's queries follow their other paths, or the `rest`."""
        head = path.layer, path.head
        one = self.explanations[head]
        return {**self.explanations, head: one and one.without(path.rule)}

    @property
    def faithfulness(self) -> float:
        """The share of attention's effect on the loss that the circuit retains: 1 for all of it, 0 for none.

        (empty - circuit) / (empty - model). The value exceeds 1 if the maps, which are sharper than the model's
        attention, give a lower loss than the model; NaN if attention has no effect.
        """
        return self._share(self.empty_loss - self.loss)

    @property
    def completeness(self) -> float:
        """The share of attention's effect on the loss that vanishes without the circuit's paths: 1 for all, 0 for none.

        (rest - model) / (empty - model). NaN if attention has no effect.
        """
        return self._share(self.rest_loss - self.model_loss)

    @property
    def minimality(self) -> float:
        """The smallest factor by which cutting a path raises the circuit's live loss; infinite without paths."""
        least = min((path.cut_loss for path in self.paths), default=inf)
        return least / self.live_loss if self.live_loss else inf

    def plot(self, title: str = "circuit") -> "Figure":
        """Draw the paths between roles, layer by layer; the label of an arrow is the live loss without its path."""
        return plotted(self, title=title)

    def _share(self, loss: float) -> float:
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
