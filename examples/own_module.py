"""A plain torch module, trained as a population on the identity anchor function and then looked into."""

import polars as pl
from torch import nn

import anchorlab as al


class Recurrent(nn.Module):
    """Token ids `[batch position]` to predictions `[batch position output]`; that is all that is asked of a module."""

    def __init__(self, tokens: int, width: int, outputs: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, outputs)

    def forward(self, inputs):
        """Predictions at every position."""
        states, _ = self.memory(self.embed(inputs))
        return self.out(states)


@al.register_module("gru")
def gru(shape, width: int = 64):
    """The function's arguments after the shape become the fields of a model spec."""
    return Recurrent(shape.input_size, width, shape.output_size)


def main(duration: int = 300) -> None:
    """Train two members and look into them."""
    task = al.task("anchor/identity")
    recipe = al.Recipe(data=al.FixedSample(size=1000), optimiser=al.AdamW(learning_rate=3e-3), duration=duration)
    # The recurrent kernels of torch cannot be mapped over members, so each member takes its own step.
    run = al.train(task, gru(width=64), recipe, seeds=range(2), execution="member")
    print(run.metrics.filter(pl.col("step") == duration, pl.col("metric") == "accuracy"))

    batch = task.sample("test", 100, seed=0)
    # A module without sites of its own is reached through its submodules; [0] is the first element of a tuple.
    record = al.look(run.ensemble(), batch.inputs, record=["embed", "memory[0]"])
    print(record)


if __name__ == "__main__":
    main()
