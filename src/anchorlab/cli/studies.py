"""`anchorlab studies`."""

from anchorlab.cli.output import Json, print_json, print_table


def studies(*, json: Json = False) -> None:
    """List the studies there are.

    Parameters
    ----------
    json
        As JSON, for scripts.
    """
    from anchorlab.studies import STUDIES

    if json:
        print_json([{"name": name, "description": text} for name, text in STUDIES.items()])
    else:
        print_table(("study", "what it shows"), list(STUDIES.items()))
