"""Views of language models on texts: what the page holds is what `look` and `detect` say."""

import base64
import json

import numpy as np
import pytest
import torch
from torch.nn import functional

import anchorlab as al
from anchorlab.errors import SpecError
from anchorlab.report import show
from anchorlab.tasks.batch import Example, Token
from anchorlab.viewer import AttentionView, read_texts, view_json

pytest.importorskip("transformers")

from anchorlab.language import LanguageModel, wrap
from anchorlab.papers.pretrained.tiny import tiny_model
from tests.language.tiny import hugging_face

TEXTS = ("to be or not to be", "a cat", "the cat sat on the mat")


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return tiny_model()


@pytest.fixture(scope="module")
def page(model: LanguageModel) -> dict:
    """What the page holds."""
    return json.loads(view_json(read_texts(model, TEXTS).view))


def patterns_in(page: dict) -> list[np.ndarray]:
    """The patterns that a causal page holds, `[layer head query key]` for each text, as floats."""
    numbers = np.frombuffer(base64.b64decode(page["weights"]), "<u2") / 1000
    found = []
    for one in page["examples"]:
        length = len(one["tokens"])
        whole = np.zeros((page["layers"], page["heads"], length, length))
        for layer, head, query in np.ndindex(page["layers"], page["heads"], length):
            whole[layer, head, query, : query + 1], numbers = numbers[: query + 1], numbers[query + 1 :]
        found.append(whole)
    assert len(numbers) == 0
    return found


def test_the_pages_weights_tokens_and_predictions_are_those_of_the_model(model, page):
    for text, found in zip(TEXTS, patterns_in(page), strict=True):
        record = al.look(model, model.tokenise([text]).inputs, ["blocks.*.attn.hook_pattern"], output=False)
        for layer in range(page["layers"]):
            expected = record.at(f"blocks.{layer}.attn.hook_pattern", member=0, batch=0).numpy()
            assert np.abs(found[layer] - expected).max() < 0.000501
    assert [[token["text"] for token in one["tokens"]] for one in page["examples"]][1] == ["a", " c", "a", "t"]
    for text, said in zip(TEXTS, page["predicted"][0][0], strict=True):
        ids = model.tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = model.hugging_face(input_ids=ids).logits
        assert said == model.tokenizer.decode([int(logits[0, -1].argmax())])


def test_scores_are_those_of_detect_and_broadcast(model, page):
    texts = model.tokenise(TEXTS)
    record = al.look(model, texts.inputs, ["blocks.*.attn.hook_pattern"], output=False)
    found = al.detect(record, lengths=texts.lengths)
    scores = {one["detector"]: np.array(one["values"][0][0]).reshape(3, 4) for one in page["scores"]}
    assert set(scores) == {*found["detector"].unique(), "broadcast"}
    for layer, head, detector, value in found.select("layer", "head", "detector", "value").rows():
        assert abs(scores[detector][layer, head] - value) < 0.000501
    broadcast = np.zeros((3, 4))
    for pattern in patterns_in(page):  # by hand: the largest share of what is not given to the first token
        length = pattern.shape[-1]
        shares = [
            pattern[:, :, source + 1 :, source].sum(axis=-1) / (1 - pattern[:, :, source + 1 :, 0]).sum(axis=-1)
            for source in range(1, length // 2 + 1)
        ]
        broadcast += np.max(shares, axis=0) / len(TEXTS)
    assert np.abs(scores["broadcast"] - broadcast).max() < 0.005


def test_an_idle_head_does_not_broadcast(monkeypatch, model):
    """All queries of head 0 attend to the first token; those of head 1 to the second one; head 2 to both."""
    pattern = torch.zeros(4, 13, 13)
    pattern[:, 0, 0] = 1
    pattern[0, 1:, 0], pattern[1, 1:, 1] = 1, 1
    pattern[2, 1:, 0], pattern[2, 1:, 1] = 0.2, 0.8
    pattern[3] = functional.normalize(torch.ones(13, 13).tril(), p=1, dim=1)
    record = al.look(model, model.tokenise([TEXTS[0]]).inputs, ["blocks.*.attn.hook_pattern"])
    sites = {name: pattern[None, None] for name in record if name != "output"}
    made = type(record)({**record.arrays, **sites}, record.axis_names, record.inputs)
    monkeypatch.setattr("anchorlab.viewer.texts.look", lambda *given, **named: made)
    found = read_texts(model, TEXTS[0]).found.filter(detector="broadcast", layer=0).sort("head")
    assert found["fires"].to_list() == [False, True, True, False]
    assert found["value"].to_list()[1:3] == pytest.approx([1, 1])


def test_a_language_model_is_shown_on_one_text_or_several(model):
    assert read_texts(model, TEXTS[0]).view == read_texts(model, [TEXTS[0]]).view
    assert al.show(model, TEXTS).view == read_texts(model, TEXTS).view
    view = read_texts(model, TEXTS).view
    for others in (TEXTS, torch.tensor([[1, 2], [3, 4]])):
        with pytest.raises(SpecError, match="texts: no AttentionView reads any; leave them out"):
            al.show(view, others)
    with pytest.raises(SpecError, match="texts: each is a single token"):
        read_texts(model, ["a", "b"])
    assert len(read_texts(model, ["a", "to be"]).view.examples[0].texts) == 1


@pytest.mark.parametrize(
    ("texts", "said"),
    [([], "texts: there are none"), ([" ".join(["no"] * 2500)], r"texts\[0\]: has 5000 tokens, .* holds 4096")],
)
def test_refuses_texts_that_cannot_be_read(model, texts, said):
    with pytest.raises(SpecError, match=said):
        read_texts(model, texts)


def test_refuses_a_model_without_a_tokenizer_and_texts_that_no_browser_would_bear(model, monkeypatch):
    with pytest.raises(SpecError, match="tokenizer: the model has none"):
        read_texts(wrap(hugging_face("llama")), "to be")
    monkeypatch.setattr("anchorlab.viewer.texts.MOST_RECORDED", 3000)
    with pytest.raises(SpecError, match="texts: 17 tokens make a page above 64 MiB"):
        read_texts(model, TEXTS[2])


def test_a_page_of_30_layers_of_9_heads_is_within_5_megabytes(model):
    """Two texts of 64 tokens, and the scores of 9 detectors."""
    read = read_texts(model, TEXTS[0]).view
    rows = np.random.default_rng(0).random((1, 1, 2, 30, 9, 64, 64), dtype=np.float32)
    patterns = np.tril(rows) / np.tril(rows).sum(axis=-1, keepdims=True)
    example = Example(tuple(Token(" word", "token") for _ in range(64)), (), "", "")
    scores = [type(one)(one.detector, (((0.123,) * 270,),)) for one in read.scores]
    view = AttentionView.of("large", [example] * 2, [0], patterns, causal=True, scores=scores)
    assert len(show(view).html.encode()) < 5e6
