"""`anchorlab submit`."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import counted, print_text
from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.printable import printable

if TYPE_CHECKING:
    from anchorlab.runs import Store

SCRIPT = """\
#!/bin/bash
#SBATCH --array=1-{workers}
#SBATCH --job-name=anchorlab
#SBATCH --output={logs}
#SBATCH --signal=TERM@60
{options}
exec {command}
"""
"""An array of workers; SIGTERM a minute before the end lets each keep its state."""


def submit(
    name: str,
    /,
    *names: str,
    slurm: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    workers: int = 4,
    profile: str | None = None,
    device: str = "cpu",
    chunks: int | None = None,
    store: shared.StoreFolder = None,
) -> None:
    """Plan the runs of studies for workers on a cluster, and submit the workers to Slurm.

    The workers' script is written to the store, and handed to `sbatch` if it is installed; otherwise it is printed.
    Afterwards `anchorlab study NAME --on folder` shows the progress, and analyses the runs.

    Parameters
    ----------
    name
        Name from `anchorlab studies`, a pattern such as `'anchor/*'`, or a file with a study of yours.
    names
        Further names, patterns or files.
    slurm
        Options of sbatch, such as `"--partition gpu --time 4:00:00 --gres gpu:1"`.
    workers
        Number of workers.
    profile
        As in `anchorlab study`.
    device
        Device of each worker: `cpu` or `cuda`.
    chunks
        Number of chunks into which the members of a run are divided; by default one per member.
    """
    from anchorlab.engine import plan
    from anchorlab.runs import Store
    from anchorlab.studies.control import trainings
    from anchorlab.studies.selection import chosen_studies

    for option, number in (("workers", workers), ("chunks", chunks)):
        if number is not None and number < 1:
            raise SpecError(option, f"{number} is not a number of {option}", "give 1 or more")
    if not slurm.isprintable():
        # a line of a script ends at some of them, and what follows would be run
        raise SpecError("slurm", f"{slurm!r:.60} holds a control sign", "remove it")
    try:
        options = shlex.split(slurm)
    except ValueError as error:
        raise SpecError("slurm", f"{slurm!r:.60} is not a list of options ({error})", "close its quotes") from None
    kept = Store(store)
    if "\\" in str(kept.root) or not str(kept.root).isprintable():
        # no line of a script can name it, or Slurm reads signs of its own in its name
        raise SpecError("store", f"Slurm cannot name {printable(str(kept.root))}", "use a store elsewhere")
    experiments = [
        experiment
        for one in chosen_studies((name, *names))
        for experiment in trainings(one.study, profile or one.profile or "quick")
    ]
    left = plan(experiments, kept, chunks)
    if not left:
        print_text("nothing is left to train; `anchorlab study` analyses the runs")
        return
    script = _write(kept, options, min(workers, left), device)
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        print(script.read_text(), end="")
        print(f"anchorlab: {counted(left, 'chunk')} planned; there is no sbatch here: {script}", file=sys.stderr)
        return
    done = subprocess.run([sbatch, str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AnchorlabError(f"sbatch failed: {done.stderr.strip() or done.returncode}; the script is {script}")
    print_text(f"{counted(left, 'chunk')} planned; {done.stdout.strip()}", wrapped=False)


def _write(store: "Store", options: list[str], workers: int, device: str) -> Path:
    """Write the script of the workers into the store; return its path."""
    from anchorlab.engine.modules import imported_modules
    from anchorlab.plain import check_way
    from anchorlab.runs.atomic_files import write_file

    folder = store.root / "workers"
    folder.mkdir(parents=True, exist_ok=True)
    check_way(folder, store.root)
    modules = [f"--import={name}" for name in imported_modules()]
    place = [str(store.root), "--device", device]
    command = [sys.executable, "-m", "anchorlab", "worker", *place, *modules, "--until-empty"]
    logs = shlex.quote(f"{str(folder).replace('%', '%%')}/%A-%a.log")  # Slurm reads %% as a percent sign
    text = SCRIPT.format(
        workers=workers, logs=logs, options="\n".join(_directives(options)), command=shlex.join(command)
    )
    return write_file(folder, "slurm.sh", [text.encode()])[0]  # in place of a link, not through it


def _directives(options: list[str]) -> list[str]:
    """Return a line of the script for each option, with the value that follows it."""
    lines: list[list[str]] = []
    for word in options:
        if word.startswith("-") or not lines:
            lines.append([word])
        else:
            lines[-1].append(word)
    return [f"#SBATCH {shlex.join(line)}" for line in lines]
