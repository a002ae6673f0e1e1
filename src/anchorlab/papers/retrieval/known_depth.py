"""Retrieval prompts: models of known depth answer the equations that language models are asked.

How does accuracy fall with the number of steps if the number of layers, and so the reach of information, is known?
Each model has one number of layers, is trained on chains of random vectors with one number of steps, and then reads
equations such as "a = 3, b = a, c = b. What is the value of c?" word by word.

Source: stacked attention heads, sections 4, 5 and 10.1.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table, at_least
from anchorlab.lens import look
from anchorlab.papers.retrieval.settings import OUR_CHOICES, least_layers_of, quick, retrieval_of, section_7, smoke
from anchorlab.rng import generator
from anchorlab.studies import SEARCHED, Measurement, Profile, Reading, Study, claim, measures_in, over_shared, reading
from anchorlab.studies.kit import ACCURACY, column_table, curves_against
from anchorlab.tasks import Batch, MinimalRetrieval, RetrievalPrompts, task
from anchorlab.training import Experiment, TrainedRun

ANSWERED = 0.9
"""The least accuracy at which questions of a number of steps count as answered."""

ASKED = 1000
"""Questions for each number of steps."""


@dataclass(frozen=True)
class Setting:
    """Numbers of layers and of steps, and how each pair of them is trained."""

    layers: tuple[int, ...]
    steps: tuple[int, ...]
    base: Experiment


QUICK = Setting((1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 5, 6), quick(1, 1, 1000, seeds=2))
PAPER = Setting(tuple(range(1, 9)), tuple(range(1, 11)), section_7(1))
SMOKE = Setting((1, 2), (1, 2), smoke(1))


def experiments(setting: Setting) -> dict[tuple[int, int], Experiment]:
    """Return the experiment of each number of layers and, within it, of each number of steps."""
    return {
        (layers, steps): replace(
            setting.base,
            task=setting.base.task.replace(steps=steps),
            model=setting.base.model.replace(layers=layers),
            label=f"{_layers(layers)}, {steps} step{'s' * (steps > 1)}",
        )
        for layers in setting.layers
        for steps in setting.steps
    }


def _layers(count: int) -> str:
    return f"{count} layer{'s' * (count > 1)}"


@dataclass(frozen=True)
class Transcribed:
    """Questions as inputs of a `retrieval/minimal` task, with the ends of all chains."""

    # a pair for each premise in order, then the words that may be queried
    inputs: Float[Tensor, "question position both"]
    asked: Int[Tensor, "question"]  # which of those words the question is about
    ends: Float[Tensor, "question chain feature"]  # the possible answers
    answer: Int[Tensor, "question"]  # which of the ends is right

    def right(self, outputs: Float[Tensor, "*member question query output"]) -> Bool[Tensor, "*member question"]:
        """Return whether the model's prediction of the queried chain's last symbol is nearest to the right end.

        outputs: predictions at all queries; the last features belong to the last symbol
        """
        features, rows = self.ends.shape[-1], torch.arange(len(self.asked))
        said = outputs[..., rows, self.asked, -features:]
        distance = (said.unsqueeze(-2) - self.ends).square().sum(dim=-1)
        return distance.argmin(dim=-1) == self.answer


def transcribe(questions: RetrievalPrompts, batch: Batch, into: MinimalRetrieval, seed: int = 0) -> Transcribed:
    """Return equations, in the paper's order, as inputs of a vector task with the same numbers of chains and steps.

    The premise "b = a" becomes the pair (b, a), and every word a normal vector, drawn anew in each question. The
    question becomes the last word of each chain, in random order: the model answers about all of them at once, as in
    training.
    """
    words = batch.inputs[:, : 4 * into.chains * into.steps]
    premises = words.reshape(len(batch), -1, 4)  # name, " = ", value, end of line
    pairs = premises[:, :, [0, 2]]
    name = batch.inputs[:, -2]  # in "What is the value of ", name, "?"
    random = generator(seed, "transcription", batch.split)
    order = torch.from_numpy(random.permuted(torch.arange(into.chains).expand(len(batch), -1).numpy(), axis=1))
    queries, ends = pairs[:, -into.chains :, 0].gather(1, order), pairs[:, : into.chains, 1]
    size = (len(batch), questions.shape.input_size, into.features)
    symbols = torch.from_numpy(random.standard_normal(size, dtype="float32"))

    def of(words: Int[Tensor, "question _"]) -> Float[Tensor, "question _ feature"]:
        return symbols.gather(1, words.unsqueeze(-1).expand(-1, -1, into.features))

    places = torch.from_numpy(into.position_vectors).expand(len(batch), -1, -1)
    return Transcribed(
        inputs=torch.cat([of(torch.cat([pairs.flatten(1), queries], dim=1)), places], dim=-1),
        asked=(queries == name.unsqueeze(1)).int().argmax(dim=1),
        ends=of(ends),
        answer=(ends == batch.answers).int().argmax(dim=1),
    )


def answer(run: TrainedRun, n: int = ASKED) -> Float[Tensor, "member"]:
    """Return each member's accuracy on equations with as many chains and steps as its run's task."""
    into = retrieval_of(run)
    questions = task("retrieval/equations", chains=into.chains, steps=into.steps)
    assert isinstance(questions, RetrievalPrompts)
    asked = transcribe(questions, questions.sample("test", n, seed=0), into)
    places = torch.arange(into.shape.length - into.chains, into.shape.length)
    outputs = look(run.ensemble(), asked.inputs, positions=places)["output"]
    return asked.right(outputs).float().mean(dim=-1)


class Seen(Reading):
    """Answers to equations, the shallowest models and the shortest chains first."""

    @reading
    def accuracy(self) -> Float[Tensor, "depth steps member"]:
        """The share of right answers."""
        shape = (len(self.setting.layers), len(self.setting.steps))
        return torch.stack([answer(run) for run in self.runs.values()]).view(*shape, -1)

    @reading
    def least(self) -> list[int]:
        """The fewest layers with which information can travel each number of steps."""
        return least_layers_of(self.first, self.setting.steps)


@claim(
    "our question; section 7.2",
    "no value: on vectors, later positions of the chains require more layers",
    at_least(3.0),
    own=True,
)
def more_layers_further(seen: Seen) -> Measurement:
    """Questions of more steps take more layers.

    Most steps that the deepest models answer without a gap (accuracy at least {ANSWERED:g}), minus those that the
    shallowest answer.
    """

    def furthest(rows: Tensor) -> Tensor:
        unbroken = (rows.float().mean(dim=0) >= ANSWERED).int().cumprod(dim=1)
        return (unbroken * torch.tensor(seen.setting.steps)).amax(dim=1)

    def difference(rows: Tensor) -> Tensor:
        steps = furthest(rows)
        return steps[-1] - steps[0]

    rows = seen.accuracy.movedim(-1, 0)
    steps = furthest(rows).tolist()
    return over_shared(rows, difference, detail=f"{steps[-1]} and {steps[0]} steps")


def _figure(seen: Seen) -> LineFigure:
    return curves_against(
        "Equations by number of steps, read by models of known depth",
        seen.setting.steps,
        {_layers(layers): seen.accuracy[at].T for at, layers in enumerate(seen.setting.layers)},
        x_label="number of steps, D",
        y_label="share of right answers",
        caption="Four chains, the premises in the paper's order, each word a random vector. Mean and range over seeds.",
        y_range=ACCURACY,
        references=[Reference("guessing", 1 / retrieval_of(seen.first).chains)],
    )


def _table(seen: Seen) -> Table:
    mean = seen.accuracy.mean(dim=-1)
    return column_table(
        "Right answers by steps and layers",
        "Means over seeds; guessing gives 0.25. The least number of layers is the fewest that can carry "
        "information over these steps, with the mask and the heads of these models.",
        {
            "steps": seen.setting.steps,
            "least layers": seen.least,
            **{_layers(layers): mean[at] for at, layers in enumerate(seen.setting.layers)},
        },
    )


STUDY = Study(
    "retrieval/known-depth",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_figure, _table),
    profiles={
        "quick": Profile(QUICK, "The quick setting of `retrieval/depth`."),
        "paper": Profile(
            PAPER,
            "The models and the training of section 7.1, on chains of 1 to 10 steps; the paper trains them on 5 steps "
            f"alone, and on vectors, not on prompts. {OUR_CHOICES}",
        ),
    },
    smoke=SMOKE,
    chosen_on=SEARCHED,
)
