"""The models of language studies: the tiny one, and untrained ones beside them."""

import pytest
import torch

pytest.importorskip("transformers")

from anchorlab.errors import SpecError
from anchorlab.papers.pretrained.opening import ModelSetting, described, open_model, untrained_model
from anchorlab.studies import ObservationContext


def test_the_tiny_model_reads_bytes_is_the_same_each_time_and_has_no_revision(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = (open_model(ModelSetting("tiny"), ObservationContext(tmp_path)) for _ in range(2))
    tokens = torch.tensor([first.tokenizer("My name is John")["input_ids"]])
    assert torch.equal(first(tokens), second(tokens))
    assert torch.equal(torch.rand(1), expected)
    with pytest.raises(SpecError, match=r"^revision: tiny has none; leave it out"):
        open_model(ModelSetting("tiny", "main"), ObservationContext(tmp_path))
    tokenizer = open_model(ModelSetting("tiny"), ObservationContext(tmp_path)).tokenizer
    text = "to Madrid — é"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert [tokenizer.decode([one]) for one in ids[:4]] == ["t", "o", " M", "a"]
    assert max(ids) < len(tokenizer)


def test_an_untrained_model_has_the_same_shapes_and_a_model_is_described(tmp_path):
    model = open_model(ModelSetting("tiny"), ObservationContext(tmp_path))
    other, again = untrained_model(model, 1), untrained_model(model, 1)
    assert set(other.sites) == set(model.sites)
    ours, theirs = dict(model.named_parameters()), dict(other.named_parameters())
    assert {name: value.shape for name, value in ours.items()} == {name: value.shape for name, value in theirs.items()}
    assert not any(torch.equal(ours[name], theirs[name]) for name in ours if name.split(".")[-1].startswith("W_"))
    assert all(torch.equal(value, theirs[name]) for name, value in again.named_parameters())
    model = open_model(ModelSetting("tiny"), ObservationContext(tmp_path))
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 2 * 32  # queries and output, keys and values, gated, norms
    count = 2 * len(model.tokenizer) * 32 + 3 * layer + 32
    assert described(ModelSetting("own/name", "main"), model) == f"own/name at main, {count} parameters"
