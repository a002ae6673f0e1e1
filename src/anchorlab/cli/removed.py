"""Commands and options that version 0.2 had, each with what replaces it; the list is dropped in version 0.4."""

from collections.abc import Sequence

from anchorlab.errors import SpecError

REMOVED = {
    "runs pack": "runs stay in folders; `anchorlab runs export --to parquet` writes their metrics as one file",
    "worker": "`--on ray` and `--on slurm` train on other machines",
    "submit": "`anchorlab study NAME --on slurm` sends jobs to Slurm and waits for them",
    "study --on folder": "write `--on ray` or `--on slurm`",
    "sweep --on folder": "write `--on ray` or `--on slurm`",
    "train --on folder": "write `--on ray` or `--on slurm`",
    "runs unpack": "unpack with anchorlab 0.2: `pip install 'anchorlab<0.3'`",
    "study --max-cost": "limit the cost at the service",
    "study --price-read": "limit the cost at the service",
    "study --price-written": "limit the cost at the service",
    "study --tokens-a-minute": "give --requests-a-minute",
    "browse --serve": "leave it out: `anchorlab browse` writes the page, to open as a file",
}
"""What replaces a command such as `runs pack`, an option such as `browse --serve` or a value such as `train --on X`."""


def refuse_removed(words: Sequence[str]) -> None:
    """Raise `SpecError`, which names the replacement, if the words of a command line use something that was removed."""
    given = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for removed, remedy in REMOVED.items():
        command, dashes, option = removed.partition(" --")
        start = command.split()
        rest, wanted = given[len(start) :], f"--{option}".split() if dashes else []
        places = range(len(rest) - len(wanted) + 1)
        if given[: len(start)] == start and any(rest[at : at + len(wanted)] == wanted for at in places):
            raise SpecError(removed, "was removed in version 0.3", remedy)
