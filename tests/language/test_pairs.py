"""Pairs of texts: their form, their answers, equally many tokens; and bits of texts, by hand from the logits."""

import math

import pytest
import torch

pytest.importorskip("transformers")

from anchorlab.errors import SpecError
from anchorlab.language import text_bits
from anchorlab.language.pairs import NAMES, SENTENCES, indirect_objects, repetitions
from anchorlab.papers.pretrained.tiny import byte_tokenizer, tiny_model

TOKENIZER = byte_tokenizer()


def texts(side):
    rows = zip(side.inputs.tolist(), side.lengths.tolist(), strict=True)
    return [TOKENIZER.decode(row[:length], skip_special_tokens=True) for row, length in rows]


def test_the_next_word_is_the_person_who_does_not_give():
    pairs = indirect_objects(TOKENIZER, 60, seed=3)
    first_giver = 0
    assert torch.equal(pairs.clean.lengths, pairs.corrupted.lengths)
    for clean, corrupted, right, wrong in zip(
        texts(pairs.clean), texts(pairs.corrupted), pairs.answers[:, 0], pairs.corrupted_answers[:, 0],
        strict=True,
    ):  # fmt: skip
        a, b = sorted((name for name in NAMES if name in clean.split()), key=clean.index)
        forms = {one.format(a=a, b=b, s=giver): giver for one in SENTENCES for giver in (a, b)}
        assert {forms[clean], forms[corrupted]} == {a, b}
        assert TOKENIZER.decode([right]).strip() == forms[corrupted][0]
        assert TOKENIZER.decode([wrong]).strip() == forms[clean][0]
        first_giver += forms[clean] == a
    assert 15 < first_giver < 45
    assert len(set(texts(pairs.clean))) > 50


def test_the_repetition_tells_the_next_token():
    half = 8
    pairs = repetitions(TOKENIZER, 20, half, seed=1)
    for clean, corrupted, right, wrong in zip(
        pairs.clean.inputs, pairs.corrupted.inputs, pairs.answers[:, 0], pairs.corrupted_answers[:, 0], strict=True
    ):
        begun = len(clean) - half - half // 2
        once, again = clean[begun : begun + half], clean[begun + half :]
        assert torch.equal(again, once[: half // 2]) and right == once[half // 2]
        assert len({*once.tolist(), int(wrong)}) == half + 1
        differ = (clean != corrupted).nonzero().flatten().tolist()
        assert differ == [begun + half // 2] and corrupted[differ[0]] == wrong


@pytest.mark.parametrize("half", [0, 1])
def test_too_few_tokens_to_repeat_are_refused(half):
    with pytest.raises(SpecError, match=f"half: {half} tokens, of which none is repeated; choose at least 2"):
        repetitions(TOKENIZER, 2, half)


def test_seeds_and_parts():
    one, same, other = (indirect_objects(TOKENIZER, 6, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.clean.inputs, same.clean.inputs)
    assert not torch.equal(one.answers, other.answers)
    part = one.part(slice(2, 4))
    for whole, some in zip(one, part, strict=True):
        whole, some = (getattr(each, "inputs", each) for each in (whole, some))
        assert torch.equal(whole[2:4], some)


@pytest.mark.parametrize("start", [3, None])
def test_bits_are_those_of_the_logits(monkeypatch, start):
    monkeypatch.setattr("anchorlab.language.losses.beginning", lambda tokenizer: start)
    model, given = tiny_model(), ["Zwölf Sätze", "a b", "longer than the others, by far"]
    found = text_bits(model, given)
    for row, text in enumerate(given):
        ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
        read, said = ([start, *ids], text) if start else (ids, model.tokenizer.decode(ids[1:]))
        shares = model(torch.tensor([read]))[0].double().log_softmax(dim=-1)
        whole = -sum(float(shares[at, token]) for at, token in enumerate(read[1:])) / math.log(2)
        assert float(found.per_token[row]) == pytest.approx(whole / (len(read) - 1), rel=1e-5)
        assert float(found.per_character[row]) == pytest.approx(whole / len(said), rel=1e-5)
        assert float(found.per_byte[row]) == pytest.approx(whole / len(said.encode()), rel=1e-5)
    assert float(found.per_byte[0]) < float(found.per_character[0])  # two letters take two bytes


def test_a_start_that_a_text_writes_itself_is_no_part_of_its_length(monkeypatch):
    monkeypatch.setattr("anchorlab.language.losses.beginning", lambda tokenizer: tokenizer("Z")["input_ids"][0])
    found = text_bits(tiny_model(), ["Za b", "a b"])
    assert found.per_character[0] == found.per_character[1] and found.per_byte[0] == found.per_byte[1]
