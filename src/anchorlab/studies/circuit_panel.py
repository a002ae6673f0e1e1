"""Turn a circuit found by `find_circuit` into a panel of a figure, or into a figure."""

from anchorlab.findings.figures import CircuitArrow, CircuitFigure, CircuitPanel
from anchorlab.lens import Circuit


def circuit_panel(title: str, circuit: Circuit, layers: int) -> CircuitPanel:
    """Return the panel of a circuit in a model of `layers` layers; an arrow's label is the loss without its path.

    The columns on the right are the roles. To their left are the other keys and queries: distances, farthest first,
    then names such as `same token` and `every position`. If a query attends to itself, its arrow begins and ends in its
    column.
    """
    rules = [path.rule for path in circuit.paths]
    distances = sorted({rule.key for rule in rules if isinstance(rule.key, int) and rule.key > 0}, reverse=True)
    named = [rule.key for rule in rules if isinstance(rule.key, str)] + [rule.query for rule in rules]
    columns = [f"{distance} before" for distance in distances] + [name for name in named if name not in circuit.roles]
    arrows = [
        CircuitArrow(
            path.layer,
            path.head,
            query=path.rule.query,
            key=path.rule.query if path.rule.key == 0 else path.rule.key_text,
            label=f"{path.cut_loss:.2f}" if path.cut_loss >= 0.01 else f"{path.cut_loss:.1g}",
        )
        for path in circuit.paths
    ]
    return CircuitPanel(title, (*dict.fromkeys(columns), *circuit.roles), layers, tuple(arrows))


def circuit_figure(title: str, circuit: Circuit, panel: str = "") -> CircuitFigure:
    """Return the figure of one circuit; `panel` is the title above its panel."""
    layers = 1 + max(layer for layer, _ in circuit.explanations)
    caption = "The attention paths that suffice, and the live loss when each is cut."
    return CircuitFigure(title, caption, (circuit_panel(panel, circuit, layers),))
