"""Minimal retrieval, against chains followed by hand."""

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import MinimalRetrieval
from anchorlab.tasks.retrieval.minimal import letters


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ([1, 2, 3, 4], {}),
        ([4], {"implicit_curriculum": False}),
        ([1, 3], {"asked_steps": (1, 3)}),
        ([2], {"asked_steps": "2"}),
    ],
)
def test_layout_of_every_sequence(asked: list[int], fields: dict[str, object]) -> None:
    N, D, K = 3, 4, 2
    one = MinimalRetrieval(chains=N, steps=D, features=K, **fields)
    batch = one.sample("train", 50, 0)
    assert batch.inputs.shape == (50, N * (2 * D + 1), 2 * K)
    assert one.shape.output_size == K * len(asked)
    assert list(one.metrics(torch.zeros_like(batch.targets), batch)) == [f"partial_{step}" for step in asked]
    symbols = batch.latents["symbols"].numpy()
    for row, sequence in enumerate(batch.inputs[..., :K].numpy()):
        place = 0
        for step in range(D, 0, -1):
            pairs = {sequence[place + 2 * i : place + 2 * i + 2].tobytes() for i in range(N)}
            assert pairs == {symbols[row, chain, step - 1 : step + 1].tobytes() for chain in range(N)}
            place += 2 * N
        for query in range(N):
            chain = next(c for c in range(N) if np.array_equal(symbols[row, c, 0], sequence[place + query]))
            assert np.array_equal(batch.targets[row, query].numpy(), symbols[row, chain, asked].ravel())
    assert torch.equal(one.oracle(batch.inputs).answers, batch.answers)
    assert batch.positions.tolist() == list(range(2 * N * D, N * (2 * D + 1)))


def test_position_vectors() -> None:
    tokens = MinimalRetrieval(chains=2, steps=1, features=4).position_vectors
    for position in range(6):
        angles = [position * 1.0, position * 0.01]  # 10000^(-2i/4)
        expected = [*np.cos(angles), *np.sin(angles)]
        assert tokens[position] == pytest.approx(expected, abs=1e-6)
    batch = MinimalRetrieval(chains=2, steps=1, features=4).sample("test", 3, 0)
    assert torch.equal(batch.inputs[1, :, 4:], torch.from_numpy(tokens))


def test_oracle_follows_vectors_by_equality() -> None:
    """Two chains a -> b -> c and d -> e -> f, written by hand."""
    one = MinimalRetrieval(chains=2, steps=2, features=2)
    a, b, c, d, e, f = (torch.tensor([float(i), -float(i)]) for i in range(1, 7))
    symbols = torch.stack([e, f, b, c, a, b, d, e, d, a])
    inputs = torch.cat([symbols, torch.from_numpy(one.position_vectors)], dim=1)[None]
    answer = one.oracle(inputs)
    assert torch.equal(answer.answers[0], torch.stack([torch.cat([e, f]), torch.cat([b, c])]))
    assert answer.known.all() and one.split_of(inputs).tolist() == [0]
    assert [step.name for step in answer.trace][:3] == ["query 0 step 1", "query 0 step 2", "query 1 step 1"]
    assert [int(step.position[0]) for step in answer.trace] == [7, 1, 5, 3]
    example = one.render(inputs)[0]
    assert [token.text for token in example.tokens] == list("BCEFDEABAD")
    assert example.trace == ("query A -> B at 7 -> C at 1", "query D -> E at 5 -> F at 3")
    assert example.answer == "BC, EF"
    broken = inputs.clone()
    broken[0, 4, 0] += 1e-3
    assert one.oracle(broken).known.tolist() == [[True, False]]
    assert one.split_of(broken).tolist() == [-1]
    shifted = inputs.clone()
    shifted[0, 0, 2] += 1.0
    assert one.split_of(shifted).tolist() == [-1]
    assert one.split_of(inputs[:, :9]).tolist() == [-1]
    assert one.render(broken)[0].answer == "BC, unknown"
    with pytest.raises(SpecError, match="inputs: have 9 positions"):
        one.oracle(inputs[:, :9])


def test_letters() -> None:
    assert [letters(index) for index in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": 3}, "features: 3 is odd"),
        ({"frequencies": (1.0,)}, "frequencies: there are 1; give 2"),
        ({"frequencies": (1.0, float("inf"))}, "frequencies"),
        ({"steps": 0}, "steps"),
        (
            {"chains": 256, "steps": 256},
            "chains: 256 make 131328 positions; use fewer chains or parents, at most 65536",
        ),
        ({"positions": "tokens"}, "positions"),
        ({"asked_steps": (1, 4)}, r"asked_steps: \[1, 4\] are not some of the steps 1 to 3, in order"),
        ({"asked_steps": (2, 1)}, "asked_steps"),
        ({"asked_steps": (1, 1)}, "asked_steps"),
        ({"asked_steps": (1,), "implicit_curriculum": False}, "asked_steps: restrict a curriculum"),
    ],
)
def test_impossible_specs(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        MinimalRetrieval(**fields)
