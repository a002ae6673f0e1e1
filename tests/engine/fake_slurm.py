"""Commands of Slurm that run jobs on this machine: `python fake_slurm.py sbatch FILE`, and so on."""

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ.get("FAKE_SLURM", "."))
COMMANDS = ("sbatch", "srun", "sacct")


def sbatch(file: str) -> None:
    """Start a process for each job of an array, or one."""
    found = re.search(r"^#SBATCH --array=0-(\d+)", Path(file).read_text(), re.MULTILINE)
    number = 1 + sum(1 for _ in FOLDER.glob("*.pid"))
    for index in range(int(found[1]) + 1) if found else [None]:
        job = {"SLURM_JOB_ID": str(number), "SLURM_JOB_NODELIST": "node1"}
        name = str(number)
        if index is not None:
            job |= {"SLURM_ARRAY_JOB_ID": str(number), "SLURM_ARRAY_TASK_ID": str(index)}
            name = f"{number}_{index}"
        with (FOLDER / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                ["bash", file], env=os.environ | job, start_new_session=True, stdout=log, stderr=log
            )
        (FOLDER / f"{name}.pid").write_text(str(process.pid))
    print(f"Submitted batch job {number}")


def srun(*words: str) -> None:
    """Run the command that follows the options."""
    command = next(at for at, word in enumerate(words) if os.access(word, os.X_OK) and Path(word).is_file())
    os.execv(words[command], words[command:])


def sacct(*_: str) -> None:
    """Print the state of every job."""
    print("JobID|State|NodeList")
    for path in FOLDER.glob("*.pid"):
        status = Path(f"/proc/{path.read_text()}/stat")
        over = not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"
        print(f"{path.stem}|{'COMPLETED' if over else 'RUNNING'}|node1")


if __name__ == "__main__":
    {"sbatch": sbatch, "srun": srun, "sacct": sacct}[sys.argv[1]](*sys.argv[2:])
