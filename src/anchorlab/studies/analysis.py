"""What the analysis of a study's runs or observations returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorlab.findings import Figure, Table
from anchorlab.findings.view import AttentionView


@dataclass(frozen=True)
class Analysis:
    """Results of a study's runs or observations.

    Args:
        seen: the input of the claims' measures
        seeds: the seeds of an analysis that draws its own data and reads no runs, in words
        model: the observed pretrained model, its revision and its number of parameters, in words
        untrained: the measures' input from an untrained model of the same architecture; None for no such control
    """

    seen: Any
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    views: Sequence[AttentionView] = ()
    seeds: str | None = None
    model: str | None = None
    untrained: Any = None
