"""All that is read of a two-layer model on the identity anchor function.

Source: anchor functions, section 5.1 and appendix B.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anchorlab.papers.anchor.mechanism.anchor_maps import AnchorMaps, anchor_maps
from anchorlab.papers.anchor.mechanism.last_row import LastRow, last_row
from anchorlab.papers.anchor.mechanism.measures import (
    LOOKED_AT,
    FirstAttention,
    PerMember,
    Projection,
    SecondAttention,
    Stages,
    first_attention,
    follow_stages,
    project_others,
    second_attention,
)
from anchorlab.studies.kit import at_end
from anchorlab.training import TrainedRun


@dataclass(frozen=True)
class Mechanism:
    """All parts of the model, and its test accuracy; `stages` by what is sent through the feed-forward network."""

    accuracy: PerMember
    first: FirstAttention
    stages: Mapping[str, Stages]
    second: SecondAttention
    by_anchor: AnchorMaps
    projection: Projection
    last: LastRow


def see(runs: Sequence[TrainedRun]) -> Mechanism:
    """Read every part of the one run's members at the end of training."""
    (run,) = runs
    ensemble, batch = run.ensemble(), run.experiment.task.sample("test", LOOKED_AT, seed=0)
    return Mechanism(
        accuracy=at_end(run, "test", "accuracy"),
        first=first_attention(ensemble, batch),
        stages=follow_stages(ensemble, batch),
        second=second_attention(ensemble, batch),
        by_anchor=anchor_maps(ensemble, batch),
        projection=project_others(ensemble, batch),
        last=last_row(ensemble, batch),
    )
