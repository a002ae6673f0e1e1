"""The figures of a two-layer model's mechanism on the identity anchor function.

Source: anchor functions, section 5.1 and appendix B, Figures 20 to 27.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.findings import Figure, Map, MapFigure, Reference, Scatter, ScatterFigure, grid, numbers
from anchorlab.lens import Intervention, look, principal_components
from anchorlab.papers.anchor.mechanism.measures import (
    ADDED,
    INPUTS,
    MIDDLE,
    STAGES,
    STREAM,
    SUM,
    FirstAttention,
    Stages,
    key_positions,
)
from anchorlab.papers.anchor.mechanism.seen import Mechanism
from anchorlab.studies.kit import curves_against, example
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble

FEW = 40
"""The number of sequences whose rows are drawn as points."""


def figures(seen: Mechanism) -> list[Figure]:
    """Return the figures of section 5.1 and appendix B.

    Most show the first seed, on a sequence with its key at the same position as in the paper.
    """
    one, batch, experiment = seen.ensemble.select([0]), seen.batch, seen.first.experiment
    seed = experiment.members.seeds[0]
    place, ticks = example(experiment.task, batch, key_positions(batch) == MIDDLE)
    inputs = batch.inputs[[place]]
    maps = [
        Map(f"anchor at {position}", grid(seen.by_anchor.maps[0, place]))
        for place, position in enumerate(seen.by_anchor.positions.tolist())
    ]
    return [
        _first_attention(seed, one, inputs, ticks, seen.first_attention),
        _stages(seed, seen.stages[ADDED], ADDED, 22),
        _stages(seed, seen.stages[SUM], SUM, 23),
        curves_against(
            "Norms of the feed-forward network's outputs at every position (Fig 20c)",
            range(seen.stages[STREAM].norms.shape[1]),
            {f"FNN({name})": seen.stages[name].norms for name in (STREAM, ADDED)},
            x_label="position",
            y_label="norm",
            caption="Outputs of the second linear map, before residual connection and layer norm; mean over test "
            f"sequences whose key is at position {MIDDLE}, counted from 0, and over seeds. The band reaches from the "
            "lowest to the highest seed.",
            y_range=(0.0, None),
            references=(Reference("the key", MIDDLE, "x"),),
        ),
        _outputs(seed, seen, batch),
        MapFigure(
            title="Layer 1's attention by the anchor's position (section 5.1)",
            caption=f"Seed {seed}; mean maps over the test sequences with the anchor at each position, counted from 0.",
            maps=tuple(tuple(maps[start : start + 4]) for start in range(0, len(maps), 4)),
            value_range=(0.0, 1.0),
            seeds=str(seed),
        ),
        _second_attention(seed, one, inputs, ticks),
        _second_directions(seed, one, batch),
        curves_against(
            "What a position without the key puts out (Fig 27)",
            range(seen.projection.probabilities.shape[1]),
            {"without the key": seen.projection.probabilities},
            x_label="token",
            y_label="probability",
            caption="Probability of every token when the row of such a position, as layer 0 leaves it, goes through "
            "the projection. Mean over positions, sequences and seeds; the band reaches from the lowest to the highest "
            "seed.",
        ),
    ]


def _first_attention(
    seed: int, one: Ensemble, inputs: Int[Tensor, "1 position"], ticks: tuple[str, ...], first: FirstAttention
) -> MapFigure:
    site = "blocks.0.attn.hook_pattern"
    parts = {"X(1)": [], "tokens alone": ["hook_pos_embed"], "positions alone": ["hook_embed"]}
    changes = {name: [Intervention(site=part, rule="zero") for part in zeroed] for name, zeroed in parts.items()}
    seen = look(one, inputs, record=[site], candidates=changes)
    maps = [Map(name, grid(seen.candidate(name)[site][0, 0, 0]), ticks, ticks) for name in changes]
    return MapFigure(
        title="Layer 0's attention, what it comes from, and the directions behind it (Fig 21)",
        caption=f"Seed {seed}, one test sequence: the map of the whole stream, of tokens alone and of positions alone; "
        "and the cosine between the queries and keys of positions, which is greatest where the query's position is "
        "the key's next.",
        maps=((*maps, Map("cosine of Q and K of positions", grid(first.queries_to_keys[0]))),),
        value_range=(-1.0, 1.0),
        value_label="attention, cosine",
        signed=True,
        seeds=str(seed),
    )


def _stages(seed: int, stages: Stages, name: str, figure: int) -> MapFigure:
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


def _outputs(seed: int, seen: Mechanism, batch: Batch) -> ScatterFigure:
    at = key_positions(batch) == MIDDLE
    outputs = torch.stack([seen.stages[name].outputs[0, at][:FEW] for name in INPUTS])  # [input batch position width]
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


def _second_attention(seed: int, one: Ensemble, inputs: Int[Tensor, "1 position"], ticks: tuple[str, ...]) -> MapFigure:
    sites = [f"blocks.1.attn.hook_{name}" for name in ("q", "k", "pattern")]
    record = look(one, inputs, record=sites)
    queries, keys = (record[site][0, 0, :, 0] for site in sites[:2])
    scores = queries @ keys.T / queries.shape[-1] ** 0.5
    reach = float(scores.abs().max())
    return MapFigure(
        title="Layer 1's attention before and after mask and softmax (Fig 25)",
        caption=f"Seed {seed}, one test sequence: scores as parts of the greatest absolute one ({reach:.3g}), and the "
        "pattern.",
        maps=(
            (
                Map("scores", grid(scores / reach), ticks, ticks),
                Map("pattern", grid(record[sites[2]][0, 0, 0]), ticks, ticks),
            ),
        ),
        value_label="scaled score, attention",
        value_range=(-1.0, 1.0),
        signed=True,
        seeds=str(seed),
    )


def _second_directions(seed: int, one: Ensemble, batch: Batch) -> ScatterFigure:
    sites = [f"blocks.1.attn.hook_{name}" for name in "qk"]
    record = look(one, batch.inputs[key_positions(batch) == MIDDLE][:FEW], record=sites)
    return directions_figure(seed, *(record[site][0, :, :, 0] for site in sites))


def directions_figure(
    seed: int, queries: Float[Tensor, "batch position width"], keys: Float[Tensor, "batch position width"]
) -> ScatterFigure:
    """Return the figure of the main components of queries and keys, those of the first position and of `MIDDLE`."""
    kinds = {
        "Q, first position": queries[:, 0],
        "Q, key": queries[:, MIDDLE],
        "K, first position": keys[:, 0],
        "K, key": keys[:, MIDDLE],
    }
    found = principal_components(torch.stack([*kinds.values()]).unsqueeze(0))
    points = found.coordinates[0]  # [kind batch component]
    which = torch.arange(len(kinds)).repeat_interleave(points.shape[1]).float()
    return ScatterFigure(
        title="Layer 1's queries and keys in the plane of their main components (Fig 26)",
        caption=f"Seed {seed}; queries and keys of the first position and of the key's, of test sequences whose key is "
        f"at position {MIDDLE}, in one plane, which holds {float(found.explained.sum()):.0%} of the variance.",
        scatters=(Scatter("", numbers(points[..., 0].flatten()), numbers(points[..., 1].flatten()), numbers(which)),),
        x_label="first component",
        y_label="second component",
        value_label="row of",
        value_names=tuple(kinds),
        seeds=str(seed),
    )
