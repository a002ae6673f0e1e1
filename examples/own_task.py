"""A task that is no anchor function: the largest digit of a sequence."""

from typing import Literal

import torch

import anchorlab as al
from anchorlab.tasks import Answer, Batch, TaskShape, generator


@al.register_task("mine/largest-digit")
class LargestDigit(al.Task):
    """The largest of all digits."""

    family: Literal["largest-digit"] = "largest-digit"
    length: int = 6

    @property
    def shape(self):
        """Digits in, a digit out."""
        return TaskShape("tokens", self.length, 10, 10)

    def sample(self, split, n, seed):
        """Draw sequences until `n` of them belong to the split."""
        self.check_draw(split, n, seed)
        random, side = generator(seed, split), self.splits.index(split)
        inputs = torch.from_numpy(random.integers(0, 10, (10 * n + 100, self.length)))
        inputs = inputs[self.split_of(inputs) == side][:n]
        answers = inputs.amax(dim=1, keepdim=True)
        return Batch(inputs, answers, answers, torch.tensor([self.length - 1]), split)

    def oracle(self, inputs):
        """Sort the digits, from the inputs alone and in another way than `sample`."""
        found = [[sorted(digits)[-1]] for digits in inputs.tolist()]
        answers = torch.tensor(found).reshape(-1, 1)
        return Answer(answers, torch.ones_like(answers, dtype=torch.bool))

    def split_of(self, inputs):
        """Give the test the sequences whose first two digits add up to 9 or more, 55 of 100."""
        return (inputs[:, 0] + inputs[:, 1] >= 9).long()


if __name__ == "__main__":
    task = al.task("mine/largest-digit")
    al.tasks.check_task(task)
    print(task.render(task.sample("test", 1, seed=0).inputs)[0])
    recipe = al.Recipe(data=al.Stream(), optimiser=al.AdamW(learning_rate=3e-3), batch=100, duration=300)
    run = al.train(task, al.DecoderSpec(layers=1, heads=1, width=32), recipe)
    print(run.metric("accuracy", split="test"))
