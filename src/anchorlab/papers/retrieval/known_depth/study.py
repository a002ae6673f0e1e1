"""Retrieval prompts: models of known depth answer the equations that language models are asked.

How a curve of accuracy against the number of steps looks where the number of layers, and so the number of steps that
information can go, is known. A model is trained on chains of random vectors, of one number of steps and with one number
of layers, and then reads equations such as "a = 3, b = a, c = b. What is the value of c?" word by word.

Source: stacked attention heads, sections 4, 5 and 10.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.findings import Reference, Table, at_least
from anchorlab.lens import look
from anchorlab.papers.retrieval.known_depth.transcription import transcribe
from anchorlab.papers.retrieval.settings import layers_of, least_layers_of, quick, retrieval_of, section_7, smoke
from anchorlab.studies.claim import Measurement, claim, measures_in
from anchorlab.studies.kit import ACCURACY, column_table, curves_against
from anchorlab.studies.seeds import SEARCHED
from anchorlab.studies.shared_seeds import over_shared
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.tasks import RetrievalPrompts, task
from anchorlab.training import Experiment, TrainedRun

ANSWERED = 0.9
"""The accuracy from which on a number of steps counts as answered."""

ASKED = 1000
"""Questions for each number of steps."""


@dataclass(frozen=True)
class Setting:
    """Numbers of layers and of steps, and what is trained with each pair of them."""

    layers: tuple[int, ...]
    steps: tuple[int, ...]
    base: Experiment


QUICK = Setting((1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 5, 6), quick(1, 1, 1000, seeds=2))
PAPER = Setting(tuple(range(1, 9)), tuple(range(1, 11)), section_7(1))
SMOKE = Setting((1, 2), (1, 2), smoke(1))


def experiments(setting: Setting) -> list[Experiment]:
    """Return the experiment of each number of layers and, within it, of each number of steps."""
    return [
        replace(
            setting.base,
            task=setting.base.task.replace(steps=steps),
            model=setting.base.model.replace(layers=layers),
            label=f"{layers} layer{'s' * (layers > 1)}, {steps} step{'s' * (steps > 1)}",
        )
        for layers in setting.layers
        for steps in setting.steps
    ]


@dataclass(frozen=True)
class Answered:
    """Shares of right answers, the shallowest models and the shortest chains first.

    Shapes
        accuracy: `[depth steps member]`
        layers: `[depth]`
        steps: `[steps]`
        least: `[steps]`, the layers without which no information goes so many steps
    """

    accuracy: Float[Tensor, "depth steps member"]
    layers: Int[Tensor, "depth"]
    steps: Int[Tensor, "steps"]
    least: Int[Tensor, "steps"]


def answer(run: TrainedRun, n: int = ASKED) -> Float[Tensor, "member"]:
    """Return the share of equations of as many chains and steps that each member of a run answers rightly."""
    into = retrieval_of(run)
    questions = task("retrieval/equations", chains=into.chains, steps=into.steps)
    assert isinstance(questions, RetrievalPrompts)
    asked = transcribe(questions, questions.sample("test", n, seed=0), into)
    places = torch.arange(into.shape.length - into.chains, into.shape.length)
    outputs = look(run.ensemble(), asked.inputs, positions=places)["output"]
    return asked.right(outputs).float().mean(dim=-1)


def see(runs: Sequence[TrainedRun], setting: Setting) -> Answered:
    """Ask all models."""
    shape = (len(setting.layers), len(setting.steps))
    accuracy = torch.stack([answer(run) for run in runs]).view(*shape, -1)
    return Answered(
        accuracy,
        layers=torch.tensor([layers_of(run) for run in runs]).view(shape)[:, 0],
        steps=torch.tensor([retrieval_of(run).steps for run in runs[: shape[1]]]),
        least=torch.tensor(least_layers_of(runs[0], setting.steps)),
    )


@claim(
    "Questions of more steps take more layers",
    at="section 7.2",
    paper="later positions in the retrieval chains require more layers",
    band=at_least(3.0),
)
def more_layers_further(seen: Answered) -> Measurement:
    """Most steps that the deepest models answer (accuracy at least {ANSWERED:g}), without a gap, less those of the
    shallowest."""

    def furthest(rows: Tensor) -> Tensor:
        unbroken = (rows.float().mean(dim=0) >= ANSWERED).int().cumprod(dim=1)
        return (unbroken * seen.steps).amax(dim=1)

    def difference(rows: Tensor) -> Tensor:
        steps = furthest(rows)
        return steps[-1] - steps[0]

    rows = seen.accuracy.movedim(-1, 0)
    steps = furthest(rows).tolist()
    return over_shared(rows, difference, detail=f"{steps[-1]} and {steps[0]} steps")


def _table(seen: Answered) -> Table:
    mean = seen.accuracy.mean(dim=-1)
    return column_table(
        "Right answers by steps and layers",
        "Means over seeds; guessing gives 0.25. The least number of layers is that with which information can go so "
        "many steps, with the mask and the heads of these models.",
        {
            "steps": seen.steps,
            "least layers": seen.least,
            **{f"{layers} layer{'s' * (layers > 1)}": mean[at] for at, layers in enumerate(seen.layers.tolist())},
        },
    )


def analyse(runs: Sequence[TrainedRun], setting: Setting) -> Analysis:
    """Draw the right answers against the number of steps, a curve for each number of layers."""
    seen = see(runs, setting)
    figure = curves_against(
        "Equations by number of steps, read by models of known depth",
        setting.steps,
        {f"{layers} layer{'s' * (layers > 1)}": seen.accuracy[at].T for at, layers in enumerate(setting.layers)},
        x_label="number of steps, D",
        y_label="share of right answers",
        caption="Four chains, the premises in the paper's order, each word a random vector. Mean and range over seeds.",
        y_range=ACCURACY,
        references=[Reference("guessing", 1 / retrieval_of(runs[0]).chains)],
    )
    return Analysis(seen, [figure], [_table(seen)])


STUDY = Study(
    name="retrieval/known-depth",
    doc=__doc__,
    claims=measures_in(__name__),
    experiments=experiments,
    analyse=analyse,
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: N = 4, K = 8, width 64, one head in each layer, no feed-forward layers, 1000 steps "
            "of 64 fresh sequences at 3e-3 after a warm-up, weight decay 0.1, initial scale 0.15, position vectors of "
            "eight neighbours nearly orthogonal: the quick setting of `retrieval/depth`.",
        ),
        "paper": Profile(
            PAPER,
            "Paper profile: the models and the training of section 7.1, on chains of 1 to 10 steps, as many as the "
            "equations of Figure 2 have; the paper trains them on 5 steps alone. Not given by the paper, and so our "
            "choice: rotary frequencies 10000^(-2i/K), initial scale 0.02, gradient clipping at 1, no warm-up, and a "
            "causal mask.",
            paper=True,
        ),
    },
    smoke=SMOKE,
    chosen_on=SEARCHED,
)
