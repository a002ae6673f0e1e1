"""Seconds to zero every head of four layers of four, one at a time, over 1000 sequences and 10 members.

    python benchmarks/effects.py [--widths 64 128 400] [--members 10] [--plain-members 1] [--json]

`effects` is compared with one look for each head, which is timed on some of the members and scaled to all.
"""

import argparse
import json
import time

import torch

from anchorlab.findings.provenance import hardware
from anchorlab.lens import Intervention, effects
from anchorlab.models import DecoderSpec
from anchorlab.tasks import task
from anchorlab.training import initialise

TASK = task("anchor/identity")
EVERY_HEAD = Intervention(site="blocks.*.attn.hook_z", rule="zero")


def seconds(width: int, members: int, sequences: int, mapped: bool) -> float:
    model = DecoderSpec(width=width, head_width=64 if width == 400 else width // 4)  # the paper's, or a quick profile's
    ensemble = initialise(model, TASK.shape, list(range(members)))
    batch = TASK.sample("test", sequences, seed=0)
    began = time.perf_counter()
    effects(ensemble, batch.inputs, batch.targets, EVERY_HEAD, ("head",), positions=batch.positions, mapped=mapped)
    return time.perf_counter() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--widths", type=int, nargs="+", default=[64, 128, 400])
    options.add_argument("--members", type=int, default=10)
    options.add_argument("--sequences", type=int, default=1000)
    options.add_argument("--plain-members", type=int, default=1)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    seconds(64, 1, 10, mapped=True)
    rows = []
    for width in chosen.widths:
        fast = seconds(width, chosen.members, chosen.sequences, mapped=True)
        plain = seconds(width, chosen.plain_members, chosen.sequences, mapped=False)
        plain *= chosen.members / chosen.plain_members
        rows.append({"width": width, "effects, seconds": fast, "one look for each head, seconds": plain})
    threads = torch.get_num_threads()
    if chosen.json:
        about = {"hardware": hardware(), "torch": torch.__version__, "threads": threads}
        print(json.dumps({**about, "rows": rows}, indent=2))
        return
    print(f"{hardware()}, torch {torch.__version__}, {threads} threads")
    print(f"16 heads zeroed one by one, {chosen.sequences} sequences of 9 tokens, {chosen.members} members")
    for row in rows:
        fast, plain = row["effects, seconds"], row["one look for each head, seconds"]
        print(f"width {row['width']:4d}: {fast:7.1f} s; one look for each head {plain:7.1f} s, {plain / fast:.1f} x")


if __name__ == "__main__":
    main()
