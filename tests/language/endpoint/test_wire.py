"""A request as one text, which a server reads as a local model reads the request."""

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.asking import LocalSpeaker, Request, Turn
from anchorlab.language.endpoint import Endpoint, Server
from anchorlab.language.endpoint.wire import Writer
from tests.language.asking.bytes import END, TEMPLATE, byte_model, tokenizer
from tests.language.endpoint.kit import endpoint
from tests.language.endpoint.scripted import served, spoken

SHOTS = (Turn("user", "a = 1. What is a?"), Turn("assistant", "1"), Turn("user", "b = 2. What is b?"))
REQUESTS = [Request(SHOTS, begun, chat) for begun in ("", "The value is") for chat in (True, False)]


def adding():
    """A tokenizer that puts a special token before every text, as Llama's does, and whose template writes it too."""
    from tokenizers.processors import TemplateProcessing

    made = tokenizer()
    made.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{END} $A", special_tokens=[(END, made.convert_tokens_to_ids(END))]
    )
    made.chat_template = END + TEMPLATE
    return made


@pytest.mark.parametrize("made", [tokenizer, adding])
@pytest.mark.parametrize("request_", REQUESTS)
def test_the_server_reads_what_a_local_model_reads(tmp_path, made, request_):
    model = byte_model("llama")
    model.tokenizer, before = made(), model.tokenizer
    try:
        model.tokenizer.save_pretrained(tmp_path)
        text = Writer(Server(url="http://host/v1", model="m", tokenizer=str(tmp_path))).text(request_)
        assert model.tokenizer(text)["input_ids"] == LocalSpeaker(model).ids(request_)
    finally:
        model.tokenizer = before


def test_all_is_put_as_one_text(tmp_path, journal):
    tokenizer().save_pretrained(tmp_path)
    with served(lambda asked: spoken(asked, "The value is 5")) as server:
        came = endpoint(server, journal, tokenizer=str(tmp_path)).say(REQUESTS)
        endpoint(server, journal).say([REQUESTS[0]])
    paths = [asked.path for asked in server.asked]
    assert paths == ["/v1/completions"] * 4 + ["/v1/chat/completions"]  # and those two are not taken for the same
    chat = (
        "<|im_start|>user\na = 1. What is a?<|endoftext|>\n<|im_start|>assistant\n1<|endoftext|>\n"
        "<|im_start|>user\nb = 2. What is b?<|endoftext|>\n<|im_start|>assistant\nThe value is"
    )
    assert chat in [asked.body.get("prompt") for asked in server.asked]
    assert [each.text for each in came] == ["The value is 5"] * 4  # what follows a text repeats nothing


def test_a_tokenizer_without_a_template(tmp_path, journal):
    tokenizer(chat=False).save_pretrained(tmp_path)
    with served() as server, pytest.raises(SpecError, match=r"^chat: .* has no chat template; ask in plain text"):
        endpoint(server, journal, tokenizer=str(tmp_path)).say(REQUESTS)
    assert server.asked == []


def test_a_tokenizer_that_is_not_there(journal):
    for name in ("/no/such/folder", "nobody/nothing"):
        with pytest.raises(SpecError, match=f"tokenizer: there is no tokenizer {name} on this machine"):
            Endpoint(Server(url="http://127.0.0.1:1/v1", model="m", tokenizer=name), journal)
