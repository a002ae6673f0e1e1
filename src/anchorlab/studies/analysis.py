"""What a study sees and draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorlab.findings import Figure, Table
from anchorlab.findings.view import AttentionView


@dataclass(frozen=True)
class Analysis:
    """The drawings of a study's runs or observation.

    Fields
        seen: the input of the claims' measures
    """

    seen: Any
    figures: Sequence[Figure]
    tables: Sequence[Table]
    views: Sequence[AttentionView]
