"""Layer 0's feed-forward network: how it aligns the positions without the key, and sets the key's position apart.

Source: anchor functions, appendix B.3, Figures 20 and 22 to 24.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from anchorlab.findings import LineFigure, Map, MapFigure, Reference, Scatter, ScatterFigure, Table, grid, numbers
from anchorlab.lens import cosine_similarity, look, principal_components
from anchorlab.papers.anchor.mechanism.rows import FEW, MIDDLE, Keys, PerMember, Rows, key_positions, split_similarity
from anchorlab.studies.kit import curves_against
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble

STAGES = ("input", "first linear", "ReLU", "second linear", "residual", "layer norm")
"""The six stages of a feed-forward network (appendix B.3)."""

STREAM, ADDED, SUM = INPUTS = ("X(1)", "Xpr", "X(1) + Xpr")
"""What is sent through the network: the stream before attention, what attention adds, and their sum (Fig 20 and 24)."""


@dataclass(frozen=True)
class Stages:
    """Directions along layer 0's feed-forward network (appendix B.3); the others are the positions without the key."""

    similarity: Float[Tensor, "member stage query key"]  # cosine, mean over sequences with the key at `MIDDLE`
    others: Float[Tensor, "member stage"]  # mean cosine between the others
    key: Float[Tensor, "member stage"]  # mean cosine between the key's position and the others
    norms: Float[Tensor, "member position"]  # of the second linear output, mean over the same sequences
    norm: PerMember  # the same, mean over all positions and sequences
    outputs: Rows  # of the last stage
    spread: PerMember  # how far the others' outputs lie from their centre
    distance: PerMember  # how far the key's output lies from that centre

    @property
    def aligned(self) -> PerMember:
        """The mean cosine between positions without the key, after the last stage."""
        return self.others[:, -1]

    @property
    def apart(self) -> PerMember:
        """By how much `aligned` exceeds the absolute cosine between the key's position and the others.

        1 for parallel others and an orthogonal key, 0 where nothing sets the key apart.
        """
        return self.others[:, -1] - self.key[:, -1].abs()


def feed_forward_stages(
    weights: Mapping[str, Shaped[Tensor, "member ..."]], block: int, rows: Rows
) -> list[Float[Tensor, "member batch position _"]]:
    """Send rows through a block's feed-forward network, residual connection and layer norm; return the six `STAGES`.

    `weights` are stacked, `[member ...]`; each stage is `[member batch position neuron]` or `[... width]`.
    """
    name = f"blocks.{block}"
    first = rows @ weights[f"{name}.mlp.W_in"].unsqueeze(1)
    active = functional.relu(first)
    second = active @ weights[f"{name}.mlp.W_out"].unsqueeze(1)
    summed = rows + second
    scale, offset = (weights[f"{name}.ln2.{part}"][:, None, None] for part in "wb")
    return [rows, first, active, second, summed, functional.layer_norm(summed, summed.shape[-1:]) * scale + offset]


def follow_stages(ensemble: Ensemble, batch: Batch) -> dict[str, Stages]:
    """Measure how directions change through layer 0's feed-forward network, for each of `INPUTS`."""
    before, added = "blocks.0.hook_resid_pre", "blocks.0.hook_attn_out"
    record = look(ensemble, batch.inputs, record=[before, added])
    sent = {STREAM: record[before], ADDED: record[added], SUM: record[before] + record[added]}
    keys = key_positions(batch)
    found = {}
    for name, rows in sent.items():
        stages = feed_forward_stages(ensemble.weights, 0, rows)
        norms = stages[STAGES.index("second linear")].norm(dim=-1)  # [member batch position]
        similar = [cosine_similarity(stage, stage) for stage in stages]
        others, key = zip(*(split_similarity(one, keys) for one in similar), strict=True)
        spread, distance = spread_and_distance(stages[-1], keys)
        found[name] = Stages(
            similarity=torch.stack([one[:, keys == MIDDLE].mean(dim=1) for one in similar], dim=1),
            others=torch.stack(others, dim=1),
            key=torch.stack(key, dim=1),
            norms=norms[:, keys == MIDDLE].mean(dim=1),
            norm=norms.mean(dim=(1, 2)),
            outputs=stages[-1],
            spread=spread,
            distance=distance,
        )
    return found


def share_of_first(whole: PerMember, without_first: PerMember, without_second: PerMember) -> PerMember:
    """Return the share of a joint effect due to the first of two parts, from the changes when either is left out.

    With changes a and b this is a / (a + b): 1 if only the first matters, 0 if only the second, one half if the changes
    are equal or both zero.
    """
    first, second = (whole - without_first).abs(), (whole - without_second).abs()
    changed = first + second
    return torch.where(changed > 0, first / changed, torch.tensor(0.5))


def spread_and_distance(rows: Rows, keys: Keys) -> tuple[PerMember, PerMember]:
    """Return root mean square distances from the mean of all rows but the key's: of these rows, and of the key's."""
    each, count = torch.arange(len(keys)), rows.shape[2] - 1
    centre = (rows.sum(dim=2) - rows[:, each, keys]) / count
    squares = (rows - centre.unsqueeze(2)).square().sum(dim=-1)
    of_key = squares[:, each, keys]
    of_others = (squares.sum(dim=-1) - of_key) / count
    return of_others.mean(dim=-1).sqrt(), of_key.mean(dim=-1).sqrt()


def norm_curves(stages: Mapping[str, Stages]) -> LineFigure:
    """Draw the norms of the second linear map's outputs at every position."""
    return curves_against(
        "Norms of the feed-forward network's outputs at every position (Fig 20c)",
        range(stages[STREAM].norms.shape[1]),
        {f"FNN({name})": stages[name].norms for name in (STREAM, ADDED)},
        x_label="position",
        y_label="norm",
        caption="Outputs of the second linear map, before residual connection and layer norm; mean over test "
        f"sequences whose key is at position {MIDDLE}, counted from 0, and over seeds. The band reaches from the "
        "lowest to the highest seed.",
        y_range=(0.0, None),
        references=(Reference("the key", MIDDLE, "x"),),
    )


def stage_maps(seed: int, stages: Stages, name: str, figure: int) -> MapFigure:
    """Draw the cosine between positions at each stage, for one input."""
    maps = tuple(Map(stage, grid(stages.similarity[0, index])) for index, stage in enumerate(STAGES))
    return MapFigure(
        title=f"Cosine between positions along the feed-forward network, input {name} (Fig {figure})",
        caption=f"Seed {seed}; mean over test sequences whose key is at position {MIDDLE}, counted from 0.",
        maps=(maps[:3], maps[3:]),
        x_label="position",
        y_label="position",
        value_label="cosine",
        value_range=(-1.0, 1.0),
        signed=True,
        seeds=str(seed),
    )


def output_points(seed: int, stages: Mapping[str, Stages], batch: Batch) -> ScatterFigure:
    """Draw the outputs at every position in the plane of their main components."""
    at = key_positions(batch) == MIDDLE
    outputs = torch.stack([stages[name].outputs[0, at][:FEW] for name in INPUTS])  # [input batch position width]
    found = principal_components(outputs.unsqueeze(0))
    plane = found.coordinates[0].flatten(1, 2)  # [input point component]
    is_key = (torch.arange(outputs.shape[2]) == MIDDLE).float().repeat(outputs.shape[1])
    return ScatterFigure(
        title="Outputs of the feed-forward network in the plane of their main components (Fig 24)",
        caption=f"Seed {seed}; every position of test sequences whose key is at position {MIDDLE}, in one plane for "
        f"all three inputs, which holds {float(found.explained.sum()):.0%} of the variance.",
        scatters=tuple(
            Scatter(name, numbers(points[:, 0]), numbers(points[:, 1]), numbers(is_key))
            for name, points in zip(INPUTS, plane, strict=True)
        ),
        x_label="first component",
        y_label="second component",
        value_label="holds the key",
        value_names=("no", "yes"),
        seeds=str(seed),
    )


def stage_table(stages: Mapping[str, Stages]) -> Table:
    """List the cosine between positions at each stage."""
    return Table(
        title="Cosine between positions, stage by stage",
        caption="Means over test sequences and seeds: among the positions that do not hold the key, and between these "
        "and the key's.",
        columns=("input", "pairs", *STAGES),
        rows=tuple(
            (name, pairs, *values.mean(dim=0).tolist())
            for name, found in stages.items()
            for pairs, values in (("others", found.others), ("key and others", found.key))
        ),
    )
