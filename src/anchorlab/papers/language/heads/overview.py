"""Figures and tables of all heads of a language model: maps of scores, counts by layer, the cost of removal."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from anchorlab.findings import Figure, Line, LineFigure, Map, MapFigure, Reference, Table, grid, numbers
from anchorlab.papers.language.heads.examples import head_name, pattern_maps, source_table
from anchorlab.papers.language.heads.observing import ObservedHeads
from anchorlab.papers.language.heads.removal import WithoutHeads
from anchorlab.papers.language.heads.scores import ScoredHeads
from anchorlab.studies.claim import over

COUNTED = ("shift", "self", "first token", "broadcast", "uniform", "matching", "induction")
"""The detectors in the table of kinds of heads."""

MEASURES = {
    "text_loss": "loss on English, nats per token",
    "repeated": "probability of repeated random tokens",
    "induction": "mean score of the induction heads",
}
"""What removals are measured by."""

_LISTED = 8  # heads in the list of the strongest


def figures(observed: ObservedHeads) -> list[Figure]:
    """Return the figures of the study."""
    seen = observed.seen
    english, repeated = seen.english, seen.repeated
    return [
        pattern_maps(observed.examples.texts),
        _maps("Heads on ordinary English (Fig 28)", english, ("shift", "broadcast", "first token", "self", "uniform")),
        _maps(
            "Heads on random tokens that are repeated once",
            repeated,
            ("shift", "broadcast", "first token", "matching", "induction"),
        ),
        _counts(english, repeated),
        _by_layer(english),
        _without_layers(seen.losses, seen.losses_without, observed.removed),
        *([] if seen.without is None else [_draws(seen.without)]),
    ]


def _maps(title: str, scored: ScoredHeads, detectors: Sequence[str]) -> MapFigure:
    maps = tuple(Map(f"{name} (chance {scored.chance[name]:.2f})", grid(scored.scores[name])) for name in detectors)
    caption = (
        "The score of every head for each thing that heads do. Shift: by the best of one to eight places. "
        "Broadcast: from the best position of each text, as a share of the attention not given to the first token."
    )
    return MapFigure(title, caption, (maps,), "head", "layer", "score", value_range=(0.0, 1.0))


def _counts(english: ScoredHeads, repeated: ScoredHeads) -> LineFigure:
    kinds = {"shift": english, "broadcast": english, "first token": english, "induction": repeated}
    lines = [_line(name, scored.fires(name).sum(dim=1)) for name, scored in kinds.items()]
    title = "How many heads of each layer do what"
    caption = (
        "Heads whose score is over halfway from chance to 1: induction on repeated random tokens, the others "
        "on English."
    )
    return LineFigure(title, caption, "layer", "heads", tuple(lines), y_range=(0.0, None))


def _by_layer(english: ScoredHeads) -> LineFigure:
    names = {"shift": "shift", "broadcast": "broadcast", "any source": "broadcast from any token"}
    lines = [_line(label, english.scores[name].mean(dim=1)) for name, label in names.items()]
    lines.append(_line("similarity of heads", english.similarity.mean(dim=0)))
    caption = "Mean score of a layer's heads on English, and the mean cosine between the patterns of two of them."
    return LineFigure(
        "Shift and broadcast by layer", caption, "layer", "mean score, cosine", tuple(lines), y_range=(0.0, 1.02)
    )


def _without_layers(whole: Tensor, without: Mapping[int, Tensor], removed: int) -> LineFigure:
    places = sorted(without)
    costs = [over(without[place] - whole, "pieces") for place in places]
    ends = [one.interval for one in costs if one.interval is not None]
    band = map(tuple, zip(*ends, strict=True)) if len(ends) == len(costs) else ()
    means = tuple(float(one.value or 0) for one in costs)
    return LineFigure(
        title=f"Cost of removing {removed} consecutive layer{'s' if removed > 1 else ''}",
        caption="By how much the loss on English rises when these layers add nothing to the stream, by the first of "
        "them. The last layer of the model is always kept.",
        x_label="first removed layer",
        y_label="nats per token",
        lines=(Line("without layers", numbers(places), means, *band),) if places else (),
        references=(Reference("whole model", 0.0),),
        drawn="band: 95 % interval over pieces of English",
    )


def _draws(without: WithoutHeads) -> LineFigure:
    measures = [name for name in MEASURES if len(getattr(without.unchanged, name))]
    lines = []
    for name in measures:
        changes = (without.drawn(name).mean(dim=0) / without.change(name).mean()).sort().values
        lines.append(Line(MEASURES[name], numbers(range(1, len(changes) + 1)), numbers(changes)))
    return LineFigure(
        title="Removal of as many other heads, beside the heads that shift",
        caption="What each draw of other heads changes on average, as a share of what the removal of the heads that "
        "shift changes; the draws are sorted for each line.",
        x_label="draw",
        y_label="change, as a share",
        lines=tuple(lines),
        references=(Reference("heads that shift", 1.0),),
    )


def _line(label: str, values: Tensor) -> Line:
    return Line(label, numbers(range(len(values))), numbers(values))


def tables(observed: ObservedHeads) -> list[Table]:
    """Return the tables of the study."""
    seen = observed.seen
    assert observed.untrained is not None
    return [
        _kinds(seen.english, seen.repeated, observed.untrained.english),
        _strongest(seen.english, seen.repeated),
        source_table(seen.english, observed.examples.words),
        *([] if seen.without is None else [_removed(seen.without)]),
    ]


def _kinds(english: ScoredHeads, repeated: ScoredHeads, untrained: ScoredHeads) -> Table:
    rows = []
    for name in COUNTED:
        each = [
            value
            for scored in (english, repeated, untrained)
            for value in (int(scored.fires(name).sum()), float(scored.scores[name].max()))
        ]
        rows.append((name, *each, english.chance[name]))
    return Table(
        title="Heads of each kind",
        caption=f"Of {english.scores['shift'].numel()} heads, those over halfway from chance to 1, and the largest "
        "score of any. A head that attends to the first token does not count as broadcasting.",
        columns=("kind", "English", "largest", "repeated tokens", "largest", "untrained, English", "largest", "chance"),
        rows=tuple(rows),
    )


def _strongest(english: ScoredHeads, repeated: ScoredHeads) -> Table:
    rows = []
    for name, scored in (("shift", english), ("broadcast", english), ("matching", repeated), ("induction", repeated)):
        scores = scored.scores[name]
        width = scores.shape[1]
        for place in scores.flatten().topk(min(_LISTED, scores.numel())).indices.tolist():
            head = divmod(place, width)
            fires = "yes" if bool(scored.fires(name)[head]) else ""
            by = int(scored.distance[head]) if name == "shift" else None
            rows.append((name, head_name(head), float(scores[head]), scored.chance[name], by, fires))
    return Table(
        title="The strongest heads of each kind",
        caption="Shift and broadcast on English, matching and induction on repeated random tokens; heads as "
        "layer.head, both from 0.",
        columns=("kind", "head", "score", "chance", "shift by", "fires"),
        rows=tuple(rows),
    )


def _removed(without: WithoutHeads) -> Table:
    rows = []
    for name, label in MEASURES.items():
        if not len(before := getattr(without.unchanged, name)):
            continue
        own, drawn = without.change(name), without.drawn(name)
        low, high = over(own).interval or (None, None)
        others = drawn.mean(dim=0)
        less = int((own.mean().abs() > (others * own.mean().sign())).sum())
        changes = (float(own.mean()), low, high, float(others.mean()), float(others.min()), float(others.max()))
        rows.append((label, len(own), float(before.mean()), *changes, f"{less} of {len(others)}"))
    return Table(
        title="Without the heads that shift",
        caption=f"The heads {', '.join(map(head_name, without.removed))} give their mean output, and so do as "
        f"many others of the same layers in {len(without.draws)} draws. From and to are the ends of the change's 95 % "
        "interval over texts; the last column counts the draws that change the prediction less, or the other way.",
        columns=(
            "", "texts", "whole model", "change", "from", "to", "others: mean", "lowest", "highest", "draws below",
        ),
        rows=tuple(rows),
    )  # fmt: skip
