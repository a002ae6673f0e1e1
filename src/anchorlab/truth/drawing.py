"""Figures and tables of how well methods rank units."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Map, MapFigure, Scatter, ScatterFigure, Table, grid, numbers
from anchorlab.studies.interval import interval
from anchorlab.truth.ranked import BY_LOSS, FAMILIES, METHODS, Ranked, shares
from anchorlab.truth.seen import ALL, ON_HEADS, Seen
from anchorlab.truth.variants import SELECTIVE

SKILL = "Skill: the area under the ROC curve against the nearest minimal circuit, 0 as by chance and 1 if all is right."
MARKED = "Scores marked * are entries of a truth itself, the losses without one unit."

SHOWN = [place for place, name in enumerate(ALL) if not name.endswith(BY_LOSS)]
"""The indices in `ALL` of the rankings with a row in most tables; forms that use the loss have their own table."""

Row = tuple[str | int | float | None, ...]


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
        f"that one member cannot have. {MARKED}",
        ((Map("", grid(torch.stack(columns, dim=1)[SHOWN]), tuple(ALL[at] for at in SHOWN), names),),),
        x_label="",
        y_label="",
        value_label="skill",
        value_range=(-1.0, 1.0),
        signed=True,
    )


def cost_figure(seen: Seen) -> ScatterFigure:
    """Draw the skill of every form of every method against the number of passes that it takes."""
    names = ("ablation *", *FAMILIES)
    kinds = [next((at for at, one in enumerate(names) if name in FAMILIES.get(one, ())), 0) for name in METHODS]

    def scatter(title: str, of: Sequence[Ranked], skill: Float[Tensor, "method"]) -> Scatter:
        passes = [
            torch.tensor([sum(one.scores[name].passes) for one in of], dtype=torch.float64).mean() for name in METHODS
        ]
        return Scatter(title, numbers(passes), numbers(skill[: len(METHODS)]), numbers(kinds))

    return ScatterFigure(
        "Skill against cost",
        f"{SKILL} Mean over seeds and populations, or over compiled models; passes forward and backward, over all "
        f"sequences; a point for each baseline, by the difference of logits and by the loss. {MARKED}",
        (
            scatter("trained", seen.trained, seen.skill.nanmean(dim=(0, 1))),
            scatter("compiled", seen.written, seen.skill_of_compiled.nanmean(dim=0)),
        ),
        x_label="passes",
        y_label="skill",
        value_label="method",
        value_names=names,
    )


def method_table(seen: Seen) -> Table:
    """Return every measure of agreement with its interval, for every method and control."""
    area, correlation, recovered = (
        torch.stack([one.columns[name] for one in seen.trained]).nanmean(dim=0)
        for name in ("area", "correlation", "recovered")
    )
    written = torch.cat([one.columns["area"] for one in seen.written]).nanmean(dim=0)
    rows: list[Row] = []
    for place in SHOWN:
        name = ALL[place]
        passes = [one.scores[name].passes for one in seen.trained]
        rows.append(
            (
                name,
                *_with_interval(seen.of(name)),
                *_with_interval(seen.skill_of_compiled[:, place]),
                *(float(each) for each in (area[:, place].mean(), written[place])),
                *_with_interval(correlation[:, place]),
                *_with_interval(recovered[:, place]),
                *(round(sum(each) / len(passes)) for each in zip(*passes, strict=True)),
            )
        )
    return Table(
        "Agreement of each method and control with the truth",
        f"{SKILL} Area: not scaled. Correlation: Spearman's, with the sizes of exact Shapley values. Recovered: "
        "the share of the effect that the highest units recover, as many as the smallest circuit has. Means with 95 % "
        "intervals over seeds, each the mean over populations, and over compiled models; passes are means over "
        f"populations. {MARKED}",
        (
            *("ranking", "skill, trained", "from", "to", "skill, compiled", "from", "to", "area, trained"),
            *("area, compiled", "correlation", "from", "to", "recovered", "from", "to", "forward", "backward"),
        ),
        tuple(rows),
    )


def _with_interval(values: Float[Tensor, "unit"]) -> tuple[float | None, float | None, float | None]:
    own = values[values.isfinite()]
    ends = interval(own) or (None, None)
    return (float(own.mean()), *ends) if len(own) else (None, None, None)


def truth_table(seen: Seen) -> Table:
    """Return the skill of every method and control against other truths: units resampled, and heads alone."""
    rows: list[Row] = []
    for place in (*SHOWN, *range(len(ALL), len(ON_HEADS))):
        name, whole = ON_HEADS[place], place < len(ALL)
        mean, resampled = (
            _with_interval(each[..., place].nanmean(dim=1)) if whole else (None, None, None)
            for each in (seen.skill, seen.skill_if_resampled)
        )
        heads = _with_interval(seen.skill_on_heads[..., place].nanmean(dim=1))
        written = _with_interval(seen.skill_on_heads_of_compiled[:, place])
        rows.append((name, *mean, *resampled, _beside_chance(resampled), *heads, *written))
    groups = (seen.trained, seen.resampled, seen.heads, seen.written_heads)
    for name, *counts in zip(*_about(groups), strict=True):
        means = [(count, None, None) for count in counts]
        rows.append((name, *means[0], *means[1], None, *means[2], *means[3]))
    return Table(
        "The same against other truths",
        f"{SKILL} On trained members, if the truth replaces units by their mean or by another sequence's; and on heads "
        "alone, whose truth keeps every feed-forward layer, trained and compiled. Detectors and find_circuit rank no "
        "feed-forward layers. Means with 95 % intervals over seeds, each the mean over populations, and over compiled "
        f"models; at chance if the interval holds 0. Last the minimal circuits of a member, and the area of random "
        f"rankings against the nearest. {MARKED}",
        (
            *("ranking", "by the mean", "from", "to", "resampled", "from", "to", "resampled, beside chance"),
            *("heads, trained", "from", "to", "heads, compiled", "from", "to"),
        ),
        tuple(rows),
    )


def metric_table(seen: Seen) -> Table:
    """Return the skill of every method on trained members, with effects on the difference of logits or on the loss."""
    rows: list[Row] = []
    for name in METHODS:
        if f"{name}{BY_LOSS}" in METHODS:
            forms = [(form, other) for other in (False, True) for form in (name, f"{name}{BY_LOSS}")]
            found = [_with_interval(seen.of(*each)) for each in forms]
            rows.append((name, *(number for one in found for number in one), _beside_chance(found[-1])))
    return Table(
        "Skill by what effects are measured by",
        f"{SKILL} On trained members: effects on the difference of logits, or on the loss, as in the truth but on "
        "other sequences; if the truth replaces units by their mean, or by another sequence's. Means with 95 % "
        "intervals over seeds, each the mean over populations.",
        (
            *("method", "logits", "from", "to", "loss", "from", "to", "resampled, logits", "from", "to"),
            *("resampled, loss", "from", "to", "resampled, loss, beside chance"),
        ),
        tuple(rows),
    )


def _beside_chance(found: tuple[float | None, float | None, float | None]) -> str | None:
    """Return where the interval of a skill lies: above, at or below chance."""
    _, low, high = found
    return None if low is None or high is None else "above" if low > 0 else "below" if high < 0 else "at chance"


def _about(groups: Sequence[Sequence[Ranked]]) -> list[tuple[str | float, ...]]:
    """Return names, then for each group of truths the mean number of minimal circuits and the mean area by chance."""
    counts = [torch.tensor([float(len(own)) for one in group for own in one.sets]).mean().item() for group in groups]
    chance = [torch.cat([one.chance for one in group]).nanmean().item() for group in groups]
    return [("minimal circuits", "area by chance"), *zip(counts, chance, strict=True)]


def shape_table(seen: Seen) -> Table:
    """Return the skill of every method and control on each shape of trained models, with the number of circuits."""
    shapes = [*dict.fromkeys((one.layers, one.heads) for one in seen.populations)]
    of = [[place for place, one in enumerate(seen.populations) if one[1:] == shape] for shape in shapes]
    rows: list[Row] = [(ALL[place], *(float(seen.skill[:, own, place].nanmean()) for own in of)) for place in SHOWN]
    rows += zip(*_about([[seen.trained[place] for place in own] for own in of]), strict=True)
    return Table(
        "Skill by shape",
        f"{SKILL} Mean over seeds and over the populations of each shape, layers x heads. Last the minimal circuits of "
        f"a member, and the area of random rankings against the nearest. {MARKED}",
        ("ranking", *(f"{layers} x {heads}" for layers, heads in shapes)),
        tuple(rows),
    )


def failure_table(seen: Seen) -> Table:
    """Return what makes each method fail: kinds of compiled models, and early layers."""
    rows: list[Row] = [
        (
            ALL[place],
            *(float(_of_variant(seen, variant)[place]) for variant in SELECTIVE),
            float(torch.stack([early_weight(one, ALL[place]) for one in seen.trained]).mean()),
        )
        for place in SHOWN
        if ALL[place] in METHODS
    ]
    caption = (
        f"{SKILL} Skill on compiled models by what makes them hard; and the share of a method's scores in layer 0 "
        f"minus the share of Shapley values there, mean over trained members: below 0, early layers are underrated. "
        f"{MARKED}"
    )
    return Table("Where methods fail", caption, ("method", *SELECTIVE, "weight of layer 0"), tuple(rows))


def early_weight(one: Ranked, method: str) -> Float[Tensor, "member"]:
    """Return the share of a method's scores that units of layer 0 have, minus their share of Shapley values."""
    early = torch.tensor([unit.startswith("0.") for unit in one.truth.units])
    return (one.shares(method) - shares(one.truth.shapley))[:, early].sum(dim=1)
