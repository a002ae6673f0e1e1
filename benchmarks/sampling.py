"""Sequences per second of the three task families on one thread, beside a loop that makes one sequence at a time.

Run: `python benchmarks/sampling.py [--json]`. The time is that of the core (on an otherwise idle machine the same as on
the clock) and includes the finished torch tensors; the best of several rounds counts.
"""

import argparse
import json
import random
import time
from collections.abc import Callable

import numpy as np
import torch

from anchorlab.tasks import task
from anchorlab.tasks.recall.markov import table_counts

torch.set_num_threads(1)


def identity_loop(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The identity function as one writes it first: noise, anchor, and a key drawn until the residue allows it."""
    sequences, answers = [], []
    for _ in range(n):
        tokens = [random.randint(20, 100) for _ in range(9)]
        position = random.randrange(8)
        key = random.randint(20, 100)
        while (key - position) % 8 == 0:
            key = random.randint(20, 100)
        tokens[position], tokens[position + 1] = 3, key
        sequences.append(tokens)
        answers.append(key)
    return torch.tensor(sequences), torch.tensor(answers)


def recall_loop(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy recall token by token, with numpy's choice."""
    counts = table_counts("shakespeare")
    unigrams = counts.sum(axis=1) / counts.sum()
    bigrams = counts / counts.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    sequences, targets = [], []

    def following(token: int, output: int) -> int:
        if token == 1:
            return 65 if rng.random() < 0.5 else output
        return int(rng.choice(65, p=unigrams if token == 65 else bigrams[token]))

    for _ in range(n):
        output = int(rng.integers(65))
        tokens = [int(rng.choice(65, p=unigrams))]
        while len(tokens) < 255:
            tokens.append(following(tokens[-1], output))
        tokens.append(1)
        sequences.append(tokens)
        targets.append(following(1, output))
    return torch.tensor(sequences), torch.tensor(targets)


def retrieval_loop(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Minimal retrieval sequence by sequence, with torch."""
    chains, steps, features = 4, 3, 4
    angles = torch.arange(chains * (2 * steps + 1))[:, None] * 10_000.0 ** (-2 * torch.arange(2) / features)
    positions = torch.cat([angles.cos(), angles.sin()], dim=1)
    inputs, targets = [], []
    for _ in range(n):
        symbols = torch.randn(chains, steps + 1, features)
        places = []
        for step in range(steps, 0, -1):
            for chain in torch.randperm(chains).tolist():
                places += [symbols[chain, step - 1], symbols[chain, step]]
        queries = torch.randperm(chains)
        places += list(symbols[queries, 0])
        inputs.append(torch.cat([torch.stack(places), positions], dim=1))
        targets.append(symbols[queries, 1:].flatten(1))
    return torch.stack(inputs), torch.stack(targets)


CASES: dict[str, tuple[str, dict[str, str], int, Callable[[int], object], int]] = {
    "anchor/identity": ("anchor/identity", {}, 1_000_000, identity_loop, 20_000),
    "recall/noisy, T = 256": ("recall/noisy", {}, 100_000, recall_loop, 50),
    "recall/noisy, after triggers": ("recall/noisy", {"scored": "after_trigger"}, 100_000, recall_loop, 50),
    "recall/noisy, batches of 512": ("recall/noisy", {}, 512, recall_loop, 50),
    "retrieval/minimal, D = 3": ("retrieval/minimal", {"steps": "3"}, 100_000, retrieval_loop, 500),
}


def best_rate(make: Callable[[int], object], n: int, rounds: int) -> float:
    """Sequences per second of the core in the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        make(n)
        best = min(best, time.process_time() - start)
    return n / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rates as JSON")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rates = {}
    for label, (name, arguments, n, loop, loop_n) in CASES.items():
        one = task(name, **arguments)
        sampled = best_rate(lambda count, one=one: one.sample("train", count, seed=0), n, given.rounds)
        rates[label] = {"sequences_per_second": sampled, "loop": best_rate(loop, loop_n, 2)}
    if given.json:
        print(json.dumps(rates, indent=2))
        return
    print(f"{'task':<32}{'per second':>14}{'plain loop':>14}{'ratio':>9}")
    for label, rate in rates.items():
        sampled, plain = rate["sequences_per_second"], rate["loop"]
        print(f"{label:<32}{sampled:>14,.0f}{plain:>14,.0f}{sampled / plain:>9,.0f}")


if __name__ == "__main__":
    main()
