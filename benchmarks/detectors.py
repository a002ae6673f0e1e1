"""How well the detectors tell heads that do a thing from random ones: ROC curves, hits and false alarms.

    python benchmarks/detectors.py [--heads 50] [--out docs/how_to/detectors-roc.svg] [--json]

A head that does a thing has the pattern (1 - noise) * ideal + noise * random, with noise up to one half; a random head
has random alone. Rows of random attention are softmaxes of normal scores, drawn for every query of every sequence.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from anchorlab.findings import Line, LineFigure, Provenance
from anchorlab.findings.provenance import hardware
from anchorlab.lens import Record, detect
from anchorlab.report.figures import save
from anchorlab.runs.environment import environment

LENGTH, VOCABULARY = 12, 8  # more positions than tokens: in every sequence some token recurs
SPREADS = (1.0, 2.0, 4.0, 8.0)  # standard deviations of the scores before the softmax
MOST_NOISE = 0.5
SEQUENCES = {1: 10, 10: 10, 100: 1}  # how many each head is seen on, and how many times --heads there are of these
LENGTHS = (9, 12, 20)
OFFSETS = {"shift": 2, "fixed_position": 3, "broadcast_profile": 1}  # those of the ideal heads
SITE = "blocks.0.attn.hook_pattern"


@dataclass(frozen=True)
class Inputs:
    """Sequences `[batch position]`, the positions of their anchors, and a source of each, `[batch]`."""

    tokens: Tensor
    anchors: Tensor
    sources: Tensor


def draw_inputs(sequences: int, length: int, generator: torch.Generator) -> Inputs:
    tokens = torch.randint(VOCABULARY, (sequences, length), generator=generator)
    places = torch.randint(length - 3, (2, sequences), generator=generator)
    return Inputs(tokens, places[0], places[1])


def ideal_heads(inputs: Inputs, causal: bool) -> dict[str, Tensor]:
    """For each detector the pattern `[batch query key]` that does this and nothing else.

    Queries share their attention among the keys that the detector looks at; those without such a key attend alike to
    all that they may look at.
    """
    batch, length = inputs.tokens.shape
    place = torch.arange(length)
    query, key = place.unsqueeze(1), place.unsqueeze(0)
    allowed = (key <= query) | (not causal)
    same = inputs.tokens.unsqueeze(2) == inputs.tokens.unsqueeze(1)
    before = same & (key < query)
    follows = torch.zeros_like(before)
    follows[:, :, 1:] = before[:, :, :-1]
    anchor, source = inputs.anchors.reshape(-1, 1, 1), inputs.sources.reshape(-1, 1, 1)
    wanted = {
        "shift": key == query - OFFSETS["shift"],
        "previous_token": key == query - 1,
        "self_attending": key == query,
        "uniform": key >= 0,
        "induction": follows,
        "matching": before,
        "first_token": key == 0,
        "fixed_position": key == OFFSETS["fixed_position"],
        "anchor_attending": key == anchor,
        "broadcast_profile": key == anchor + OFFSETS["broadcast_profile"],
        "broadcast": key == source,
    } | ({} if causal else {"next_token": key == query + 1})
    patterns = {}
    for detector, cells in wanted.items():
        cells = (cells & allowed).expand(batch, length, length)
        cells = torch.where(cells.any(dim=-1, keepdim=True), cells, allowed).float()
        patterns[detector] = cells / cells.sum(dim=-1, keepdim=True)
    return patterns


def random_heads(
    sequences: int, length: int, spreads: Tensor, causal: bool, generator: torch.Generator, shared: bool = False
) -> Tensor:
    """Patterns `[batch head query key]`, one head per spread; `shared`: the same in all sequences."""
    scores = torch.randn(1 if shared else sequences, len(spreads), length, length, generator=generator)
    scores = scores * spreads.reshape(-1, 1, 1)
    if causal:
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
    return scores.softmax(dim=-1).expand(sequences, -1, -1, -1)


def table(pattern: Tensor, inputs: Inputs) -> pl.DataFrame:
    """What `detect` says of the heads of a pattern `[batch head query key]`."""
    axes = {SITE: ("member", "batch", "head", "query", "key")}
    return detect(
        Record({SITE: pattern.unsqueeze(0)}, axes, inputs.tokens), anchors=inputs.anchors, keys=inputs.sources
    )


@dataclass(frozen=True)
class Told:
    """How a detector tells its ideal heads, with noise, from random ones: `[spread head]` each."""

    detector: str
    sequences: int
    ideal: Tensor
    random: Tensor
    fires: float  # share of ideal heads
    right_offset: float | None

    def area(self, spread: int | None = None) -> float:
        """The area under the ROC curve: how often an ideal head scores above a random one."""
        ideal, random = (self.ideal, self.random) if spread is None else (self.ideal[spread], self.random[spread])
        random = random.flatten().sort().values
        below = [torch.searchsorted(random, ideal.flatten(), right=right).double().mean() for right in (False, True)]
        return float(sum(below)) / 2 / len(random)  # of equals, one half is below

    @property
    def row(self) -> dict[str, object]:
        return {
            "detector": self.detector,
            "sequences": self.sequences,
            "area, all spreads together": self.area(),
            "area, lowest of one spread": min(self.area(spread) for spread in range(len(SPREADS))),
            "ideal heads that fire": self.fires,
            "with the right offset": self.right_offset,
        }


def tell(sequences: int, heads: int, seed: int = 0) -> list[Told]:
    """Every detector on ideal and random heads, `heads` of each for every spread."""
    found = []
    for causal in (True, False):
        generator = torch.Generator().manual_seed(seed)
        inputs = draw_inputs(sequences, LENGTH, generator)
        spreads = torch.tensor(SPREADS).repeat_interleave(heads)
        random = table(random_heads(sequences, LENGTH, spreads, causal, generator), inputs)
        for detector, ideal in ideal_heads(inputs, causal).items():
            if not causal and detector != "next_token":
                continue
            noise = MOST_NOISE * torch.rand(len(spreads), 1, 1, generator=generator)
            other = random_heads(sequences, LENGTH, spreads, causal, generator)
            mixed = table((1 - noise) * ideal.unsqueeze(1) + noise * other, inputs).filter(detector=detector)
            offset = OFFSETS.get(detector)
            values = [
                frame["value"].to_torch().reshape(len(SPREADS), heads)
                for frame in (mixed, random.filter(detector=detector))
            ]
            right = None if offset is None else float((mixed["offset"] == offset).mean())
            found.append(Told(detector, sequences, *values, float(mixed["fires"].mean()), right))
    return found


def false_alarms(length: int, sequences: int, heads: int, causal: bool, shared: bool = False, seed: int = 0) -> float:
    """The share of random heads, `heads` of each spread, for which any detector fires."""
    generator = torch.Generator().manual_seed(seed)
    inputs = draw_inputs(sequences, length, generator)
    spreads = torch.tensor(SPREADS).repeat_interleave(heads)
    frame = table(random_heads(sequences, length, spreads, causal, generator, shared), inputs)
    return float(frame.group_by("head").agg(pl.col("fires").any())["fires"].mean())


def roc_figure(told: Sequence[Told]) -> LineFigure:
    """Hits over false alarms of each detector on one sequence, all spreads together."""
    rates = torch.tensor([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0], dtype=torch.float64)
    lines = []
    for one in told:
        ideal, random = one.ideal.flatten().double(), one.random.flatten().double()
        levels = torch.quantile(random, 1 - rates, interpolation="higher")
        hits = (ideal.unsqueeze(0) > levels.unsqueeze(1)).double().mean(dim=1)
        hits[-1] = 1.0  # at the lowest level of all, everything is a hit
        lines.append(Line(one.detector.replace("_", " "), tuple(rates.tolist()), tuple(hits.tolist())))
    return LineFigure(
        title="Heads that do a thing, with noise up to one half, against random heads, seen on one sequence",
        caption="Hits over false alarms for every level of each detector's score.",
        x_label="share of random heads above the level",
        y_label="share of ideal heads above it",
        lines=tuple(lines),
        log_x=True,
        y_range=(0.0, 1.0),
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--heads", type=int, default=50, help="ideal and random heads for every spread of the scores")
    options.add_argument("--out", type=Path, help="where to write the ROC curves on one sequence: .svg, .png or .pdf")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    began = time.perf_counter()
    told = [tell(sequences, chosen.heads * times) for sequences, times in SEQUENCES.items()]
    alarms = [
        {
            "positions": length,
            "mask": "causal" if causal else "none",
            "patterns": "the same in all sequences" if shared else "drawn for each sequence",
            "sequences": sequences,
            "false alarms": false_alarms(length, sequences, chosen.heads * times, causal, shared),
        }
        for shared, counts in ((False, SEQUENCES), (True, {100: 4}))
        for sequences, times in counts.items()
        for causal in (True, False)
        for length in LENGTHS
    ]
    if chosen.out is not None:
        commit = environment()["commit"] or "unknown"
        about = Provenance("none", "0", hardware(), commit, torch.__version__, round(time.perf_counter() - began, 1))
        save(roc_figure(told[0]), about, chosen.out)
    rows = [one.row for each in told for one in each]
    if chosen.json:
        print(json.dumps({"detectors": rows, "false alarms": alarms}, indent=2))
        return
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=140, float_precision=4, tbl_hide_column_data_types=True):
        print(pl.DataFrame(rows))
        print(pl.DataFrame(alarms))


if __name__ == "__main__":
    main()
