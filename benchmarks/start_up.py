"""How long `anchorlab --help` takes, beside `python -c pass`, in seconds: wall-clock time and time on a processor."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "anchorlab --help": ["-m", "anchorlab", "--help"],
    "anchorlab train --help": ["-m", "anchorlab", "train", "--help"],
    "anchorlab tasks": ["-m", "anchorlab", "tasks"],
    "anchorlab studies": ["-m", "anchorlab", "studies"],
    "anchorlab claims": ["-m", "anchorlab", "claims"],
}
LIMIT = 0.3  # of a second for `anchorlab --help`


def measure(arguments: list[str]) -> tuple[float, float]:
    """Wall-clock and processor seconds of one run of python."""
    wall, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - wall, busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=10, help="runs of each command, in turn, after one that fills caches"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for arguments in COMMANDS.values():
        measure(arguments)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(options.runs):
        for name, arguments in COMMANDS.items():
            times[name].append(measure(arguments))
    results = {
        name: {
            "median_seconds": round(statistics.median(wall for wall, _ in found), 4),
            "fastest_seconds": round(min(wall for wall, _ in found), 4),
            "processor_seconds": round(statistics.median(busy for _, busy in found), 4),
        }
        for name, found in times.items()
    }
    if options.json:
        print(json.dumps({"runs": options.runs, "limit_seconds": LIMIT, "commands": results}, indent=2))
        return
    print(f"{'command':24}{'median':>9}{'fastest':>9}{'processor':>11}   seconds, {options.runs} runs each")
    for name, found in results.items():
        print(
            f"{name:24}"
            + "".join(f"{value:>{width}.3f}" for value, width in zip(found.values(), (9, 9, 11), strict=True))
        )
    print(f"asked for: anchorlab --help under {LIMIT} s")


if __name__ == "__main__":
    main()
