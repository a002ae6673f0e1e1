"""Texts as token ids, with a tokenizer whose tokens are known by hand."""

from typing import TYPE_CHECKING

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.language import prompts as of
from anchorlab.language.encode import tokenise, tokenise_prompts, windows, word_tokens
from anchorlab.language.sample_text import english_page

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# letters, and pairs of them that are merged; "Ġ" is the space before a word
MERGES = [("t", "o"), ("Ġ", "S"), ("ĠS", "p"), ("a", "i"), ("Ġ", "i"), ("Ġi", "n")]
LETTERS = sorted({letter for merge in MERGES for part in merge for letter in part} | set("MnrRus"))
VOCABULARY = {word: token for token, word in enumerate([*LETTERS, *map("".join, MERGES), "<end>", "<?>"])}


@pytest.fixture(scope="module")
def tokenizer() -> "PreTrainedTokenizerBase":
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.decoders import ByteLevel
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(VOCABULARY, MERGES, unk_token="<?>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", unk_token="<?>")


def _ids(*tokens: str) -> list[int]:
    return [VOCABULARY[token] for token in tokens]


def test_texts_are_padded_on_the_right_and_a_start_goes_before_each(tokenizer):
    made = tokenise(tokenizer, ["to in", "to", "Spain"], context=8)
    end = VOCABULARY["<end>"]
    assert made.inputs.tolist() == [
        [*_ids("to", "Ġin"), end, end], [*_ids("to"), end, end, end], _ids("S", "p", "ai", "n"),
    ]  # fmt: skip
    assert made.lengths.tolist() == [2, 1, 4]
    assert made.inputs.dtype == made.lengths.dtype == torch.int64
    made = tokenise(tokenizer, ["to in", "to"], context=3, start=end)
    assert made.inputs.tolist() == [[end, *_ids("to", "Ġin")], [end, *_ids("to"), end]]
    assert made.lengths.tolist() == [3, 2]


def test_the_first_token_of_an_answer_is_scored_and_a_note_says_so(tokenizer):
    prompts = [of.Prompt("to", "Spain", ("in", "Rus")), of.Prompt("to in", "in", ("Spain",))]
    made = tokenise_prompts(tokenizer, prompts, context=8)
    assert made.answers.tolist() == _ids("ĠSp", "Ġin")
    assert made.candidates.tolist() == [_ids("Ġin"), _ids("ĠSp")]
    assert made.following.tolist() == made.shared.tolist() == [0, 0]
    assert made.notes == (
        "'Spain' is 3 tokens; the first, 'Sp', is scored",
        "'Rus' begins with a space of its own, as other words do, and is not scored",
    )


def test_words_that_cannot_be_told_apart_are_left_out(tokenizer):
    """The answer of the second prompt begins a candidate: no token says that the word has ended."""
    prompts = [of.Prompt("to", "Spain", ("Spa", "in", "ins", "Spain")), of.Prompt("to", "in", ("ins", "Spa", "Spain"))]
    made = tokenise_prompts(tokenizer, prompts, context=8)
    assert made.answers.tolist() == [*_ids("ai"), -1]
    assert made.candidates.tolist() == [_ids("a", "Ġin"), [*_ids("ĠSp"), -1]]
    assert made.places.tolist() == [[1, 0], [0, 0]]
    assert made.notes == (
        "'Spain' is 3 tokens; the first two, 'Spai', are scored", "'Spa' is 2 tokens; the first two, 'Spa', are scored",
        "'ins' and 'in' begin with the same tokens, and are not told apart",
        "'in' begins another of the words, and is not scored", "'Spa' is 2 tokens; the first, 'Sp', is scored",
        "'Spain' and 'Spa' begin with the same tokens, and are not told apart",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "candidates", "following", "shared", "scored", "others"),
    [
        ("Mn", ("Rr", "su"), ["Ġ"], 1, "M", {"R": 1, "s": 1}),  # as digits after a space of their own
        ("Mn", (), ["Ġ"], 1, "M", {}),
        (None, ("Mn", "Rr"), ["Ġ"], 1, None, {"M": 1, "R": 1}),
        ("Spain", ("Spa",), ["ĠSp"], 1, "ai", {"a": 1}),
        ("MRn", ("MRr", "MRn", "MRs"), ["Ġ", "M", "R"], 3, "n", {"r": 3, "s": 3}),
        ("MRn", ("MRr", "Mu", "Rr"), ["Ġ", "M", "R"], 1, "n", {"r": 3, "u": 2, "R": 1}),
        ("MR", ("MRr",), ["Ġ", "M"], 2, None, {}),  # no token says that the word ends with its "R"
        ("MRr", ("MR", "s"), ["Ġ", "M", "R"], 1, "r", {"s": 1}),
        ("Mn", ("Rr", "in"), ["Ġ"], 0, "M", {"R": 1, "Ġin": 0}),
        ("in", ("Mn", "Rr"), [], 0, "Ġin", {}),
    ],
)
def test_words_are_scored_up_to_the_first_token_that_tells_them_apart(
    tokenizer, answer, candidates, following, shared, scored, others
):
    made = tokenise_prompts(tokenizer, [of.Prompt("to", answer, candidates)], context=8)
    assert made.inputs.tolist() == [_ids("to", *following)] and made.lengths.tolist() == [1 + len(following)]
    assert made.following.tolist() == [len(following)] and made.shared.tolist() == [shared]
    assert made.answers.tolist() == ([-1] if scored is None else _ids(scored))
    assert made.candidates.tolist() == [_ids(*others)] and made.places.tolist() == [list(others.values())]


def test_prompts_without_an_answer_and_windows_of_a_text(tokenizer):
    ids, notes = word_tokens(tokenizer, ["in", "Mn"])
    assert ids.tolist() == [*_ids("Ġin"), -1]
    assert notes == ("'Mn' begins with a space of its own, as other words do, and is not scored",)
    made = tokenise_prompts(tokenizer, [of.Prompt("to"), of.Prompt("in")], context=8)
    assert made.answers.tolist() == [-1, -1]
    assert made.candidates.shape == (2, 0)
    assert made.notes == ()
    made = windows(tokenizer, "to in in in in in in", length=3, context=8)
    assert made.tolist() == [_ids("to", "Ġin", "Ġin"), _ids("Ġin", "Ġin", "Ġin")]


def _adding(tokenizer: "PreTrainedTokenizerBase", form: str, **named: str) -> "PreTrainedTokenizerBase":
    """Return a copy of a tokenizer that puts special tokens around a text."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    special = [(token, VOCABULARY[token]) for token in ("<end>", "<?>")]
    inner.post_processor = TemplateProcessing(single=form, special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", unk_token="<?>", **named)


def test_a_tokenizer_that_adds_a_first_token_adds_it_to_texts_and_not_to_words(tokenizer):
    begun = _adding(tokenizer, "<end> $A")
    made = tokenise_prompts(begun, [of.Prompt("to", "in")], context=2)
    assert made.inputs.tolist() == [_ids("<end>", "to")]
    assert made.answers.tolist() == _ids("Ġin")
    assert windows(begun, "to in", length=2, context=2).tolist() == [_ids("to", "Ġin")]


def test_a_tokenizer_that_also_adds_a_last_token_lets_no_prediction_follow_it(tokenizer):
    """Its first token also stands for unknown words, as GPT-2's does."""
    made = _adding(tokenizer, "<?> $A <end>", bos_token="<?>")
    assert tokenise(made, ["to in"], context=8).inputs.tolist() == [_ids("<?>", "to", "Ġin")]
    with pytest.raises(SpecError, match=r"texts\[0\]: has no tokens"):
        tokenise(made, [""], context=8)


def asking(*prompts, context=3):
    return lambda tokenizer: tokenise_prompts(tokenizer, prompts, context)


NONE = "tokenizer: the model has none"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (asking(of.Prompt("to", "Mn"), context=1),
         r"prompts\[0\]: has 2 tokens with 1 of its answer, .* 1; shorten it"),
        (asking(of.Prompt("to"), of.Prompt("to in in in")),
         r"prompts\[1\]: has 4 tokens, but .* context holds 3; shorten"),
        (asking(of.Prompt("")), r"prompts\[0\]: has no tokens; write at least one word"),
        (asking(), "prompts: there are none; give at least one"),
        (asking(of.Prompt("xyz")),
         r"prompts\[0\]: 'xyz' has words that the tokenizer does not know; choose other words"),
        (asking(of.Prompt("to", "xyz")), "answer: 'to xyz' has words that the tokenizer does not know"),
        (asking(of.Prompt("to", " in")), "answer: ' in' is not a word; write it without spaces around it"),
        (lambda _: tokenise(None, ["to"], 8), NONE),
        (lambda _: tokenise_prompts(None, [of.Prompt("to")], 8), NONE),
        (lambda _: word_tokens(None, ["in"]), NONE),
        (lambda _: windows(None, "to in", 2, 8), NONE),
        (lambda tokenizer: windows(tokenizer, "to in", 1, context=4), "length: 1 tokens.*choose 2 to 4"),
        (lambda tokenizer: windows(tokenizer, "to in", 5, context=4), "length: 5 tokens.*choose 2 to 4"),
        (lambda tokenizer: windows(tokenizer, "to in", 4, context=4), "length: 4 tokens.*the text has 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line_with_the_remedy(tokenizer, call, words):
    with pytest.raises(SpecError, match=words) as caught:
        call(tokenizer)
    assert "\n" not in str(caught.value)


def test_every_word_of_the_prompts_is_one_token_of_smollm2(smollm2_tokenizer):
    for prompts in (of.indirect_objects(400), of.facts(), of.prepositions(), of.sentences()):
        made = tokenise_prompts(smollm2_tokenizer, prompts, context=64)
        assert made.notes == ()
        assert made.inputs.shape[1] <= 20
        for row, prompt in enumerate(prompts[:5]):
            assert smollm2_tokenizer.decode(made.inputs[row, : made.lengths[row]]) == prompt.text
    ids, notes = word_tokens(smollm2_tokenizer, of.generic_words())
    assert [smollm2_tokenizer.decode([token]) for token in ids] == [" the", " a", " them"]
    assert notes == ()


def check_first_tokens(tokenizer: "PreTrainedTokenizerBase") -> None:
    """Each right word is told from all others of its kind by its first token, which is more than a letter of it."""
    for relation in of.relations():
        answers = sorted({str(prompt.answer) for prompt in of.facts((relation,))})
        firsts = word_tokens(tokenizer, answers)[0].tolist()
        assert len(set(firsts)) == len(answers)
        for answer, token in zip(answers, firsts, strict=True):
            beginning = tokenizer.decode([token]).strip()
            assert answer.startswith(beginning)
            assert len(beginning) > 1 or beginning == answer


def test_facts_are_scored_by_the_first_token_of_smollm2(smollm2_tokenizer):
    check_first_tokens(smollm2_tokenizer)


def test_facts_are_scored_by_the_first_token_of_gemma(gemma3):
    from transformers import AutoTokenizer

    check_first_tokens(AutoTokenizer.from_pretrained(gemma3, local_files_only=True))


def test_the_page_is_some_thousand_tokens_of_smollm2(smollm2_tokenizer):
    made = windows(smollm2_tokenizer, english_page().text, length=256, context=8192)
    assert made.shape[0] >= 10
    joined = smollm2_tokenizer.decode(made.flatten())
    assert english_page().text.startswith(joined)
