"""Ten operations, each tested on keys that training never gives it: the anchors at the edges are hardest.

Source: anchor functions, section 4.9, Figure 12.
"""

from collections.abc import Sequence

import torch
from scipy.stats import spearmanr
from torch import Tensor

from anchorlab.findings import Claim, Findings, LineFigure, Provenance, Reference, Table, line
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import along, judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, TrainedRun

ANCHORS = tuple(range(1, 11))
BOUNDARY = (1, 2, 10)
INNER = tuple(anchor for anchor in ANCHORS if anchor not in BOUNDARY)
FITTED = 0.95

_SOURCE = "anchor functions, section 4.9 and Fig 12"

CLAIMS = (
    Claim(
        "anchor/multi-anchor/fits",
        "The ten operations are fitted",
        _SOURCE,
        "1",
        "accuracy on the first 500 training sequences, lowest over seeds",
        (FITTED, 1.0),
    ),
    Claim(
        "anchor/multi-anchor/operations",
        "In most cases the model generalises to keys that an anchor never had in training",
        _SOURCE,
        "close to 1 for most anchors",
        "accuracy on unseen keys, median over the anchors 3 to 9, mean over seeds; judged only where it is fitted",
        (0.9, 1.0),
    ),
    Claim(
        "anchor/multi-anchor/boundary",
        "Anchors near the boundary (1, 2, 10) are learned worse",
        _SOURCE,
        "lower; no value in the text",
        "accuracy on unseen keys, mean over the anchors 1, 2 and 10 minus the mean over 3 to 9, mean over seeds",
        (None, -0.1),
    ),
    Claim(
        "anchor/multi-anchor/worst",
        "The anchor learned worst is one of these",
        "anchor functions, Fig 12",
        "the lowest bars",
        "share of seeds whose least accurate anchor is 1, 2 or 10",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/multi-anchor/rare-answers",
        "What the boundary anchors ask for is rarer in training",
        "anchor functions, section 4.9",
        "the frequency of their output tokens is smaller",
        "how often answers to unseen keys are training labels, mean over 1, 2, 10 over mean over 3 to 9; counted",
        (None, 0.9),
    ),
    Claim(
        "anchor/multi-anchor/rarity-explains",
        "Accuracy follows that frequency",
        "anchor functions, section 4.9",
        "given as the likely reason; no value in the text",
        "rank correlation over the ten anchors of accuracy (mean over seeds) with the frequency of their answers",
        (0.5, 1.0),
    ),
)


def quick_experiments(steps: int = 2500, seeds: int = 4) -> list[Experiment]:
    """The quick setting: 20000 sequences, three layers of one head."""
    return [
        Experiment(
            task("anchor/multi-anchor"),
            quick_model(layers=3),
            quick_recipe(20_000, steps, batch=100, learning_rate=2e-3, weight_decay=1.0),
            Members(seeds=tuple(range(seeds))),
            "multi-anchor",
        )
    ]


def _quick(steps: int = 2500, seeds: int = 4) -> Profile:
    return Profile(
        lambda: quick_experiments(steps, seeds),
        f"Quick profile: the paper's 20000 sequences, three layers of one head, width 64, {steps} steps of batch 100 "
        f"(about {steps / 200:g} epochs), learning rate 2e-3, weight decay 1.",
    )


def _paper() -> Profile:
    def experiments() -> list[Experiment]:
        members = Members(seeds=tuple(range(5)))
        recipe = paper_recipe(20_000, epochs=1000, batch=100, every=20)
        return [Experiment(task("anchor/multi-anchor"), DecoderSpec(), recipe, members, "multi-anchor")]

    return Profile(
        experiments,
        "Paper profile: 20000 sequences, batch 100, 1000 epochs. The paper's code gives batches of 50 to 100 and 1000 "
        "to 4000 epochs, and the paper no number of seeds; 100, 1000 and five are used.",
    )


def answer_frequency(items: tuple[int, int] = (20, 100), held_out: int = 8) -> Tensor:
    """How often the answers that each anchor asks for in test are labels in training, in expectation, `[anchor]`.

    In training anchor b is drawn one time in ten and its key is uniform among its own; the answer y then occurs once
    for every b whose key y - b is allowed. Counted from the definition of the task, not from samples.
    """
    first, last = items

    def own(anchor: int) -> range:
        return range(first + held_out * (anchor - 1), first + held_out * anchor)

    def share(answer: int) -> float:
        makers = [b for b in ANCHORS if first <= answer - b <= last and answer - b not in own(b)]
        return len(makers) / len(ANCHORS) / (last - first + 1 - held_out)

    return torch.tensor([sum(share(key + a) for key in own(a)) / held_out for a in ANCHORS])


def measure(accuracy: Tensor, trained: Tensor, frequency: Tensor) -> dict[str, Tensor | None]:
    """What the claims are judged by, from test accuracies `[anchor member]` and train accuracies `[member]`."""
    boundary = torch.tensor([anchor in BOUNDARY for anchor in ANCHORS])
    gap = accuracy[boundary].mean(dim=0) - accuracy[~boundary].mean(dim=0)
    worst = boundary[accuracy.argmin(dim=0)].float()
    rarity = frequency[boundary].mean() / frequency[~boundary].mean()
    correlation = spearmanr(accuracy.mean(dim=1).numpy(), frequency.numpy()).statistic
    fitted = float(trained.min()) >= FITTED
    return {
        "fits": trained.min().reshape(1),
        "operations": accuracy[~boundary].median(dim=0).values if fitted else None,
        "boundary": gap if fitted else None,
        "worst": worst if fitted else None,
        "rare-answers": rarity.reshape(1),
        "rarity-explains": torch.tensor([float(correlation)]) if fitted else None,
    }


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Accuracy on unseen keys anchor by anchor, beside how often their answers are trained."""
    (run,) = runs
    accuracy = torch.stack([at_end(run, "test", "accuracy", group=str(anchor)) for anchor in ANCHORS])
    trained, frequency = at_end(run, "train", "accuracy"), answer_frequency()
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary=f"The anchors 1 to 10 add 1 to 10; each is tested on eight keys that it never had in training. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measure(accuracy, trained, frequency), provenance.profile),
        figures=(_anchor_figure(accuracy), _frequency_figure(frequency), _learning_figure(run)),
        tables=(_table(accuracy, frequency),),
        views=(),
    )


def _anchor_figure(accuracy: Tensor) -> LineFigure:
    return LineFigure(
        title="Accuracy on unseen keys by anchor (Fig 12)",
        caption="Mean over seeds; the band reaches from the lowest to the highest. Each anchor's keys in test never "
        "stand behind it in training.",
        x_label="anchor",
        y_label="test accuracy",
        lines=(line("transformer", ANCHORS, accuracy.T),),
        y_range=(0.0, 1.02),
        references=(Reference("the boundary: 1, 2", 2.5, "x"), Reference("and 10", 9.5, "x")),
    )


def _frequency_figure(frequency: Tensor) -> LineFigure:
    return LineFigure(
        title="How often training shows what each anchor asks for in test",
        caption="Share of training labels that are the answer to one of the anchor's unseen keys, mean over its eight "
        "keys; counted from the task's definition.",
        x_label="anchor",
        y_label="share of training labels",
        lines=(line("counted", ANCHORS, frequency[None, :]),),
        y_range=(0.0, None),
    )


def _learning_figure(run: TrainedRun) -> LineFigure:
    unit = run.experiment.steps_per_unit
    lines = []
    for name, split, group in (("training", "train", "all"), ("unseen keys", "test", "all")):
        steps, values = along(run, split, "accuracy", group=group)
        lines.append(line(name, [step / unit for step in steps], values))
    return LineFigure(
        title="Accuracy along training, all anchors",
        caption="Mean over seeds; the band reaches from the lowest to the highest.",
        x_label=run.experiment.recipe.unit,
        y_label="accuracy",
        lines=tuple(lines),
        y_range=(0.0, 1.02),
    )


def _table(accuracy: Tensor, frequency: Tensor) -> Table:
    return Table(
        title="Anchor by anchor",
        caption="Accuracy on unseen keys over seeds at the end of training, and the share of training labels that are "
        "an answer the anchor asks for in test (mean over its eight keys, in per cent).",
        columns=("anchor", "mean", "lowest", "highest", "answers in training, %"),
        rows=tuple(
            (anchor, float(own.mean()), float(own.min()), float(own.max()), 100 * float(share))
            for anchor, own, share in zip(ANCHORS, accuracy, frequency, strict=True)
        ),
    )


STUDY = Study(
    name="anchor/multi-anchor",
    title="Ten operations: the anchors at the edges are hardest",
    claims=CLAIMS,
    profiles={"quick": _quick(), "paper": _paper(), "smoke": _quick(steps=20, seeds=2)},
    analyse=analyse,
)
