"""A module with attention of its own, opened by detectors and patching: with `tap` and `sites`, or by names alone."""

import torch
from torch import nn

import anchorlab as al
from anchorlab.lens import patch, with_sites
from anchorlab.models import Site, identity_tap

SHAPE = ("batch", "head", "query", "key")


class Attending(nn.Module):
    """One layer of causal attention. It names its pattern and calls `tap` where the value can be read or changed."""

    def __init__(self, tokens: int, length: int, width: int, heads: int, outputs: int) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(tokens, width), nn.Parameter(torch.zeros(length, width))
        self.queries_keys_values, self.out = nn.Linear(width, 3 * width), nn.Linear(width, outputs)
        self.softmax = nn.Softmax(dim=-1)
        self.heads = heads
        self.sites = {"blocks.0.attn.hook_pattern": Site("blocks.0.attn.hook_pattern", SHAPE)}

    def forward(self, inputs, tap=identity_tap):
        """Predictions at every position."""
        x = self.embed(inputs) + self.places
        q, k, v = self.queries_keys_values(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        pattern = self.softmax((q @ k.mT).masked_fill(hidden, -torch.inf))
        pattern = tap("blocks.0.attn.hook_pattern", pattern)
        return self.out(x + (pattern @ v).transpose(1, 2).flatten(2))


class WithoutTap(Attending):
    """The same for somebody else's module, whose code stays as it is: its submodules are its sites."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        del self.sites

    def forward(self, inputs):
        """Predictions at every position."""
        return super().forward(inputs)


def main() -> None:
    """Score the heads of both, and patch them head by head."""
    task = al.task("anchor/identity")
    batch, other = task.sample("test", 50, seed=0), task.sample("test", 50, seed=1)
    sizes = (task.shape.input_size, task.shape.length, 32, 4, task.shape.output_size)
    theirs = with_sites(WithoutTap(*sizes), {"softmax": "blocks.0.attn.hook_pattern"})
    for model in (Attending(*sizes), theirs):
        record = al.look(model, batch, "blocks.0.attn.hook_pattern")
        print(al.detect(record, batch))
        print(patch(model, batch, other, site="blocks.0.attn.hook_pattern", over="head").table)


if __name__ == "__main__":
    main()
