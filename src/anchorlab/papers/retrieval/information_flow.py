"""Retrieval: the layers that information needs to flow along a chain.

A position may attend to another only if they share a piece of information, and then receives all that the other knows.
After how many layers can the query know the end of a chain of D steps?

Source: stacked attention heads, section 5 and appendix B.
"""

from collections.abc import Callable, Mapping, Sequence
from math import log

import numpy as np
import torch
from jaxtyping import Bool, Int

from anchorlab.findings import Line, LineFigure, Map, MapFigure, Table, at_least, at_most, grid, numbers, within
from anchorlab.studies import Measurement, Profile, Reading, Study, claim, measures_in, reading
from anchorlab.studies.kit import column_table
from anchorlab.theory.information_flow import Flow, depth_by_runs, held_by_layer, least_depth, lower_bound

FLOWS = {
    "no mask": Flow(),
    "no mask, one head": Flow(heads=1),
    "causal mask": Flow(causal=True),
    "causal mask, one head": Flow(causal=True, heads=1),
}
FORMULAS = {
    "Theorem 1": "log₃(2D)",
    "no mask": "log₃(4D + 1)",
    "no mask, one head": "log₂(2D + 1)",
    "causal mask": "log₂(2D + 1)",
    "causal mask, one head": "log₂(2D + 2)",
}
"""The closed forms before rounding up."""

LONGEST_SETS = 40
"""The steps of the longest chain for which the pieces at every position are simulated, to check Lemmas 2 and 3."""

SHOWN = 5
"""The D of Figures 3 and 8."""


class Seen(Reading):
    """The least number of layers for every D from 1 to `most`, for Theorem 1 and each of `FLOWS`."""

    seeds = "none"

    @property
    def most(self) -> int:
        """The largest D, which is the study's setting; every shorter chain is simulated, too."""
        return int(self.setting)

    @reading
    def simulated(self) -> Mapping[str, Int[np.ndarray, "step"]]:
        """The least number of layers by exact simulation; for Theorem 1, its bound."""
        return self._least(depth_by_runs)

    @reading
    def formula(self) -> Mapping[str, Int[np.ndarray, "step"]]:
        """The least number of layers by the closed form; for Theorem 1, its bound."""
        return self._least(least_depth)

    @reading
    def held(self) -> Sequence[Bool[np.ndarray, "_layer _position _piece"]]:
        """The pieces that each position holds after each layer, for every D up to `LONGEST_SETS`."""
        return [held_by_layer(one) for one in range(1, min(self.most, LONGEST_SETS) + 1)]

    def _least(self, depth: Callable[[int, Flow], int]) -> Mapping[str, Int[np.ndarray, "step"]]:
        steps = range(1, self.most + 1)
        found = {name: np.array([depth(one, flow) for one in steps]) for name, flow in FLOWS.items()}
        return {"Theorem 1": np.array([lower_bound(one) for one in steps])} | found

    def over(self, value: float | np.integer) -> Measurement:
        """Return a measurement over all D."""
        return Measurement(float(value), f"all D to {self.most}")


@claim("Theorem 1", "t < log_3(2D) is not enough", at_least(0.0), exact=True)
def bound(seen: Seen) -> Measurement:
    """x_D cannot be retrieved with fewer than log_3(2D) layers.

    Least number of layers minus log_3(2D), smallest over all D.
    """
    steps = np.arange(1, seen.most + 1)
    return seen.over((seen.simulated["no mask"] - np.log(2 * steps) / log(3)).min())


@claim("Lemma 2", "every residual stream, after every layer", within(1.0, 1.0), exact=True)
def contiguous(seen: Seen) -> Measurement:
    """After every layer a position knows neighbouring pieces of its chain, without a gap.

    Share of positions whose pieces are one run, over all layers and D up to {LONGEST_SETS}.
    """
    edges = [np.diff(one.astype(int), axis=2, prepend=0, append=0) for one in seen.held]  # 1 where a run begins
    runs = np.concatenate([(one == 1).sum(axis=2).ravel() for one in edges])
    return Measurement(float((runs == 1).mean()), f"all D to {len(seen.held)}")


@claim("Lemma 3", "at most 3^t + 1", at_most(1.0), exact=True)
def length_at_most(seen: Seen) -> Measurement:
    """After t layers a position knows at most 3^t + 1 pieces of its chain.

    Number of pieces that a position holds after t layers, divided by 3^t + 1, largest over all t and D up to
    {LONGEST_SETS}.
    """
    most = [one.sum(axis=2).max(axis=1) / (3.0 ** np.arange(len(one)) + 1) for one in seen.held]
    return Measurement(float(max(one.max() for one in most)), f"all D to {len(seen.held)}")


@claim("section 5", "at most a factor of 3", within(1.0, 1.0), exact=True)
def factor_three(seen: Seen) -> Measurement:
    """What is known can grow by a factor of 3 in each layer: a chain three times as long needs one layer more.

    Share of D for which chains of 3D steps need exactly one layer more than chains of D steps.
    """
    least, steps = seen.simulated["no mask"], np.arange(1, seen.most // 3 + 1)
    return seen.over((least[3 * steps - 1] == least[steps - 1] + 1).mean())


@claim("section 8.2", "possible to use only 3", within(3.0, 3.0), exact=True)
def three_for_three(seen: Seen) -> Measurement:
    """For D = 3 three heads are enough in a model with a mask and one head in each layer.

    Least number of layers with one head and a mask at D = 3.
    """
    return seen.over(seen.simulated["causal mask, one head"][2])


def _shared(seen: Seen) -> MapFigure:
    """Draw the layer after which each position holds each piece: 0 for the pieces that the position begins with."""
    held = seen.held[min(SHOWN, seen.most) - 1]
    steps = (held.shape[1] - 1) // 2
    after = np.where(held.any(axis=0), held.argmax(axis=0), np.nan)[:, 1:]
    symbols = [f"x{_lowered(number)}" for number in range(steps + 1)]
    pairs = [f"p{_lowered(number)}" for number in range(1, steps + 1)]
    positions = [symbols[place // 2] for place in range(2 * steps + 1)]
    pieces = [symbols[index // 2] if index % 2 == 0 else pairs[index // 2] for index in range(2 * steps + 1)]
    return MapFigure(
        title=f"Positions and the information they hold, D = {steps} (Fig 3 and 8)",
        caption="Rows: the query x₀, then both members of pair 1, of pair 2 and so on. Columns: symbols x and "
        "positions p of pairs. A cell is the layer after which the position holds the piece: 0 for pieces that it "
        "begins with; it shares one of these with each neighbouring row.",
        maps=((Map("", grid(torch.from_numpy(after)), tuple(positions), tuple(pieces)),),),
        x_label="piece of information",
        y_label="position",
        value_label="layer",
        value_range=(0.0, None),
    )


def _lowered(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def _figure(seen: Seen) -> LineFigure:
    """Draw each depth at every D where it changes and at the D before, so that the lines are staircases."""
    lines = []
    for name, depths in seen.simulated.items():
        jumps = np.flatnonzero(np.diff(depths)) + 1
        at = np.unique(np.concatenate([[1, seen.most], jumps, jumps + 1]))
        lines.append(Line(name, numbers(at), numbers(depths[at - 1])))
    caption = (
        f"Exact simulation for every D up to {seen.most}. With one head, a position fetches from one other in each "
        "layer; without that limit, from all that share a piece with it. Two heads are as good as any number."
    )
    return LineFigure(
        "Layers that a chain of D steps needs", caption, "D, steps of the chain", "layers", tuple(lines), log_x=True
    )


def _table(seen: Seen) -> Table:
    shown = [one for one in (1, 2, 3, 4, 5, 10, 100, 1000, 10_000) if one <= seen.most]
    depths = seen.simulated
    return column_table(
        "The least number of layers",
        f"The formula, rounded up; for what share of all D up to {seen.most} the simulation gives the same, and for "
        "what share it gives the bound of Theorem 1; and the simulated number for some D.",
        {
            "attention": list(depths),
            "formula": [FORMULAS[name] for name in depths],
            "agreement": [float((depths[name] == seen.formula[name]).mean()) for name in depths],
            "at the bound": [float((one == depths["Theorem 1"]).mean()) for one in depths.values()],
            **{f"D = {step}": [int(one[step - 1]) for one in depths.values()] for step in shown},
        },
    )


STUDY = Study(
    "retrieval/information-flow",
    __doc__,
    measures_in(__name__),
    reads=Seen,
    draws=(_shared, _figure, _table),
    profiles={
        "quick": Profile(2000, "Quick profile: every D up to 2000."),
        "paper": Profile(10_000, "Paper profile: the theorem is for every D; simulated up to 10000."),
    },
    smoke=30,
)
