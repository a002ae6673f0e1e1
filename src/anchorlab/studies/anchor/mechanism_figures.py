"""The figures of a two-layer model's mechanism on the identity anchor function.

Source: anchor functions, appendix B, Figures 20 to 27.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from anchorlab.findings import Figure, LineFigure, Map, MapFigure, Scatter, ScatterFigure, grid, line, numbers
from anchorlab.lens import Intervention, cosine_similarity, look, principal_components
from anchorlab.studies.anchor.mechanism_measures import (
    INPUTS,
    STAGES,
    FirstAttention,
    Projection,
    Stages,
    key_positions,
)
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble, TrainedRun

MIDDLE = 5
"""The key's position in the paper's figures, counted from 0."""


def figures(
    run: TrainedRun,
    ensemble: Ensemble,
    batch: Batch,
    first: FirstAttention,
    stages: Mapping[str, Stages],
    projection: Projection,
) -> list[Figure]:
    """The figures of appendix B, most for the first seed."""
    return [
        _first_figure(run, ensemble, batch, first),
        *(_stage_figure(run, stages[name], name, figure) for name, figure in ((INPUTS[1], 22), (INPUTS[2], 23))),
        _cloud_figure(run, stages, batch),
        _second_figure(run, ensemble, batch),
        LineFigure(
            title="What a position without the key puts out (Fig 27)",
            caption="Probability of every token when the row of such a position, as layer 1 leaves it, goes through "
            "the projection. Mean over positions, sequences and seeds; the band reaches from the lowest to the highest "
            "seed.",
            x_label="token",
            y_label="probability",
            lines=(line("without the key", range(projection.probabilities.shape[1]), projection.probabilities),),
        ),
    ]


def _example(run: TrainedRun, batch: Batch) -> tuple[Tensor, tuple[str, ...]]:
    """A sequence whose key stands where the paper's does, `[1 position]`, and its tokens as texts."""
    at = int((key_positions(batch) == MIDDLE).nonzero()[0])
    inputs = batch.inputs[at : at + 1]
    return inputs, tuple(token.text for token in run.experiment.task.render(inputs)[0].tokens)


def _first_figure(run: TrainedRun, ensemble: Ensemble, batch: Batch, first: FirstAttention) -> MapFigure:
    inputs, ticks = _example(run, batch)
    site = "blocks.0.attn.hook_pattern"
    parts = {"X(1)": [], "tokens alone": ["hook_pos_embed"], "positions alone": ["hook_embed"]}
    changes = {name: [Intervention(site=one, rule="zero") for one in zeroed] for name, zeroed in parts.items()}
    seen = look(ensemble.select([0]), inputs, record=[site], candidates=changes)
    maps = [Map(name, grid(seen.candidate(name)[site][0, 0, 0]), ticks, ticks) for name in changes]
    return MapFigure(
        title="Layer 1's attention, what it comes from, and the directions behind it (Fig 21)",
        caption=f"{_seed(run)}, one test sequence: the map of the whole stream, of tokens alone and of positions "
        "alone; and the cosine between the queries and keys of positions, which is greatest where the query's position "
        "is the key's next.",
        maps=((*maps, Map("cosine of Q and K of positions", grid(first.queries_to_keys[0]))),),
        value_range=(-1.0, 1.0),
        value_label="attention, cosine",
        signed=True,
    )


def _stage_figure(run: TrainedRun, stages: Stages, name: str, figure: int) -> MapFigure:
    maps = [Map(stage, grid(stages.similarity[0, index])) for index, stage in enumerate(STAGES)]
    return MapFigure(
        title=f"Cosine between positions along the feed-forward network, input {name} (Fig {figure})",
        caption=f"{_seed(run)}; mean over test sequences whose key stands at position {MIDDLE}, counted from 0.",
        maps=(tuple(maps[:3]), tuple(maps[3:])),
        x_label="position",
        y_label="position",
        value_label="cosine",
        value_range=(-1.0, 1.0),
        signed=True,
    )


def _cloud_figure(run: TrainedRun, stages: Mapping[str, Stages], batch: Batch) -> ScatterFigure:
    at = key_positions(batch) == MIDDLE
    outputs = torch.stack([stages[name].outputs[0, at][:40] for name in INPUTS])  # [input batch position width]
    found = principal_components(outputs.unsqueeze(0))
    plane = found.coordinates[0].flatten(1, 2)  # [input point component]
    is_key = (torch.arange(outputs.shape[2]) == MIDDLE).float().repeat(outputs.shape[1])
    return ScatterFigure(
        title="Outputs of the feed-forward network in the plane of their main components (Fig 24)",
        caption=f"{_seed(run)}; every position of test sequences whose key stands at position {MIDDLE}, in one plane "
        f"for all three inputs, which holds {float(found.explained.sum()):.0%} of the variance. Coloured by whether "
        "the position holds the key.",
        scatters=tuple(
            Scatter(name, numbers(points[:, 0]), numbers(points[:, 1]), numbers(is_key))
            for name, points in zip(INPUTS, plane, strict=True)
        ),
        x_label="first component",
        y_label="second component",
        value_label="holds the key",
    )


def _second_figure(run: TrainedRun, ensemble: Ensemble, batch: Batch) -> MapFigure:
    inputs, ticks = _example(run, batch)
    sites = [f"blocks.1.attn.hook_{name}" for name in ("q", "k", "pattern")]
    record = look(ensemble.select([0]), inputs, record=sites)
    queries, keys = (record[site][0, 0, :, 0] for site in sites[:2])
    scores = queries @ keys.T / queries.shape[-1] ** 0.5
    other = 0
    directions = torch.stack([queries[other], queries[MIDDLE], keys[other], keys[MIDDLE]])
    names = ("Q, other", "Q, key", "K, other", "K, key")
    reach = float(scores.abs().max())
    return MapFigure(
        title="Layer 2's attention before and after mask and softmax, and its directions (Fig 25 and 26)",
        caption=f"{_seed(run)}, one test sequence: scores as parts of the greatest absolute one ({reach:.3g}), the "
        "pattern, and the cosines between the queries and keys of the first position and the key's.",
        maps=(
            (
                Map("scores", grid(scores / reach), ticks, ticks),
                Map("pattern", grid(record[sites[2]][0, 0, 0]), ticks, ticks),
                Map("directions", grid(cosine_similarity(directions, directions)), names, names),
            ),
        ),
        value_label="scaled score, attention, cosine",
        value_range=(-1.0, 1.0),
        signed=True,
    )


def _seed(run: TrainedRun) -> str:
    return f"Seed {run.experiment.members.seeds[0]}"
