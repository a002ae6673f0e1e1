"""`anchorlab studies`."""

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import print_json, print_table
from anchorlab.names import STUDIES
from anchorlab.papers import title_of


def studies(*, json: shared.Json = False) -> None:
    """List the studies: one for each figure or question of a paper."""
    found = [(name, title_of(name)) for name in STUDIES]
    if json:
        print_json([{"name": name, "title": title} for name, title in found])
    else:
        print_table(("study", "what it shows"), found)
