"""The token that a text begins with, of tokenizers that put it there and of tokenizers that leave it to others."""

import pytest

from anchorlab.language import Prompt, Questions, continue_text, next_words, wrap
from anchorlab.language.asking import LocalSpeaker, Request, Turn
from anchorlab.language.asking.chat import text_for_server
from anchorlab.language.start import beginning, start_token
from tests.language.asking.bytes import END, byte_model, tokenizer


class Words:
    """A tokenizer of one word, with special tokens around it where it puts some."""

    def __init__(self, before: list[int], after: list[int], vocabulary: dict[str, int]) -> None:
        self.before, self.after, self.vocabulary = before, after, vocabulary

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [*self.before, 7, *self.after] if add_special_tokens else [7]}

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary


@pytest.mark.parametrize(
    ("tokenizer", "begins", "between"),
    [
        (Words([2], [], {}), 2, None),  # Gemma's <bos>
        (Words([], [], {"<|endoftext|>": 0}), 0, 0),  # SmolLM2
        (Words([], [], {}), None, None),
        (Words([], [3], {}), None, None),  # a special token at the end alone
        (Words([1], [3], {"<|endoftext|>": 0}), 1, None),
        (None, None, None),
    ],
)
def test_what_a_text_begins_with(tokenizer, begins, between):
    assert (beginning(tokenizer), start_token(tokenizer)) == (begins, between)


@pytest.fixture(scope="module")
def begins():
    """A model whose tokenizer puts a token before every text, and whose chat template writes the same one."""
    from tokenizers.processors import TemplateProcessing

    made = tokenizer()
    inner = made.backend_tokenizer
    inner.post_processor = TemplateProcessing(single=f"{END} $A", special_tokens=[(END, made.eos_token_id)])
    made.chat_template = "{{ '" + END + "' }}{% for one in messages %}{{ one['content'] }}{% endfor %}"
    assert made("to")["input_ids"][0] == made.eos_token_id
    return wrap(byte_model("llama").hugging_face, made, "begins")


@pytest.fixture(scope="module")
def left_to_others():
    """A model whose tokenizer adds nothing; `<|endoftext|>` is put before its texts."""
    return byte_model("llama")


def templated(model, text="Hi"):
    """A text as transformers writes it for a chat, and the ids that transformers itself gives."""
    chat = [{"role": "user", "content": text}]
    written = model.tokenizer.apply_chat_template(chat, tokenize=False)
    return written, model.tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)


def test_a_text_from_a_template_has_one_start(begins):
    written, expected = templated(begins)
    assert expected.count(begins.tokenizer.eos_token_id) == 1
    for special in (True, False):
        texts = begins.tokenise([written], special=special)
        assert texts.inputs.tolist() == [expected] and texts.lengths.tolist() == [len(expected)]
    plain = begins.tokenizer("Hi", add_special_tokens=False)["input_ids"]
    assert begins.tokenise(["Hi"]).inputs.tolist() == [[begins.tokenizer.eos_token_id, *plain]]
    assert begins.tokenise(["Hi"], special=False).inputs.tolist() == [plain]
    expected = templated(begins)[1]
    for start in (None, True):
        assert LocalSpeaker(begins, start=start).ids(Request((Turn("user", "Hi"),))) == expected


@pytest.mark.parametrize("name", ["begins", "left_to_others"])
def test_a_start_that_a_text_writes_is_not_put_before_it_again(request, name):
    model = request.getfixturevalue(name)
    written = [Prompt(f"{END}Hi", "there"), Prompt("Hi", "there")]
    asked = Questions(model, written, words=())
    assert asked.tokens.inputs[0].tolist() == asked.tokens.inputs[1].tolist()
    assert next_words(model, f"{END}Hi") == next_words(model, "Hi")
    assert continue_text(model, f"{END}Hi", 2) == END + continue_text(model, "Hi", 2)
    for speaker in (LocalSpeaker(model), LocalSpeaker(model, start=True)):
        one, other = (speaker.ids(Request((Turn("user", text),), chat=False)) for text in (f"{END}Hi", "Hi"))
        assert one == other and one[0] == model.tokenizer.eos_token_id
    bare = LocalSpeaker(model, start=False)
    assert bare.ids(Request((Turn("user", "Hi"),), chat=False)) == other[1:]


def test_a_server_that_adds_the_start_is_not_sent_it(begins, left_to_others):
    """The server puts the token before the text where its tokenizer does; elsewhere it comes with the text."""
    for model, sent in ((begins, "Hi"), (left_to_others, f"{END}Hi")):
        for text in ("Hi", f"{END}Hi"):
            request = Request((Turn("user", text),), chat=False)
            assert text_for_server(model.tokenizer, request, "m") == f"{sent}\n"


SHOTS = (Turn("user", "a = 1. What is a?"), Turn("assistant", "1"), Turn("user", "b = 2. What is b?"))


@pytest.mark.parametrize("name", ["begins", "left_to_others"])
@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("begun", ["", "The value is"])
def test_a_server_reads_what_a_local_model_reads(request, name, chat, begun):
    model, asked = request.getfixturevalue(name), Request(SHOTS, begun, chat)
    text = text_for_server(model.tokenizer, asked, "m")
    assert model.tokenizer(text)["input_ids"] == LocalSpeaker(model).ids(asked)
