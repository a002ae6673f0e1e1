"""Answers against transformers' own logits and against a model made by hand."""

import math
from typing import Any

import pytest
import torch

from anchorlab.language import answers, wrap
from anchorlab.language.answers import Questions, combine, first_block
from anchorlab.language.prompts import Prompt
from anchorlab.lens import look
from anchorlab.models.model import predict
from tests.language.spoken import HIDDEN, LOUD, PROMPTS, VOCABULARY, WIDTH, spoken, token, tokenizer
from tests.language.tiny import hugging_face, transformers

LONGER = (  # with one, no and two candidates
    *PROMPTS,
    Prompt("Madrid is located in Europe"),
    Prompt("to", "them"),
    Prompt("Lyon is located in", "Europe", ("Spain", "France")),
)


def test_answers_are_those_of_transformers() -> None:
    model = hugging_face("llama")
    asked = Questions(wrap(model, tokenizer()), LONGER, words=("the", "a"))
    found = asked.answers()
    for place, prompt in enumerate(LONGER):
        ids = torch.tensor([[0, *tokenizer()(prompt.text)["input_ids"]]])
        with torch.no_grad():
            p = model(ids, use_cache=False).logits[0, -1].softmax(-1)
        order = p.argsort(descending=True).tolist()
        torch.testing.assert_close(found.words[place].exp(), p[[token("the"), token("a")]], rtol=1e-4, atol=1e-6)
        assert found.word_ranks[place].tolist() == [order.index(token(word)) + 1 for word in ("the", "a")]
        if prompt.answer is None:
            assert math.isnan(found.right[place])
            assert math.isnan(found.right_rank[place])
            continue
        torch.testing.assert_close(found.right[place].exp(), p[token(prompt.answer)], rtol=1e-4, atol=1e-6)
        assert found.right_rank[place] == order.index(token(prompt.answer)) + 1
        if not prompt.candidates:
            assert math.isnan(found.others[place])
            assert math.isnan(found.right_place[place])
            continue
        others = p[[token(word) for word in prompt.candidates]]
        torch.testing.assert_close(found.others[place].exp(), others.sum(), rtol=1e-4, atol=1e-6)
        assert found.right_place[place] == 1 + int((others > p[token(prompt.answer)]).sum())


@pytest.mark.parametrize("name", ["blocks.0.attn.W_O", "blocks.2.mlp.W_in", "embed.W_E", "unembed.W_U"])
def test_answers_with_a_weight_replaced_are_those_of_a_model_that_has_it(name: str) -> None:
    model = wrap(hugging_face("llama"), tokenizer())
    other = wrap(hugging_face("llama"), tokenizer())
    asked = Questions(model, LONGER)
    whole = asked.answers()
    with torch.no_grad():
        other.get_parameter(name).mul_(0.5)
    found = asked.answers({name: other.get_parameter(name).detach()})
    torch.testing.assert_close(found.tensors, Questions(other, LONGER).answers().tensors, equal_nan=True)
    assert not torch.equal(found.words, whole.words)


def test_the_model_made_by_hand_says_the_and_knows_the_country():
    assert first_block(["blocks.12.mlp.W_in", "blocks.3.attn.W_Q"]) == 3
    assert first_block(["unembed.W_U", "blocks.3.attn.W_Q"]) == first_block([]) == 0
    full, silent = Questions(spoken(), PROMPTS).answers(), Questions(spoken(0.0), PROMPTS).answers()
    assert full.word_ranks[:, 0].tolist() == [1, 1, 1]
    assert (silent.right_rank <= 2).all()  # after the word that is repeated, at most
    assert silent.right_place.tolist() == full.right_place.tolist() == [1, 1, 1]
    assert LOUD == 1


def test_a_model_that_gives_nan_ranks_no_word_first():
    given = Questions(spoken(), PROMPTS).answers({f"blocks.{LOUD}.mlp.W_out": torch.full((HIDDEN, WIDTH), math.nan)})
    assert all(bool(value.isnan().all()) for value in given.tensors.values())


def test_answers_combine_and_are_taken_apart_and_a_start_goes_before_prompts():
    one = Questions(spoken(), PROMPTS).answers()
    torch.testing.assert_close(combine([one, one])[1].tensors, one.tensors)
    torch.testing.assert_close(combine([one[:1], one[1:]], torch.cat).tensors, one.tensors)
    begun, bare = Questions(spoken(), PROMPTS), Questions(spoken(), PROMPTS, begun=False)
    assert begun.tokens.inputs[:, 0].tolist() == [VOCABULARY["<|endoftext|>"]] * 3
    assert torch.equal(begun.tokens.inputs[:, 1:], bare.tokens.inputs)


def test_what_enters_a_matrix_is_what_it_is_multiplied_by() -> None:
    """The product with the matrix, and its bias, is the site behind it."""
    asked = Questions(spoken(), PROMPTS)
    for weight, site in (("mlp.W_in", "mlp.hook_pre"), ("attn.W_V", "attn.hook_v"), ("mlp.W_out", "hook_mlp_out")):
        entering = asked.entering(f"blocks.1.{weight}")
        behind = look(asked.model, asked.tokens.inputs, [f"blocks.1.{site}"])[f"blocks.1.{site}"]
        bias = asked.model.get_parameter(f"blocks.1.{weight.replace('W', 'b')}")
        made = entering @ asked.model.get_parameter(f"blocks.1.{weight}") + bias
        torch.testing.assert_close(made.detach(), torch.as_tensor(behind).reshape(made.shape))


def _digits() -> Any:
    """A tokenizer of single bytes: every word begins with a space of its own, as numbers do for many tokenizers."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|endoftext|>")


def test_numbers_are_scored_by_the_digits_that_tell_them_apart() -> None:
    """The truth is what transformers gives to each digit behind the prompt and the digits before it."""
    numbers = _digits()
    config = transformers.GPT2Config(
        n_embd=32, n_inner=48, n_layer=2, n_head=4, vocab_size=len(numbers), n_positions=64, initializer_range=0.3
    )
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    given = {  # what all words of a prompt share, the scored digits of the answer, and those of the candidates
        Prompt("2 + 2 =", "4", ("5", "6", "7")): (" ", "4", ("5", "6", "7")),
        Prompt("it is", "to"): (" ", "t", ()),
        Prompt("7 + 7 =", "14", ("15", "16")): (" 1", "4", ("5", "6")),
        Prompt("3 + 9 =", "12", ("13", "2", "25")): (" ", "12", ("13", "2")),
        Prompt("a"): ("", "", ()),
        Prompt("1 + 0 =", "1", ("10", "3")): (" ", "", ("3",)),
    }
    asked = Questions(wrap(model, numbers), tuple(given), words=("the",))
    found = asked.answers()

    def after(text: str, word: str) -> tuple[float, int]:
        """The log-probability of a word behind a text, and the largest rank of its letters."""
        with torch.no_grad():
            ids = numbers(word)["input_ids"]
            read = torch.tensor([[numbers.eos_token_id, *numbers(text)["input_ids"], *ids]])
            p = model(read, use_cache=False).logits[0, -len(ids) - 1 : -1].log_softmax(-1)
        own = p.gather(1, torch.tensor(ids).unsqueeze(1))
        return float(own.sum()), int(1 + (p > own).sum(dim=1).max())

    for row, (prompt, (shared, right, wrong)) in enumerate(given.items()):
        others = torch.tensor([after(prompt.text + shared, word)[0] for word in wrong])
        if wrong:
            assert found.others[row].item() == pytest.approx(float(others.logsumexp(0)), abs=1e-4)
        if not right:
            assert found.right[row].isnan() and found.right_rank[row].isnan() and found.right_place[row].isnan()
            continue
        value, rank = after(prompt.text + shared, right)
        assert found.right[row].item() == pytest.approx(value, abs=1e-4)
        assert found.right_rank[row] == rank
        if wrong:
            assert found.right_place[row] == 1 + int((others > value).sum())
    assert "'1' begins another of the words, and is not scored" in found.notes
    assert "'25' and '2' begin with the same tokens, and are not told apart" in found.notes
    assert found.words.isnan().all() and found.word_ranks.isnan().all()
    assert "'the' begins with a space of its own, as other words do, and is not scored" in found.notes
    with torch.no_grad():
        ids = torch.tensor([[numbers.eos_token_id, *numbers("7 + 7 =")["input_ids"]]])
        expected = model(ids, use_cache=False).logits[0, -1].log_softmax(-1)
    torch.testing.assert_close(asked.log_probabilities()[2], expected, atol=1e-5, rtol=1e-5)
    edited = asked.answers({"blocks.1.mlp.W_in": torch.zeros(32, 48)})
    assert not torch.equal(edited.right[:3], found.right[:3])
    assert combine([found, edited]).notes == found[1:].notes == found.notes


def test_a_long_answer_among_many_prompts_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One prediction for each prompt, and one for each token that follows it; parts of any size agree."""
    long = Prompt("Madrid is", "located in the to Spain", ("located in the to France",))
    short = [Prompt(text, "Spain", ("France",)) for text in ("Madrid is located in", "Paris is located in") * 8]
    mixed = [*short[:5], long, *short[5:], long]
    whole = Questions(wrap(hugging_face("llama"), tokenizer()), mixed)
    following = whole.tokens.following.tolist()
    assert sorted(following)[-3] == 0 and following[5] == following[-1] == 4
    seen: list[int] = []

    def counted(*given: Any, **named: Any) -> torch.Tensor:
        found = predict(*given, **named)
        seen.append(found.shape[:2].numel())
        return found

    monkeypatch.setattr(answers, "predict", counted)
    found = whole.answers()
    assert sum(seen) == len(short) + 2 * 5
    for at, prompt in enumerate(mixed):
        alone = Questions(whole.model, [prompt]).answers()
        torch.testing.assert_close(found[at : at + 1].tensors, alone.tensors, equal_nan=True)
    weight = {"blocks.1.mlp.W_in": torch.zeros_like(whole.model.get_parameter("blocks.1.mlp.W_in"))}
    edited = whole.answers(weight)
    monkeypatch.setattr(answers, "_MOST", 3)
    parts = Questions(whole.model, mixed)
    seen.clear()
    torch.testing.assert_close(parts.answers().tensors, found.tensors)
    assert max(seen) == 5 and sum(seen) == len(short) + 2 * 5
    torch.testing.assert_close(parts.answers(weight).tensors, edited.tensors)
    torch.testing.assert_close(parts.log_probabilities(), whole.log_probabilities())


def test_words_follow_the_prompt_and_not_what_answers_share() -> None:
    """Behind "Madrid is", both answers share "located"."""
    model = wrap(hugging_face("llama"), tokenizer())
    asked = Questions(model, [Prompt("Madrid is", "located in", ("located to",))], words=("the",))
    plain = Questions(model, [Prompt("Madrid is")], words=("the",)).answers()
    behind = Questions(model, [Prompt("Madrid is located", "in", ("to",))]).answers()
    found = asked.answers()
    torch.testing.assert_close(found.words, plain.words)
    torch.testing.assert_close(found.right, behind.right)
