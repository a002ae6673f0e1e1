"""The baseline: the anchor paper's model and training as a user would write them with PyTorch's own parts."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class PlainTransformer(nn.Module):
    """Post-layer-norm decoder of width 400, four layers, four heads of 64, feed-forward 1200, vocabulary 201."""

    def __init__(
        self,
        vocabulary: int = 201,
        length: int = 9,
        width: int = 400,
        layers: int = 4,
        heads: int = 4,
        head_width: int = 64,
        hidden: int = 1200,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(PlainBlock(width, heads, head_width, hidden) for _ in range(layers))
        self.projection = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        mask = torch.triu(torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool), diagonal=1)
        for block in self.blocks:
            x = block(x, mask)
        return self.projection(x)


class PlainBlock(nn.Module):
    """Attention and feed-forward, each followed by an addition and a layer norm."""

    def __init__(self, width: int, heads: int, head_width: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.query = nn.Linear(width, heads * head_width, bias=False)
        self.key = nn.Linear(width, heads * head_width, bias=False)
        self.value = nn.Linear(width, heads * head_width, bias=False)
        self.output = nn.Linear(heads * head_width, width, bias=False)
        self.first = nn.Linear(width, hidden, bias=False)
        self.second = nn.Linear(hidden, width, bias=False)
        self.norm_1 = nn.LayerNorm(width)
        self.norm_2 = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            part(x).view(batch, length, self.heads, self.head_width).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-1, -2) / self.head_width**0.5
        pattern = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        mixed = (pattern @ value).transpose(1, 2).reshape(batch, length, -1)
        x = self.norm_1(x + self.output(mixed))
        return self.norm_2(x + self.second(torch.relu(self.first(x))))


def train_plainly(
    inputs: Tensor,
    targets: Tensor,
    steps: int,
    seed: int = 0,
    warm_up: int = 3,
    make: Callable[[], nn.Module] = PlainTransformer,
    mixed: bool = False,
) -> float:
    """Seconds per step of one member, trained by a DataLoader loop with AdamW and gradient clipping.

    With `mixed`, the forward pass and the loss are under torch's autocast to bfloat16.
    """
    torch.manual_seed(seed)
    model = make()
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-4)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=50, shuffle=True)
    loss_of = nn.CrossEntropyLoss()
    done, began = 0, 0.0
    while done < steps + warm_up:
        for tokens, target in loader:
            if done == warm_up:
                began = time.perf_counter()
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                loss = loss_of(model(tokens)[:, -1], target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            done += 1
            if done == steps + warm_up:
                break
    return (time.perf_counter() - began) / steps
