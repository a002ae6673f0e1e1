"""The minimal retrieval problem where each sequence asks for one step, as questions in a text do."""

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.retrieval.minimal import MinimalRetrieval
from anchorlab.tasks.task import Task


@register_task("retrieval/mixed")
class MixedRetrieval(MinimalRetrieval):
    """The symbol of one step of each query's chain; the sequence names the step.

    Sequences are drawn as in `retrieval/minimal` and have D more features: at the queries, feature s is 1 if the
    sequence asks for x_s. The step is drawn uniformly among `asked_steps`, or among all; `asked_steps=(3,)` always asks
    for x_3. The target is one symbol, so only other sequences teach the steps before it: a mixture of easy and hard
    questions in place of the implicit curriculum.

    Groups are the steps asked for. Arguments: as in `retrieval/minimal`.
    Source: stacked attention heads, section 10.2 ("a very diverse set of tasks with varying levels of difficulty").
    """

    family: Literal["mixed-retrieval"] = "mixed-retrieval"  # type: ignore[assignment]

    @model_validator(mode="after")
    def _asks(self) -> "MixedRetrieval":
        if not self.implicit_curriculum:
            remedy = f"give asked_steps=({self.steps},) to ask for the end alone"
            raise SpecError("implicit_curriculum", "is off", remedy)
        return self

    @property
    def shape(self) -> TaskShape:
        """Vectors in, vectors out."""
        shape = super().shape
        return TaskShape("vectors", shape.length, shape.input_size + self.steps, self.features)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` sequences.

        Latents: as in `retrieval/minimal`, and `step` `[batch]`, the step asked for.
        """
        batch = super().sample(split, n, seed)
        group = torch.from_numpy(generator(seed, "steps", split).integers(len(self.asked), size=n))
        step = torch.tensor(self.asked)[group]
        marks = torch.zeros(n, self.shape.length, self.steps)
        marks[torch.arange(n)[:, None], self._queries, step[:, None] - 1] = 1
        answers = self._of_step(batch.answers, group)
        return replace(
            batch,
            inputs=torch.cat([batch.inputs, marks], dim=2),
            targets=answers,
            answers=answers,
            group=group,
            groups=tuple(f"step {one}" for one in self.asked),
            latents={**batch.latents, "step": step},
        )

    @property
    def _queries(self) -> Int[Tensor, "asking"]:
        """The positions of the queries' symbols."""
        length = self.shape.length
        return torch.arange(length - self._graph.asking, length)

    def _of_step(
        self, symbols: Float[Tensor, "batch query both"], group: Int[Tensor, "batch"]
    ) -> Float[Tensor, "batch query feature"]:
        """Pick the symbol of the step that each sequence asks for from the symbols of all steps."""
        by_step = symbols.reshape(*symbols.shape[:2], len(self.asked), self.features)
        return by_step[torch.arange(len(group)), :, group]

    def _asked(self, inputs: Float[Tensor, "batch position both"]) -> Int[Tensor, "batch"]:
        """Return the index in `asked` of the step that each sequence asks for; -1 if its marks do not name one step."""
        marks = inputs[..., 2 * self.features :]
        found = -torch.ones(len(inputs), dtype=torch.int64)
        for index, step in enumerate(self.asked):
            named = torch.zeros(self.shape.length, self.steps)
            named[self._queries, step - 1] = 1
            found[(marks == named).flatten(1).all(dim=1)] = index
        return found

    def oracle(self, inputs: Float[Tensor, "batch position both"]) -> Answer:
        """Return the answers, as in `retrieval/minimal`; not known where the marks do not name one step."""
        found, group = super().oracle(inputs), self._asked(inputs)
        answers = self._of_step(found.answers, group.clamp(min=0))
        return Answer(answers, found.known & (group >= 0)[:, None], found.trace)

    def split_of(self, inputs: Float[Tensor, "batch position both"]) -> Int[Tensor, "batch"]:
        """Return 0 for a well-formed sequence that asks for one step, which both splits could draw, and else -1."""
        return super().split_of(inputs).where(self._asked(inputs) >= 0, -1)

    def metrics(
        self, outputs: Float[Tensor, "batch scored output"], batch: Batch
    ) -> dict[str, Float[Tensor, "batch scored"]]:
        """Return `error`, the mean squared error over the coordinates of the symbol that was asked for."""
        return Task.metrics(self, outputs, batch)

    def _shown(self, inputs: Float[Tensor, "batch position both"]) -> list[tuple[int, ...]]:
        return [(self.asked[group],) if group >= 0 else () for group in self._asked(inputs).tolist()]
