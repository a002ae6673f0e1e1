"""A real server: transformers' own, with SmolLM2-135M."""

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.asking.request import Request, Turn
from anchorlab.language.endpoint import Endpoint, Pace, Server
from tests.language.endpoint.kit import question

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

QUESTIONS = ["a = 7, b = a. What is the value of b?", "Who lives in the red house?", "Count to five."]


@pytest.fixture(scope="module")
def greedy(smollm2):
    """Greedy text of the same weights by transformers, in this process: after a conversation, or after a text."""
    import torch

    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2, dtype="auto", local_files_only=True).eval()

    def go_on(messages_or_text, tokens):
        if isinstance(messages_or_text, str):
            read = tokenizer(messages_or_text, return_tensors="pt").input_ids
        else:
            text = tokenizer.apply_chat_template(messages_or_text, add_generation_prompt=True, tokenize=False)
            read = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.no_grad():
            whole = model.generate(read, attention_mask=torch.ones_like(read), do_sample=False, max_new_tokens=tokens)
        written = whole[0, read.shape[1] :]
        return tokenizer.decode(written, skip_special_tokens=True), read.shape[1], len(written)

    return go_on


def test_it_says_what_the_weights_say(serving, smollm2, greedy, journal):
    speaker = Endpoint(Server(url=serving, model=str(smollm2)), journal, Pace(concurrent=3))
    shots = (Turn("user", "x = 3. What is x?"), Turn("assistant", "3"))
    conversations = [Request((*shots, Turn("user", text)), tokens=12) for text in QUESTIONS]
    texts = [question(text, begun="The answer is", chat=False, tokens=8) for text in QUESTIONS]
    came = speaker.say([*conversations, *texts])
    expected = [
        greedy([{"role": turn.role, "content": turn.text} for turn in request.turns], 12) for request in conversations
    ] + [greedy(request.text, 8) for request in texts]
    assert [(each.text, each.read, each.written) for each in came] == expected
    # it writes a revision behind the name
    assert speaker.tally.models == {f"{smollm2}@main": 6}
    assert speaker.say([*conversations, *texts]) == came
    assert (speaker.tally.answered, speaker.tally.remembered) == (6, 6)


@pytest.mark.nightly
def test_it_says_what_a_local_model_says(serving, smollm2, journal):
    """With the tokenizer at hand: conversations and plain text, begun or not, with or without a text that ends them."""
    from anchorlab.language import pretrained
    from anchorlab.language.asking import LocalSpeaker

    shots = (Turn("user", "x = 3. What is the value of x?"), Turn("assistant", "The value of x is 3"))
    requests = [
        Request((*shots, Turn("user", text)), begun, chat=chat, tokens=10, stop=stop)
        for text in QUESTIONS[:2]
        for begun in ("", "The value of b is")
        for chat, stop in ((True, ""), (True, "."), (False, "\n"))
    ]
    server = Server(url=serving, model=str(smollm2), tokenizer="smollm2")
    came = Endpoint(server, journal, Pace(concurrent=2)).say(requests)
    expected = LocalSpeaker(pretrained("smollm2")).say(requests)
    assert [each.text for each in came] == [each.text for each in expected]
    assert [each.finish for each in came] == [each.finish for each in expected]
    assert [each.read for each in came] == [each.read for each in expected]
    assert len({each.text for each in came}) > 6


def test_it_does_not_continue_a_conversation(serving, smollm2, journal):
    speaker = Endpoint(Server(url=serving, model=str(smollm2)), journal)
    with pytest.raises(SpecError, match=r"^endpoint: does not go on with a begun answer; .*422.*chat=False"):
        speaker.say([question(QUESTIONS[0], begun="The answer is")])


def test_it_has_no_other_model(serving, journal):
    with pytest.raises(SpecError, match=r"^model: .* says 400: Server is pinned to .*; give a name that"):
        Endpoint(Server(url=serving, model="huge"), journal).say([question("x")])
