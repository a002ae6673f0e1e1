"""Make the bigram table of a text file, for `anchorlab table`."""

import json
from pathlib import Path

import numpy as np
from jaxtyping import Int

from anchorlab.errors import SpecError
from anchorlab.tasks.recall.markov import CHARACTERS, TABLE


def count_bigrams(text: str) -> tuple[tuple[str, ...], Int[np.ndarray, "state state"]]:
    """Return the characters of a text and the counts of their bigrams.

    Returns: the characters in code-point order, and the counts of each pair, `[first second]`.

    Errors: `SpecError` for a text of fewer than two characters.
    """
    if len(text) < 2:
        raise SpecError("text", "has fewer than two characters", "give a longer text")
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    distinct, index = np.unique(codes, return_inverse=True)
    size = len(distinct)
    counts = np.bincount(index[:-1] * size + index[1:], minlength=size * size).reshape(size, size)
    return tuple(chr(code) for code in distinct.tolist()), counts.astype(np.int64)


def rebuild(text_file: Path, name: str, folder: Path) -> tuple[Path, Path]:
    """Write `<name>_bigrams.csv` and `<name>_characters.json` of a UTF-8 text and return their paths.

    Errors: `SpecError` for a text file that is missing or not UTF-8, and for a name that is not an identifier or is
    `uniform`.
    """
    if not name.isidentifier() or name == "uniform":
        raise SpecError("name", f"{name!r} cannot name a table", "use letters, digits and underscores")
    try:
        with text_file.open(encoding="utf-8", newline="") as file:
            characters, counts = count_bigrams(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError("text", f"{text_file} cannot be read: {error}", "give a UTF-8 text file") from None
    folder.mkdir(parents=True, exist_ok=True)
    table, index = folder / f"{name}{TABLE}", folder / f"{name}{CHARACTERS}"
    table.write_text("".join(",".join(str(count) for count in row) + "\n" for row in counts.tolist()))
    index.write_text(json.dumps(characters))
    return table, index
