"""Statistical output: labels follow a distribution, and the model learns the distribution, not only its peak.

Source: anchor functions, section 4.8, Figure 11.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, LineFigure, Provenance, Reference, Table, line
from anchorlab.lens import look
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import along, judge_means
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, TrainedRun

KINDS = ("first", "second")
CONTENT = {"seen": "train", "unseen": "test"}  # freshly drawn: placements as in training, and as in test
_FRESH = 2000  # newly drawn sequences of either content that the claims are measured on
_SEED = 10_000  # of those sequences; training draws from child streams of the members' seeds

_SOURCE = "anchor functions, section 4.8 and Fig 11a, b"

CLAIMS = (
    Claim(
        "anchor/statistical/all-labels",
        "Against labels that are x four times in five, the most probable token is right four times in five",
        _SOURCE,
        "80 %",
        "accuracy against labels on newly drawn sequences, mean over both kinds, seen and unseen content, and seeds",
        (0.78, 0.82),
    ),
    Claim(
        "anchor/statistical/unchanged",
        "For sequences labelled x it is always right",
        _SOURCE,
        "100 %",
        "the same on sequences labelled x",
        (0.97, 1.0),
    ),
    Claim(
        "anchor/statistical/changed",
        "For sequences labelled x + 1 it is never right",
        _SOURCE,
        "0 %",
        "the same on sequences labelled x + 1",
        (0.0, 0.03),
    ),
    Claim(
        "anchor/statistical/probability-of-x",
        "The probability of x tends to that of the labels",
        "anchor functions, Fig 11c",
        "0.8 on seen and on unseen content",
        "probability of x on newly drawn sequences of the first kind, mean over seen and unseen content, and seeds",
        (0.75, 0.85),
    ),
    Claim(
        "anchor/statistical/probability-of-x-plus-1",
        "The probability of x + 1 tends to that of the labels",
        "anchor functions, Fig 11c",
        "0.2 on seen and on unseen content",
        "probability of x + 1, measured likewise",
        (0.15, 0.25),
    ),
    Claim(
        "anchor/statistical/second-kind",
        "The second kind gives similar probabilities",
        "anchor functions, section 4.8 (results are similar)",
        "similar",
        "probability of x on newly drawn sequences of the second kind, mean over seen and unseen content, and seeds",
        (0.75, 0.85),
    ),
    Claim(
        "anchor/statistical/distance",
        "The whole distribution is learned, also where a key stands at a new place",
        "our measure of Fig 11c",
        "0 when both probabilities are met",
        "total variation distance to (0.8, 0.2) on unseen content, mean over both kinds and seeds",
        (None, 0.1),
    ),
)


def quick_experiments(steps: int = 1200, seeds: int = 6) -> list[Experiment]:
    """Both kinds under the quick setting: 9000 labelled rows."""
    return [
        Experiment(
            task("anchor/statistical", kind=kind),
            quick_model(),
            quick_recipe(9000, steps, evaluations=24),
            Members(seeds=tuple(range(seeds))),
            f"statistical, {kind} kind",
        )
        for kind in KINDS
    ]


def _quick(steps: int = 1200, seeds: int = 6) -> Profile:
    return Profile(
        lambda: quick_experiments(steps, seeds),
        f"Quick profile: the paper's 9000 labelled rows, two layers of one head, width 64, {steps} steps of batch 50 "
        f"({steps / 180:.3g} epochs), learning rate 6e-3, weight decay 0.3.",
    )


def _paper() -> Profile:
    def experiments() -> list[Experiment]:
        return [
            Experiment(
                task("anchor/statistical", kind=kind),
                DecoderSpec(),
                paper_recipe(9000),
                Members(seeds=tuple(range(5))),
                f"statistical, {kind} kind",
            )
            for kind in KINDS
        ]

    return Profile(
        experiments,
        "Paper profile: 9000 rows, batch 50, 4000 epochs, four layers of four heads, width 400. The paper gives no "
        "number of seeds; five are used.",
    )


def fresh_scores(run: TrainedRun, split: str) -> dict[str, Tensor]:
    """Every metric of the final models on newly drawn sequences of a split, `[member sequence]`.

    Training never showed these sequences, whichever split they are of. `changed` says which labels are x + 1.
    """
    chosen = run.experiment.task
    batch = chosen.sample(split, _FRESH, seed=_SEED)
    outputs = look(run.ensemble(), batch.inputs)["output"][:, :, -1:]
    measured = [chosen.metrics(output, batch) for output in outputs]
    found = {name: torch.stack([one[name][:, 0] for one in measured]) for name in measured[0]}
    changed = (batch.targets != batch.answers)[:, 0]
    return {**found, "changed": changed.expand(len(measured), -1)}


Scores = Mapping[tuple[str, str], Mapping[str, Tensor]]
"""By kind and content (seen, unseen), the metrics of `fresh_scores`."""


def measure(scores: Scores) -> dict[str, Tensor | None]:
    """What the claims are judged by; each number is a seed's mean over sequences."""

    def over(metric: str, kinds: Sequence[str] = KINDS, contents: Sequence[str] = tuple(CONTENT)) -> Tensor:
        return torch.cat([scores[kind, content][metric].mean(dim=1) for kind in kinds for content in contents])

    def of_label(changed: bool) -> Tensor:
        return torch.cat(
            [
                (one["label accuracy"] * (one["changed"] == changed)).sum(dim=1)
                / (one["changed"] == changed).sum(dim=1)
                for one in scores.values()
            ]
        )

    return {
        "all-labels": over("label accuracy"),
        "unchanged": of_label(False),
        "changed": of_label(True),
        "probability-of-x": over("probability of answer", ("first",)),
        "probability-of-x-plus-1": over("probability of changed", ("first",)),
        "second-kind": over("probability of answer", ("second",)),
        "distance": over("total variation", contents=("unseen",)),
    }


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The three panels of Figure 11, and the numbers on newly drawn sequences."""
    by_kind = dict(zip(KINDS, runs, strict=True))
    scores = {
        (kind, content): fresh_scores(run, split) for kind, run in by_kind.items() for content, split in CONTENT.items()
    }
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="The identity task whose label is now and then the key's successor: the last of five copies of every "
        f"sequence (first kind), or each label with probability 0.2 (second kind). {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(
            CLAIMS,
            measure(scores),
            provenance.profile,
            {
                **dict.fromkeys(("all-labels", "unchanged", "changed"), "measurements (kinds, contents and seeds)"),
                **dict.fromkeys(
                    ("probability-of-x", "probability-of-x-plus-1", "second-kind"), "measurements (contents and seeds)"
                ),
                "distance": "runs of both kinds",
            },
        ),
        figures=(
            *(_accuracy_figure(kind, by_kind[kind], panel) for kind, panel in zip(KINDS, "ab", strict=True)),
            *(_probability_figure(kind, by_kind[kind]) for kind in KINDS),
        ),
        tables=(_table(scores),),
        views=(),
    )


def _accuracy_figure(kind: str, run: TrainedRun, panel: str) -> LineFigure:
    unit = run.experiment.steps_per_unit
    lines = []
    for name, group in (("all", "all"), ("labelled x", "unchanged"), ("labelled x + 1", "changed")):
        steps, values = along(run, "train", "label accuracy", group=group)
        lines.append(line(name, [step / unit for step in steps], values))
    return LineFigure(
        title=f"Accuracy against labels, {kind} kind (Fig 11{panel})",
        caption="On the first 500 training rows: how often the most probable token is the label. Mean over seeds; the "
        "band reaches from the lowest to the highest.",
        x_label=run.experiment.recipe.unit,
        y_label="accuracy against labels",
        lines=tuple(lines),
        y_range=(-0.02, 1.02),
        references=(Reference("0.8", 0.8, "y"),),
    )


def _probability_figure(kind: str, run: TrainedRun) -> LineFigure:
    unit = run.experiment.steps_per_unit
    lines = []
    for token, metric in (("x", "probability of answer"), ("x + 1", "probability of changed")):
        steps, values = along(run, "test", metric)
        lines.append(line(f"{token}, unseen content", [step / unit for step in steps], values))
    return LineFigure(
        title=f"Probabilities of x and x + 1, {kind} kind (Fig 11c)",
        caption="On test sequences, whose keys stand where training never shows them. Mean over seeds; the band "
        "reaches from the lowest to the highest.",
        x_label=run.experiment.recipe.unit,
        y_label="probability",
        lines=tuple(lines),
        y_range=(0.0, 1.0),
        references=(Reference("0.8", 0.8, "y"), Reference("0.2", 0.2, "y")),
    )


def _table(scores: Scores) -> Table:
    names = ("label accuracy", "probability of answer", "probability of changed", "total variation")
    rows: list[tuple[str | float, ...]] = []
    for (kind, content), found in scores.items():
        means = [found[name].mean(dim=1) for name in names]
        rows.append((kind, content, *(float(value.mean()) for value in means), float(means[-1].max())))
    return Table(
        title="Newly drawn sequences at the end of training",
        caption=f"{_FRESH} sequences that training never showed, with keys at places that it shows (seen content) and "
        "does not show (unseen). Means over seeds; the distance is the total variation to (0.8, 0.2), at worst over "
        "seeds in the last column.",
        columns=("kind", "content", "label accuracy", "probability of x", "of x + 1", "distance", "at worst"),
        rows=tuple(rows),
    )


STUDY = Study(
    name="anchor/statistical",
    title="Statistical output: the distribution of labels is learned",
    claims=CLAIMS,
    profiles={"quick": _quick(), "paper": _paper(), "smoke": _quick(steps=24, seeds=2)},
    analyse=analyse,
)
