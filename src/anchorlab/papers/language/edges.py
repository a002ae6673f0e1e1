"""Language models: a few edges explain how repetitions and indirect objects are predicted.

Random tokens are repeated, and sentences tell who gives something to whom. A gradient scores every edge of the model,
from what one unit writes to what a later one reads. Then only the edges with the largest scores stay, as many as
explain 80 % of the logit difference. The share that they explain on other texts is compared with random edges and with
the other task's edges, and the heads of the circuit with the heads that detectors find.

Our own question, not from a paper. Source of the method: Hanna, Pezzelle & Belinkov, 2024, arXiv 2403.17806.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from scipy.stats import mannwhitneyu
from torch import Tensor

from anchorlab.findings import Line, LineFigure, Table, at_least, at_most, numbers
from anchorlab.language import LanguageModel
from anchorlab.language.pairs import TextPairs, indirect_objects, repetitions
from anchorlab.language.repeated import repeated_tokens
from anchorlab.language.start import beginning
from anchorlab.lens import Faithfulness, Scores, faithfulness, score_edges
from anchorlab.papers.language.heads.scores import ScoredHeads, score_heads
from anchorlab.papers.pretrained.opening import TINY, ModelSetting, described, open_model, untrained_model
from anchorlab.studies import ObservationContext, Observed, Profile, Study, WorkDone
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.studies.kit import column_table

ENOUGH = 0.8
"""Edges explain a task if their faithfulness is at least this, on the texts on which they were scored."""

SOLVED = 1.0
"""A model solves a task if its logit difference is at least this; shares of a smaller difference are noise."""

TASKS: Mapping[str, Callable[..., TextPairs]] = {"repetition": repetitions, "indirect object": indirect_objects}
SHOWN = 12  # heads of a circuit in the table


@dataclass(frozen=True)
class Setting(ModelSetting):
    """How many texts are drawn, and how edges are scored and kept."""

    pairs: int = 8  # for scoring edges, and as many others for measuring the circuit
    steps: int = 5  # between the two texts of a pair, over which gradients are averaged
    shares: tuple[float, ...] = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # shares of all edges to keep
    controls: int = 1  # sets of random edges
    first: int = 1000  # the first seed of the texts
    seeds: int = 6
    sequences: int = 8  # of repeated random tokens, for the detectors
    half: int = 32  # random tokens before they are repeated, for the detectors


@dataclass(frozen=True)
class Found:
    """The circuit of one task, found on some texts and measured on others, for one seed."""

    scores: Scores
    curve: Faithfulness  # on the texts on which the scores were found, without controls
    size: int  # the number of edges that explain the task there
    own: float  # the faithfulness of these edges on other texts
    random: float  # the same for as many random edges
    other: float  # the same for as many edges of the other task
    clean: float  # the logit difference of the whole model on these other texts


@dataclass(frozen=True)
class Seen:
    """The circuits of both tasks, by seed, and the heads that detectors find."""

    found: Mapping[str, tuple[Found, ...]]
    heads: ScoredHeads

    def each(self, read: Callable[[Found], float]) -> Float[Tensor, "seed"]:
        """Return the mean of a number over both tasks, for each seed; NaN if the model does not solve both tasks."""
        columns = [[read(one) if one.clean >= SOLVED else math.nan for one in found] for found in self.found.values()]
        return torch.tensor(columns).double().mean(dim=0)


def observe(setting: Setting, context: ObservationContext) -> Observed[Seen]:
    """Find the circuits of both tasks in the model, and in an untrained one for the first seed alone."""
    model = open_model(setting, context)
    show = WorkDone(context, (setting.seeds + 1) * len(TASKS) * 3)
    return Observed(
        look_into(model, setting, setting.seeds, show),
        look_into(untrained_model(model), setting, 1, show),
        described(setting, model),
        f"{setting.first}..{setting.first + setting.seeds - 1}",
    )


def look_into(model: LanguageModel, setting: Setting, seeds: int, show: WorkDone) -> Seen:
    """Find the circuits of both tasks for some seeds, and score the heads."""
    tokenizer = model.tokenizer
    assert tokenizer is not None
    excluded, start = tokenizer.all_special_ids, beginning(tokenizer)
    repeated = repeated_tokens(len(tokenizer), setting.sequences, setting.half, setting.first, excluded, start)
    heads = score_heads(model, repeated)
    found: dict[str, list[Found]] = {name: [] for name in TASKS}
    for seed in range(setting.first, setting.first + seeds):
        drawn = {name: draw(tokenizer, 2 * setting.pairs, seed=seed) for name, draw in TASKS.items()}
        cuts = slice(setting.pairs), slice(setting.pairs, None)
        halves = {name: [both.part(cut) for cut in cuts] for name, both in drawn.items()}
        scores = {}
        for name, (first, _) in halves.items():
            scores[name] = score_edges(model, *first, steps=setting.steps)
            show.step(f"scoring edges of {model.name}")
        for (name, (first, second)), other in zip(halves.items(), reversed(scores.values()), strict=True):
            found[name].append(measure(model, first, second, scores[name], other, setting, seed, show))
    return Seen({name: tuple(each) for name, each in found.items()}, heads)


def measure(
    model: LanguageModel,
    first: TextPairs,
    second: TextPairs,
    scores: Scores,
    other: Scores,
    setting: Setting,
    seed: int,
    show: WorkDone,
) -> Found:
    """Measure how many edges explain a task on its first texts, and how well these edges explain its second texts."""
    sizes = [max(1, round(share * len(scores.edges))) for share in setting.shares]
    curve = faithfulness(model, scores, *first, sizes=sizes, controls=0, progress=False)
    show.step(f"removing edges of {model.name}")
    size = enough(curve)
    own = faithfulness(model, scores, *second, sizes=[size], controls=setting.controls, seed=seed, progress=False)
    others = faithfulness(model, other, *second, sizes=[size], controls=0, progress=False)
    show.step(f"removing edges of {model.name}")
    at = own.sizes.index(size)
    return Found(
        scores,
        curve,
        size,
        float(own.values[0, at]),
        float(own.random_values[0, at]),
        float(others.values[0, at]),
        float(own.metric[0, -1].mean()),
    )


def enough(curve: Faithfulness) -> int:
    """Return the number of edges at which a curve reaches `ENOUGH` for good, interpolated on a log scale."""
    measured = curve.least(ENOUGH)
    assert measured is not None  # all edges are the whole model
    at = curve.sizes.index(measured)
    if at <= 1:
        return measured
    below, above = curve.values[0, at - 1 : at + 1].tolist()
    reached = (ENOUGH - below) / (above - below)
    return round(curve.sizes[at - 1] * math.pow(measured / curve.sizes[at - 1], reached))


QUESTION, NO_PAPER = "our own question", "no paper"


@precondition(QUESTION, NO_PAPER, at_least(SOLVED))
def solved(seen: Seen) -> Measurement:
    """The model solves both tasks.

    Logit of the right answer minus that of the corrupted text's answer, on other texts, the lower of both tasks.
    """
    each = [torch.tensor([one.clean for one in found]) for found in seen.found.values()]
    return over(torch.stack(each).amin(dim=0))


@claim(QUESTION, NO_PAPER, at_most(0.1), own=True)
def few_edges(seen: Seen) -> Measurement:
    """A small part of all edges explains a task.

    Share of edges from which on at least {ENOUGH:g} of the logit difference stays, on the texts on which the edges were
    found, interpolated between measured shares on a logarithmic scale, mean over both tasks.
    """
    return over(seen.each(lambda one: one.size / one.curve.edges))


@claim(QUESTION, NO_PAPER, at_least(0.7), own=True)
def holds_elsewhere(seen: Seen) -> Measurement:
    """The edges that explain a task on some texts explain its other texts, too.

    Share of the logit difference on other texts that stays with these edges alone, mean over both tasks.
    """
    return over(seen.each(lambda one: one.own))


@claim(QUESTION, NO_PAPER, at_least(0.5), own=True)
def beats_random(seen: Seen) -> Measurement:
    """Random edges explain less than as many edges with the largest scores.

    Share of the logit difference on other texts that stays with these edges alone, minus the share with as many random
    ones, mean over both tasks.
    """
    return over(seen.each(lambda one: one.own - one.random))


@claim(QUESTION, NO_PAPER, at_least(0.3), own=True)
def beats_other_task(seen: Seen) -> Measurement:
    """The edges of another task explain less than as many edges of the task itself.

    Share of the logit difference on other texts that stays with these edges alone, minus the share with as many edges
    of the other task, mean over both tasks.
    """
    return over(seen.each(lambda one: one.own - one.other))


@claim(QUESTION, NO_PAPER, at_least(0.8), own=True)
def circuit_has_induction_heads(seen: Seen) -> Measurement:
    """The circuit of repetition rests on the heads that a detector calls induction heads.

    Probability that an induction head's largest edge has a larger score than another head's largest edge, by seed.
    """
    which = seen.heads.fires("induction")
    units = [f"{layer}.{head}" for layer in range(len(which)) for head in range(which.shape[1])]
    found = seen.found["repetition"]
    return over(torch.tensor([_greater(one.scores.of(units)[0], which.flatten()) for one in found]))


@claim(QUESTION, NO_PAPER, at_least(0.6), own=True)
def previous_token_feeds_keys(seen: Seen) -> Measurement:
    """The keys of induction heads read heads that attend to the previous token.

    Probability that the edge from a head that shifts by one to the keys of an induction head has a larger score than
    that from another head, in the circuit of repetition, by seed.
    """
    shifts = seen.heads.fires("shift") & (seen.heads.distance == 1)
    induce = seen.heads.fires("induction")
    return over(torch.tensor([_feeding(one.scores, shifts, induce) for one in seen.found["repetition"]]))


def _feeding(scores: Scores, shifts: Bool[Tensor, "layer head"], induce: Bool[Tensor, "layer head"]) -> float:
    """Return the probability that a shifting head has a larger edge to an induction head's keys than another head."""
    assert scores.edge_values is not None
    groups = max(int(edge.receiver.split(".")[1]) for edge in scores.edges if edge.receiver.endswith(".k")) + 1
    size = induce.shape[1] // groups
    keys = {f"{layer}.{head // size}.k" for layer, head in induce.nonzero().tolist()}
    values, which = [], []
    for edge, value in zip(scores.edges, scores.edge_values[0].abs().tolist(), strict=True):
        layer, _, head = edge.sender.partition(".")
        if edge.receiver in keys and head.isdigit():
            values.append(value)
            which.append(bool(shifts[int(layer), int(head)]))
    return _greater(torch.tensor(values), torch.tensor(which, dtype=torch.bool))


def _greater(values: Float[Tensor, "unit"], which: Bool[Tensor, "unit"]) -> float:
    """Return the probability that a unit in `which` exceeds a unit outside it, ties counted half; NaN without both."""
    if not bool(which.any()) or bool(which.all()):
        return float("nan")
    found = mannwhitneyu(values[which].double().numpy(), values[~which].double().numpy()).statistic
    return float(found) / (int(which.sum()) * int((~which).sum()))


def _figure(observed: Observed[Seen]) -> LineFigure:
    lines = []
    for name, found in observed.seen.found.items():
        sizes = found[0].curve.sizes[1:-1]
        values = torch.stack([one.curve.values[0, 1:-1] for one in found]).mean(dim=0)
        lines.append(
            Line(name, numbers([float(f"{100 * size / found[0].curve.edges:.1g}") for size in sizes]), numbers(values))
        )
    return LineFigure(
        title="What is left of the logit difference if only some edges stay",
        caption="Edges with the largest scores stay, on the texts on which they were found; mean over seeds. 1 is the "
        "whole model, 0 the model without any edge, which answers as on the corrupted text.",
        x_label="edges that stay, % of all",
        y_label="share of the logit difference",
        lines=tuple(lines),
        log_x=True,
    )


def _measured(observed: Observed[Seen]) -> Table:
    rows = [(name, one) for name, found in observed.seen.found.items() for one in found]
    return column_table(
        "Circuits by seed",
        "The number of edges that explain the task on the texts on which they were found, and shares of the logit "
        "difference on other texts: with these edges, with random ones, with those of the other task.",
        {
            "task": [name for name, _ in rows],
            "logit difference": [one.clean for _, one in rows],
            "edges": [one.size for _, one in rows],
            "own": [one.own for _, one in rows],
            "random": [one.random for _, one in rows],
            "other task": [one.other for _, one in rows],
        },
    )


def _heads(observed: Observed[Seen]) -> Table:
    heads = observed.seen.heads
    rows = []
    by_one = torch.where(heads.distance == 1, heads.scores["shift"], 0)
    for name, found in observed.seen.found.items():
        means = torch.stack([one.scores.values[0] for one in found]).mean(dim=0)
        units = found[0].scores.units
        known = [at for at in means.argsort(descending=True).tolist() if units[at].partition(".")[2].isdigit()][:SHOWN]
        for at in known:
            layer, head = map(int, units[at].split("."))
            told = float(by_one[layer, head]), float(heads.scores["induction"][layer, head])
            rows.append((name, units[at], float(means[at]), *told))
    return Table(
        "Heads of the circuits",
        "The heads with the largest scores. A score is the size of the head's largest edge, mean over seeds; the last "
        "two columns are scores of detectors on repeated random tokens.",
        ("task", "head", "score", "previous token", "induction"),
        tuple(rows),
    )


STUDY = Study(
    "language/edges",
    __doc__,
    measures_in(__name__),
    draws=[_figure, _measured, _heads],
    profiles={
        "quick": Profile(
            Setting(),
            "A small model whose weights come quantised to 4 bits (SmolLM2-135M-Instruct, Q4_1; also Gemma 3 "
            "270M, Q4_K_M); names and sentences are our own. Bands were chosen on seeds 0 and 1.",
        ),
        "paper": Profile(
            Setting("openai-community/gpt2", pairs=50),
            "GPT-2 small, the model of the method's source, on more of our own sentences.",
        ),
    },
    smoke=Setting(TINY, pairs=2, steps=1, shares=(0.1, 0.5), controls=1, seeds=2, sequences=4, half=8),
    observe=observe,
)
