"""`anchorlab table`."""

from pathlib import Path

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import print_json, print_text, waiting


def table(text: Path, /, *, name: str | None = None, folder: Path = Path(), json: shared.Json = False) -> None:
    """Count the character pairs of a text, to train on its characters with the task recall/noisy.

    Parameters
    ----------
    text
        A UTF-8 text file.
    name
        Name of the table, in letters, digits and underscores; by default the text file's name.
    folder
        Folder for the two files of the table; by default the current one.
    """
    from anchorlab.tasks.recall.markov import table_characters
    from anchorlab.tasks.recall.tables.rebuild import rebuild

    with waiting(f"counting {text}", quiet=json):
        counts, characters = rebuild(text, text.stem if name is None else name, folder)
    number = len(table_characters(str(counts)))
    if json:
        print_json({"counts": str(counts), "characters": str(characters), "number": number})
        return
    print_text(f"{number} characters in {counts} and {characters}", wrapped=False)
    print_text(f"to train on it: anchorlab train recall/noisy --task.source {counts}", wrapped=False)
