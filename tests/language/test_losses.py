"""Bits of texts, counted by hand from the logits."""

import math

import pytest
import torch

pytest.importorskip("transformers")

from anchorlab.errors import SpecError
from anchorlab.language import text_bits, wrap
from anchorlab.papers.pretrained.tiny import tiny_model
from tests.language.tiny import hugging_face

MODEL = tiny_model()
TEXTS = ["Zwölf Sätze", "a b", "longer than the others, by far"]


@pytest.mark.parametrize("start", [3, None])
def test_bits_are_those_of_the_logits(monkeypatch, start):
    monkeypatch.setattr("anchorlab.language.losses.beginning", lambda tokenizer: start)
    found = text_bits(MODEL, TEXTS)
    for row, text in enumerate(TEXTS):
        ids = MODEL.tokenizer(text, add_special_tokens=False)["input_ids"]
        read, said = ([start, *ids], text) if start else (ids, MODEL.tokenizer.decode(ids[1:]))
        shares = MODEL(torch.tensor([read]))[0].double().log_softmax(dim=-1)
        whole = -sum(float(shares[at, token]) for at, token in enumerate(read[1:])) / math.log(2)
        assert float(found.per_token[row]) == pytest.approx(whole / (len(read) - 1), rel=1e-5)
        assert float(found.per_character[row]) == pytest.approx(whole / len(said), rel=1e-5)
        assert float(found.per_byte[row]) == pytest.approx(whole / len(said.encode()), rel=1e-5)
    assert float(found.per_byte[0]) < float(found.per_character[0])  # two letters take two bytes


def test_a_model_without_a_tokenizer():
    with pytest.raises(SpecError, match=r"^tokenizer: "):
        text_bits(wrap(hugging_face("gpt2"), None, "gpt2"), TEXTS)
