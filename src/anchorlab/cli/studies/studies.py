"""`anchorlab studies`."""

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import print_json, print_table


def studies(*, json: shared.Json = False) -> None:
    """List the studies: one for each figure or question of a paper."""
    from anchorlab.studies import STUDIES, study_title

    if json:
        print_json([{"name": name, "title": study_title(name)} for name in STUDIES])
    else:
        print_table(("study", "what it shows"), [(name, study_title(name)) for name in STUDIES])
