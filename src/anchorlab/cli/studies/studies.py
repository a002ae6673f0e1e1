"""`anchorlab studies`."""

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import Rows, hand_out
from anchorlab.names import STUDIES
from anchorlab.papers import title_of


def studies(*, json: shared.Json = False) -> None:
    """List the studies: one for each figure or question of a paper."""
    found = [(name, title_of(name)) for name in STUDIES]
    hand_out(json, Rows(("name", "title"), found).data, [Rows(("study", "what it shows"), found)])
