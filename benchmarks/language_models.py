"""Time and memory of the lens on a language model, compared with one pass of the model and its gradient.

    python benchmarks/language_models.py [--model smollm2] [--pairs 8] [--only score_edges ...] [--json]

Each function reads the same pairs of sentences about indirect objects, in a process of its own with one thread. Its
time is divided by the time of one forward and backward pass over the clean sentences in that process; its memory is the
growth of the process's peak over the peak after these passes.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import torch

import anchorlab as al
from anchorlab import lens
from anchorlab.findings.provenance import hardware
from anchorlab.language import indirect_objects

MEGABYTE = 1024  # ru_maxrss counts kilobytes


def calls(model, pairs):
    """Return what is measured, by name; each entry is called without arguments."""
    clean = pairs.clean
    units = ["5.2", "11.1", "20.mlp"]
    last = {"positions": (clean.lengths - 1).unsqueeze(1), "progress": False}
    texts = [model.tokenizer.decode(row[:length]) for row, length in zip(clean.inputs, clean.lengths, strict=True)]
    labels = torch.arange(len(clean.inputs)) % 2
    remove = lens.Intervention(site="blocks.*.attn.hook_z", rule="zero")
    return {
        "attribute": lambda: lens.attribute(model, clean, pairs.answers),
        "detect": lambda: lens.detect(al.look(model, clean, record="blocks.*.attn.hook_pattern")),
        "score_units": lambda: lens.score_units(model, *pairs),
        "score_edges, 1 step": lambda: lens.score_edges(model, *pairs),
        "score_edges, 5 steps": lambda: lens.score_edges(model, *pairs, steps=5),
        "estimate_patches, every head": lambda: lens.estimate_patches(model, *pairs, over="head"),
        "patch, every head": lambda: lens.patch(model, *pairs, over="head"),
        "effects, every head": lambda: lens.effects(model, clean, pairs.answers, remove, "head", progress=False),
        "landscape_on, 3 units": lambda: lens.landscape_on(model, clean, pairs.answers, units, **last),
        "generate, 16 tokens": lambda: lens.generate(model, texts, 16),
        "probe": lambda: lens.probe(model, clean, labels, positions=last["positions"]),
    }


def measure(model_name, pairs, name):
    """Return the seconds of a pass with its gradient and of a call, and the growth of peak memory, in KB."""
    torch.set_num_threads(1)
    model = al.pretrained(model_name)
    drawn = indirect_objects(model.tokenizer, pairs, seed=0)
    weights = [weight.requires_grad_() for weight in model.hugging_face.parameters()]

    def one_pass():
        start = time.perf_counter()
        logits = model.hugging_face(input_ids=drawn.clean.inputs, use_cache=False).logits
        torch.autograd.grad(logits[:, -1].logsumexp(-1).sum(), weights)
        return time.perf_counter() - start

    seconds = min(one_pass() for _ in range(3))
    for weight in weights:
        weight.requires_grad_(False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    calls(model, drawn)[name]()
    taken = time.perf_counter() - start
    return {"pass": seconds, "call": taken, "grown": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before}


def main():
    """Measure every function, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--only", nargs="*", help="names of functions, by default all")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(chosen.model, chosen.pairs, chosen.one)))
        return
    model = al.pretrained(chosen.model)
    names = list(calls(model, indirect_objects(model.tokenizer, chosen.pairs, seed=0)))
    found = {}
    for name in names:
        if chosen.only and name.split(",")[0] not in chosen.only:
            continue
        command = [sys.executable, __file__, "--model", chosen.model, "--pairs", str(chosen.pairs), "--one", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr.strip().splitlines()[-1]}")
        one = found[name] = json.loads(done.stdout.splitlines()[-1])
        if not chosen.json:
            times = f"{one['call'] / one['pass']:7.1f} passes {one['call']:7.2f} s"
            print(f"{name:30} {times} {one['grown'] / MEGABYTE:7.0f} MB", flush=True)
    if chosen.json:
        print(json.dumps({"hardware": hardware(), "model": chosen.model, "pairs": chosen.pairs, "functions": found}))


if __name__ == "__main__":
    main()
