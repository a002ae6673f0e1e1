"""Local models: the texts and likelihoods of transformers itself, whatever the batch."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.language.asking import SCORINGS, LocalSpeaker, Manner, Request, Turn, likelihoods, local
from anchorlab.language.asking.likelihood import Likelihoods
from anchorlab.tasks import task
from tests.language.asking.bytes import CONTEXT, END, KINDS, byte_model

QUESTIONS = task("retrieval/lives-with", chains=3, steps=2).questions(5, seed=0)
every_kind = pytest.mark.parametrize("kind", KINDS)
TEXT = Manner(chat=False, begun=True, instruction=False, tokens=9)


def chat_text(request):
    """The template by hand."""
    turns = "".join(f"<|im_start|>{turn.role}\n{turn.text}{END}\n" for turn in request.turns)
    return f"{turns}<|im_start|>assistant\n{request.begun}"


@every_kind
def test_the_likeliest_text_is_that_of_transformers(kind):
    speaker = LocalSpeaker(byte_model(kind))
    requests = [TEXT.request(one) for one in QUESTIONS] + [Manner(tokens=9).request(one) for one in QUESTIONS]
    running, reads = speaker.model.hugging_face, speaker.tokenizer
    for request, said in zip(requests, speaker.say(requests), strict=True):
        text = chat_text(request) if request.chat else END + request.text
        ids = reads(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        whole = running.generate(ids, max_new_tokens=9, do_sample=False, pad_token_id=0)
        expected = reads.decode(whole[0, ids.shape[1] :], skip_special_tokens=True)
        assert said.text == (expected.split("\n")[0] if request.stop else expected)
        assert said.read == ids.shape[1]
        assert (said.finish == "length") == (said.written == 9 and not ("\n" in expected and request.stop))


@every_kind
def test_likelihoods_are_those_of_whole_texts(kind):
    speaker = LocalSpeaker(byte_model(kind))
    requests, priors = ([make(one) for one in QUESTIONS] for make in (TEXT.request, TEXT.without_premises))
    words = [one.candidates[: 2 + place % 2] for place, one in enumerate(QUESTIONS)]
    found = likelihoods(speaker, requests, words, priors)
    assert found.total.shape == (5, 3)

    def whole(request, word):
        before, after = (speaker.tokenizer(text)["input_ids"] for text in (END + request.text, f" {word}"))
        with torch.no_grad():
            logits = speaker.model.hugging_face(input_ids=torch.tensor([before + after])).logits[0].log_softmax(-1)
        return sum(float(logits[len(before) - 1 + place, token]) for place, token in enumerate(after)), len(after)

    for row, own in enumerate(words):
        for column, word in enumerate(own):
            total, length = whole(requests[row], word)
            assert found.total[row, column] == pytest.approx(total, abs=1e-4)
            assert found.lengths[row, column] == length
            assert found.prior[row, column] == pytest.approx(whole(priors[row], word)[0], abs=1e-4)
        assert found.total[row, len(own) :].eq(-torch.inf).all()


def test_scorings_choose_what_they_say():
    found = Likelihoods(
        total=torch.tensor([[-2.0, -3.0, -4.0, -torch.inf]]),
        lengths=torch.tensor([[1, 3, 2, 1]]),
        prior=torch.tensor([[-1.0, -2.5, -4.5, -torch.inf]]),
    )
    assert [int(found.choose(how)) for how in SCORINGS] == [0, 1, 2, 2]


def test_a_text_follows_its_seed_and_not_the_batch(monkeypatch):
    speaker = LocalSpeaker(byte_model("llama"))
    requests = [Manner(tokens=6).request(one, temperature=heat, seed=place)
                for place, one in enumerate(QUESTIONS) for heat in (0.0, 1.0)]  # fmt: skip
    together = speaker.say(requests)
    assert together == [speaker.say([one])[0] for one in requests]
    monkeypatch.setattr(local, "AT_ONCE", 1)
    assert together == speaker.say(requests)
    speaker = LocalSpeaker(byte_model("llama"))

    def texts(seeds, heat=1.5):
        return [one.text for one in speaker.say([Manner(tokens=6).request(QUESTIONS[0], (), heat, seed)
                                                 for seed in seeds])]  # fmt: skip

    assert texts([1, 2, 3]) == texts([1, 2, 3]) and len(set(texts(range(6)))) > 3
    assert len(set(texts(range(6), 1e-4))) == 1


def test_a_text_ends_at_the_end_token():
    model = byte_model("llama")
    speaker, ends = LocalSpeaker(model), model.hugging_face.generation_config
    first = speaker.say([Manner(tokens=6).request(QUESTIONS[0])])[0]
    token = speaker.tokenizer(first.text, add_special_tokens=False)["input_ids"]
    kept = ends.eos_token_id
    ends.eos_token_id = [token[0], kept]
    try:
        said = speaker.say([Manner(tokens=6).request(QUESTIONS[0])])[0]
    finally:
        ends.eos_token_id = kept
    assert (said.text, said.finish, said.written) == ("", "stop", 0)


def test_models_that_cannot_be_asked():
    with pytest.raises(SpecError, match=r"^chat: gpt2 has no chat template; ask in plain text"):
        LocalSpeaker(byte_model("gpt2", chat=False)).say([Manner().request(QUESTIONS[0])])
    long = Request((Turn("user", "x" * CONTEXT),))
    with pytest.raises(SpecError, match=f"the context of {CONTEXT} ends"):
        LocalSpeaker(byte_model("gpt2")).say([long])
    with pytest.raises(SpecError, match="candidates: 1 for 2 requests"):
        likelihoods(LocalSpeaker(byte_model("gpt2")), [TEXT.request(QUESTIONS[0])] * 2, [("Berlin",)], [])
    both = [TEXT.request(QUESTIONS[0])] * 2
    with pytest.raises(SpecError, match=r"candidates\[1\]: there are none; give at least one"):
        likelihoods(LocalSpeaker(byte_model("gpt2")), both, [("Berlin",), ()], both)


@every_kind
def test_what_was_read_last_is_kept_for_any_of_its_rows(kind):
    """The same rows, some of them, in another order, say what they say anew; what they say changes nothing kept."""
    speaker, again = LocalSpeaker(byte_model(kind)), LocalSpeaker(byte_model(kind))
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 9, 8], [5, 7, 7, 8]])
    speaker.read(ids)
    for rows in ([0, 1, 2], [2, 0], [1], [0, 1, 2]):
        logits, cache = speaker.read(ids[rows])
        expected, _ = again.read(ids[rows].clone())
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
        step = {"input_ids": torch.full((len(rows), 1), 3), "use_cache": True}
        with torch.no_grad():
            after = speaker.model.hugging_face(**step, past_key_values=cache).logits[:, -1]
            whole = torch.cat([ids[rows], step["input_ids"]], dim=1)
            anew = speaker.model.hugging_face(input_ids=whole).logits[:, -1]
        torch.testing.assert_close(after, anew, atol=1e-4, rtol=1e-4)
