"""`anchorlab studies`."""

from anchorlab.cli.output import print_json, print_table
from anchorlab.studies.registry import STUDIES


def studies(*, json: bool = False) -> None:
    """List the studies there are.

    Parameters
    ----------
    json
        As JSON, for scripts.
    """
    if json:
        print_json([{"name": name, "description": text} for name, text in STUDIES.items()])
    else:
        print_table(("study", "what it shows"), list(STUDIES.items()))
