"""The LSTM beside torch's own, on copied weights, and what of it is computed."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from anchorlab.models.lstm import LSTMLayer
from tests.models.small_models import LSTM, TOKENS, drawn, inputs_of


class Torchs(nn.Module):
    def __init__(self, ours, layers, width):
        super().__init__()
        self.embed = nn.Embedding(TOKENS.input_size, width)
        self.recur = nn.LSTM(width, width, layers, batch_first=True)
        self.out = nn.Linear(width, TOKENS.output_size)
        self.double()
        with torch.no_grad():
            for ours_name, name in self.names(layers).items():
                value = ours.get_parameter(ours_name)
                self.get_parameter(name).copy_(value.T if value.ndim == 2 and "W_E" not in ours_name else value)

    def forward(self, tokens):
        return self.out(self.recur(self.embed(tokens))[0])

    @staticmethod
    def names(layers):
        """Ours to torch's."""
        found = {"embed.W_E": "embed.weight", "unembed.W_U": "out.weight", "unembed.b_U": "out.bias"}
        for layer in range(layers):
            for short, long in (("W", "weight"), ("b", "bias")):
                for part in ("ih", "hh"):
                    found[f"layers.{layer}.{short}_{part}"] = f"recur.{long}_{part}_l{layer}"
        return found


@pytest.mark.parametrize("layers", [1, 3])
def test_it_is_torchs_lstm_forward_and_backward(layers):
    spec = LSTM.replace(layers=layers)
    ours, inputs = drawn(spec), inputs_of(spec)
    torchs = Torchs(ours, layers, spec.width)
    found, expected = ours(inputs), torchs(inputs)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    seed = torch.randn(found.shape, generator=torch.Generator().manual_seed(5), dtype=found.dtype)
    found.backward(seed)
    expected.backward(seed)
    assert set(Torchs.names(layers)) == set(dict(ours.named_parameters()))
    for name, theirs in Torchs.names(layers).items():
        slope, other = ours.get_parameter(name).grad, torchs.get_parameter(theirs).grad
        same = other.T if other.ndim == 2 and "W_E" not in name else other
        torch.testing.assert_close(slope, same, rtol=1e-10, atol=1e-12)


def count_positions(monkeypatch, run):
    seen, forward = [], LSTMLayer.forward

    def counted(self, x):
        seen.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(LSTMLayer, "forward", counted)
    run()
    return seen


def test_nothing_is_computed_beyond_the_last_scored_position(monkeypatch):
    model, inputs = drawn(LSTM), inputs_of(LSTM)
    assert count_positions(monkeypatch, lambda: model(inputs, torch.tensor([1, 3]))) == [4, 4]


def test_members_with_positions_of_their_own_are_computed_to_the_end(monkeypatch):
    model, inputs = drawn(LSTM), inputs_of(LSTM)
    weights, positions = dict(model.named_parameters()), torch.tensor([[1], [3]])

    def loss(weights, where):
        return functional_call(model, weights, (inputs, where)).square().sum()

    slopes = vmap(grad(loss), in_dims=(None, 0))(weights, positions)
    for member, where in enumerate(positions):
        for name, slope in grad(loss)(weights, where).items():
            torch.testing.assert_close(slopes[name][member], slope, rtol=1e-10, atol=1e-12)
    assert set(count_positions(monkeypatch, lambda: vmap(lambda at: model(inputs, at))(positions))) == {7}


def test_a_sequence_of_one_token():
    model = drawn(LSTM)
    torch.testing.assert_close(model(inputs_of(LSTM)[:, :1]), model(inputs_of(LSTM))[:, :1], rtol=0, atol=1e-12)
