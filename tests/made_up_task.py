"""A task whose every row is known without sampling: row i of a split is (i, i + 1, seed), and the answer is i."""

from typing import Literal

import torch
from pydantic import Field

from anchorlab.axes import TaskShape
from anchorlab.tasks import Answer, Batch, Example, Task, Token
from anchorlab.tasks.registry import task_family
from anchorlab.tasks.task import Proof


@task_family("test-made-up")
class MadeUp(Task):
    """The number that the row has."""

    family: Literal["test-made-up"] = "test-made-up"
    holds: bool = True
    weighted: bool = False
    words: tuple[str, ...] = ("3 latents are on one side each.",)
    table: dict[int, str] = Field(default_factory=lambda: {3: 'say "hi"'})
    nothing: int | None = None

    @property
    def splits(self):
        return ("train", "test on data")

    @property
    def shape(self):
        return TaskShape("tokens", 3, 1000, 1000)

    def proof(self):
        return Proof("enumeration", self.holds, self.words, {"latents": 3})

    def sample(self, split, n, seed):
        self.check_draw(split, n, seed)
        first = torch.arange(n)
        inputs = torch.stack([first, first + 1, torch.full((n,), seed)], dim=1)
        answers = first[:, None].expand(n, 2)
        return Batch(
            inputs=inputs,
            targets=answers + 1,
            answers=answers,
            positions=torch.tensor([1, 2]),
            split=split,
            weights=torch.tensor([0.0, 1.0]).expand(n, 2) if self.weighted else None,
            group=first % 2,
            groups=("even", "odd"),
        )

    def oracle(self, inputs):
        return Answer(inputs[:, :1], torch.ones_like(inputs[:, :1], dtype=torch.bool))

    def split_of(self, inputs):
        return torch.zeros(len(inputs), dtype=torch.int64)

    def metrics(self, outputs, batch):
        return {}

    def render(self, inputs):
        return [
            Example(tuple(Token(f"<{token}>", "plain") for token in row), ("read it",), str(row[0]), "train")
            for row in inputs.tolist()
        ]
