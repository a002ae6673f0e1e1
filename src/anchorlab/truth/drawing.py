"""Figures and tables of how well methods rank units."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Map, MapFigure, Scatter, ScatterFigure, Table, grid, numbers
from anchorlab.studies.interval import interval
from anchorlab.truth.ranked import METHODS, OF_HEADS, Ranked, shares
from anchorlab.truth.seen import ALL, ON_HEADS, Seen
from anchorlab.truth.variants import SELECTIVE

SKILL = "Skill: the area under the ROC curve against the nearest minimal circuit, 0 as by chance and 1 if all is right."


def _of_variant(seen: Seen, variant: str) -> Float[Tensor, "method"]:
    of = [place for place, (_, own) in enumerate(seen.models) if own == variant]
    return seen.skill_of_compiled[of].nanmean(dim=0)


def skill_figure(seen: Seen) -> MapFigure:
    """Draw the skill of every method and control on every population and on every kind of compiled model."""
    columns = [*seen.skill.nanmean(dim=0), *(_of_variant(seen, variant) for variant in SELECTIVE)]
    names = (*(one.label for one in seen.populations), *(f"compiled, {variant}" for variant in SELECTIVE))
    return MapFigure(
        "Skill of each method and control on each population",
        f"{SKILL} Mean over seeds, and over compiled models; 3 x 2 are three layers of two heads. Empty for a control "
        "that one member cannot have.",
        ((Map("", grid(torch.stack(columns, dim=1)), row_ticks=ALL, column_ticks=names),),),
        x_label="",
        y_label="",
        value_label="skill",
        value_range=(-1.0, 1.0),
        signed=True,
    )


def cost_figure(seen: Seen) -> ScatterFigure:
    """Draw the skill of every method against its passes."""

    def scatter(title: str, of: Sequence[Ranked], skill: Float[Tensor, "method"]) -> Scatter:
        passes = [
            torch.tensor([sum(one.scores[name].passes) for one in of], dtype=torch.float64).mean() for name in METHODS
        ]
        return Scatter(title, numbers(passes), numbers(skill[: len(METHODS)]), numbers(range(len(METHODS))))

    return ScatterFigure(
        "Skill against cost",
        f"{SKILL} Mean over seeds and populations, or over compiled models; passes forward and backward, over all "
        "sequences.",
        (
            scatter("trained", seen.trained, seen.skill.nanmean(dim=(0, 1))),
            scatter("compiled", seen.written, seen.skill_of_compiled.nanmean(dim=0)),
        ),
        x_label="passes",
        y_label="skill",
        value_label="method",
        value_names=METHODS,
    )


def method_table(seen: Seen) -> Table:
    """Return every measure of agreement with its interval, for every method and control."""
    correlation, recovered = (seen.column(name).nanmean(dim=1) for name in ("correlation", "recovered"))
    rows: list[tuple[str | int | float | None, ...]] = []
    for place, name in enumerate(ALL):
        passes = [one.scores[name].passes for one in seen.trained]
        rows.append(
            (
                name,
                *_with_interval(seen.of(name)),
                *_with_interval(seen.skill_of_compiled[:, place]),
                *_with_interval(correlation[:, place]),
                *_with_interval(recovered[:, place]),
                *(round(sum(each) / len(passes)) for each in zip(*passes, strict=True)),
            )
        )
    return Table(
        "Agreement of each method and control with the truth",
        f"{SKILL} Correlation: Spearman's, with the sizes of exact Shapley values. Recovered: the share of the effect "
        "that the highest units recover, as many as the smallest circuit has. Means with 95 % intervals over seeds, "
        "each the mean over populations, and over compiled models; passes are means over populations.",
        (
            *("ranking", "skill, trained", "from", "to", "skill, compiled", "from", "to"),
            *("correlation", "from", "to", "recovered", "from", "to", "forward", "backward"),
        ),
        tuple(rows),
    )


def _with_interval(values: Float[Tensor, "unit"]) -> tuple[float | None, float | None, float | None]:
    own = values[values.isfinite()]
    ends = interval(own) or (None, None)
    return (float(own.mean()), *ends) if len(own) else (None, None, None)


def truth_table(seen: Seen) -> Table:
    """Return the skill of every method and control on trained members against other truths."""
    rows: list[tuple[str | int | float | None, ...]] = []
    for place, name in enumerate(ON_HEADS):
        whole = name not in OF_HEADS
        mean, resampled = (
            _with_interval(each[..., place].nanmean(dim=1)) if whole else (None, None, None)
            for each in (seen.skill, seen.skill_if_resampled)
        )
        heads = _with_interval(seen.skill_on_heads[..., place].nanmean(dim=1))
        rows.append((name, *mean, *resampled, *heads, *_with_interval(seen.skill_on_heads_of_compiled[:, place])))
    return Table(
        "The same against other truths",
        f"{SKILL} On trained members, if the truth replaces units by their mean or by another sequence's; and on heads "
        "alone, whose truth keeps every feed-forward layer, trained and compiled. Detectors and find_circuit rank no "
        "feed-forward layers. Means with 95 % intervals over seeds, each the mean over populations, and over compiled "
        "models.",
        (
            *("ranking", "by the mean", "from", "to", "resampled", "from", "to"),
            *("heads, trained", "from", "to", "heads, compiled", "from", "to"),
        ),
        tuple(rows),
    )


def shape_table(seen: Seen) -> Table:
    """Return the skill of every method and control on each shape of trained models."""
    shapes = [*dict.fromkeys((one.layers, one.heads) for one in seen.populations)]
    of = [[place for place, one in enumerate(seen.populations) if one[1:] == shape] for shape in shapes]
    rows: list[tuple[str | int | float | None, ...]] = [
        (name, *(float(seen.skill[:, own, place].nanmean()) for own in of)) for place, name in enumerate(ALL)
    ]
    return Table(
        "Skill by shape",
        f"{SKILL} Mean over seeds and over the populations of each shape, layers x heads.",
        ("ranking", *(f"{layers} x {heads}" for layers, heads in shapes)),
        tuple(rows),
    )


def failure_table(seen: Seen) -> Table:
    """Return what makes each method fail: kinds of compiled models, and early layers."""
    rows: list[tuple[str | int | float | None, ...]] = [
        (
            name,
            *(float(_of_variant(seen, variant)[place]) for variant in SELECTIVE),
            float(torch.stack([early_weight(one, name) for one in seen.trained]).mean()),
        )
        for place, name in enumerate(METHODS)
    ]
    caption = (
        f"{SKILL} Skill on compiled models by what makes them hard; and the share of a method's scores in layer 0 "
        "minus the share of Shapley values there, mean over trained members: below 0, early layers are underrated."
    )
    return Table("Where methods fail", caption, ("method", *SELECTIVE, "weight of layer 0"), tuple(rows))


def early_weight(one: Ranked, method: str) -> Float[Tensor, "member"]:
    """Return the share of a method's scores that units of layer 0 have, minus their share of Shapley values."""
    early = torch.tensor([unit.startswith("0.") for unit in one.truth.units])
    return (one.shares(method) - shares(one.truth.shapley))[:, early].sum(dim=1)
