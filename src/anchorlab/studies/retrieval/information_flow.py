"""How many layers the retrieval problem needs, by exact simulation of who can know what.

Source: stacked attention heads, section 5 and appendix B.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
from jaxtyping import Int

from anchorlab.findings import Claim, Findings, Line, LineFigure, Provenance, Table, numbers
from anchorlab.studies.study import Profile, Study
from anchorlab.theory.information_flow import Flow, depth_by_runs, least_depth, lower_bound
from anchorlab.training import TrainedRun

_STUDY = "retrieval/information-flow"
MOST_STEPS = {"quick": 2000, "paper": 10_000, "smoke": 30}
"""The longest chain of each profile; every shorter one is simulated too."""

FLOWS = {
    "no mask": Flow(),
    "no mask, one head": Flow(heads=1),
    "causal mask": Flow(causal=True),
    "causal mask, one head": Flow(causal=True, heads=1),
}
_FORMULAS = {
    "no mask": "log₃(4D + 1)",
    "no mask, one head": "log₂(2D + 1)",
    "causal mask": "log₂(2D + 1)",
    "causal mask, one head": "log₂(2D + 2)",
}

CLAIMS = (
    Claim(
        f"{_STUDY}/bound",
        "x_D cannot be retrieved with fewer than log_3(2D) layers",
        "stacked attention heads, Theorem 1",
        "t < log_3(2D) is not enough",
        "least number of layers minus log_3(2D), the smallest over all D",
        (0.0, None),
    ),
    Claim(
        f"{_STUDY}/factor-three",
        "What is known grows by a factor of 3 in each layer, at most",
        "stacked attention heads, section 5",
        "a factor of 3",
        "share of D for which chains of 3D steps need exactly one layer more",
        (1.0, 1.0),
    ),
    Claim(
        f"{_STUDY}/mask",
        "Behind a causal mask it takes more layers",
        "stacked attention heads, section 5",
        "even higher",
        "layers at the largest D with a mask, minus those without",
        (1.0, None),
    ),
    Claim(
        f"{_STUDY}/three-for-three",
        "For D = 3 three heads are enough in a model with a mask and one head in each layer",
        "stacked attention heads, section 8.2",
        "possible to use only 3",
        "least number of layers with one head and a mask at D = 3",
        (3.0, 3.0),
    ),
)


@dataclass(frozen=True)
class Depths:
    """The least number of layers for every D from 1 on, simulated and by the closed form, `[step]`."""

    simulated: Int[np.ndarray, "step"]
    formula: Int[np.ndarray, "step"]


def measure(most: int) -> dict[str, Depths]:
    """Simulates every chain of up to `most` steps under every flow."""
    steps = range(1, most + 1)
    return {
        name: Depths(
            np.array([depth_by_runs(one, flow) for one in steps]), np.array([least_depth(one, flow) for one in steps])
        )
        for name, flow in FLOWS.items()
    }


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Simulates everything; there are no runs to read."""
    began, most = time.monotonic(), MOST_STEPS[provenance.profile]
    found = measure(most)
    steps = np.arange(1, most + 1)
    bound = np.array([lower_bound(one) for one in range(1, most + 1)])
    least = found["no mask"].simulated
    thirds = np.arange(1, most // 3 + 1)
    values = {
        "bound": (least - np.log(2 * steps) / log(3)).min(),
        "factor-three": (least[3 * thirds - 1] == least[thirds - 1] + 1).mean(),
        "mask": found["causal mask"].simulated[-1] - least[-1],
        "three-for-three": found["causal mask, one head"].simulated[2],
    }
    provenance = replace(provenance, seeds="none", seconds=round(time.monotonic() - began, 1))
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="A position may attend to another only if the two share a piece of information, and then gets all that "
        f"is there. After how many layers can the query know the end of a chain of D steps? {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=tuple(
            claim.judge(values[claim.id.rpartition("/")[2]], provenance.profile, f"all D to {most}") for claim in CLAIMS
        ),
        figures=(_figure(found, bound, most),),
        tables=(_table(found, bound, most),),
    )


def _figure(found: dict[str, Depths], bound: Int[np.ndarray, "step"], most: int) -> LineFigure:
    """Every D at which a depth changes, and the last before it, so that steps stay steps."""
    lines = []
    for name, depths in {"Theorem 1": bound, **{name: one.simulated for name, one in found.items()}}.items():
        jumps = np.flatnonzero(np.diff(depths)) + 1
        at = np.unique(np.concatenate([[1, most], jumps, jumps + 1]))
        lines.append(Line(name, numbers(at), numbers(depths[at - 1])))
    return LineFigure(
        title="Layers that a chain of D steps needs",
        caption=f"Exact simulation for every D up to {most}. With one head a position fetches one other in each layer, "
        "without that limit all with which it shares something; two heads are as good as any number.",
        x_label="D, steps of the chain",
        y_label="layers",
        lines=tuple(lines),
        log_x=True,
    )


def _table(found: dict[str, Depths], bound: Int[np.ndarray, "step"], most: int) -> Table:
    shown = [one for one in (1, 2, 3, 4, 5, 10, 100, 1000, 10_000) if one <= most]
    rows: list[tuple[str | int | float, ...]] = [
        ("Theorem 1", "log₃(2D)", 1.0, 1.0, *(int(bound[one - 1]) for one in shown))
    ]
    for name, depths in found.items():
        agreement = float((depths.simulated == depths.formula).mean())
        attained = float((depths.simulated == bound).mean())
        rows.append((name, _FORMULAS[name], agreement, attained, *(int(depths.simulated[one - 1]) for one in shown)))
    return Table(
        title="The least number of layers",
        caption=f"The formula, rounded up; for what share of all D up to {most} the simulation gives the same, and for "
        "what share it gives the bound of Theorem 1; and the simulated number for some D.",
        columns=("attention", "formula", "agreement", "at the bound", *(f"D = {one}" for one in shown)),
        rows=tuple(rows),
    )


STUDY = Study(
    name=_STUDY,
    title="Retrieval: the layers that information needs to flow along a chain",
    claims=CLAIMS,
    profiles={
        "quick": Profile(tuple, f"Quick profile: every D up to {MOST_STEPS['quick']}."),
        "paper": Profile(tuple, f"Paper profile: the theorem is for every D; simulated up to {MOST_STEPS['paper']}."),
        "smoke": Profile(tuple, f"Smoke profile: every D up to {MOST_STEPS['smoke']}, to exercise the code."),
    },
    analyse=analyse,
)
