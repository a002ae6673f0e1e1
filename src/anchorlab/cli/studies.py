"""`anchorlab studies`."""

from anchorlab.cli.output import Json, print_json, print_table


def studies(*, json: Json = False) -> None:
    """List the studies: one for each figure or question of a paper.

    Parameters
    ----------
    json
        Print JSON.
    """
    from anchorlab.studies import STUDIES, study_title

    if json:
        print_json([{"name": name, "title": study_title(name)} for name in STUDIES])
    else:
        print_table(("study", "what it shows"), [(name, study_title(name)) for name in STUDIES])
