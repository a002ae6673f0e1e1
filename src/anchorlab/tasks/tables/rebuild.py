"""Makes the bigram table of a text file: `python -m anchorlab.tasks.tables.rebuild TEXTFILE --name NAME`."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from jaxtyping import Int

from anchorlab.errors import SpecError


def count_bigrams(text: str) -> tuple[tuple[str, ...], Int[np.ndarray, "state state"]]:
    """The characters of a text in code-point order, and how often each follows each (row: the first one).

    Errors: `SpecError` for a text of fewer than two characters.
    """
    if len(text) < 2:
        raise SpecError("text", "has no two characters", "give a longer text")
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    distinct, index = np.unique(codes, return_inverse=True)
    size = len(distinct)
    counts = np.bincount(index[:-1] * size + index[1:], minlength=size * size).reshape(size, size)
    return tuple(chr(code) for code in distinct.tolist()), counts.astype(np.int64)


def rebuild(text_file: Path, name: str, folder: Path) -> tuple[Path, Path]:
    """Writes `<name>_bigrams.csv` and `<name>_characters.json` for a UTF-8 text and returns their paths.

    Errors: `SpecError` for a text file that is missing or not UTF-8, or a name that is no plain word.
    """
    if not name.isidentifier() or name == "uniform":
        raise SpecError("name", f"{name!r} cannot name a table", "use letters, digits and underscores")
    try:
        with text_file.open(encoding="utf-8", newline="") as file:
            characters, counts = count_bigrams(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError("text", f"{text_file} cannot be read: {error}", "give a UTF-8 text file") from None
    table, index = folder / f"{name}_bigrams.csv", folder / f"{name}_characters.json"
    table.write_text("".join(",".join(str(count) for count in row) + "\n" for row in counts.tolist()))
    index.write_text(json.dumps(characters))
    return table, index


def main(arguments: list[str] | None = None) -> int:
    """The command; the table lands in the package unless `--folder` says otherwise."""
    parser = argparse.ArgumentParser(prog="python -m anchorlab.tasks.tables.rebuild", description=__doc__)
    parser.add_argument("text", type=Path, help="a UTF-8 text file")
    parser.add_argument("--name", required=True, help="what the table is called as a source")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="where to write")
    given = parser.parse_args(arguments)
    try:
        for path in rebuild(given.text, given.name, given.folder):
            print(path)
    except SpecError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
