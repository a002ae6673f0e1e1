"""A circuit as a panel of a figure."""

from anchorlab.findings.figures import CircuitArrow, CircuitPanel
from anchorlab.lens import Circuit


def circuit_panel(title: str, circuit: Circuit, layers: int) -> CircuitPanel:
    """The panel of a circuit of a model with so many layers; each arrow is labelled by the loss without its path.

    What is no role stands on the left: distances, the farthest first, then `same token` and the like, and
    `every position`. An arrow to the query itself begins in the query's own column.
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
