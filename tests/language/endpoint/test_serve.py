"""A real server: transformers' own, with SmolLM2-135M."""

import json
import subprocess
import sys
import urllib.request

import pytest

from anchorlab.errors import SpecError
from anchorlab.language import pretrained
from anchorlab.language.asking import LocalSpeaker
from anchorlab.language.asking.request import Request, Turn
from anchorlab.language.endpoint import Endpoint, address_of
from tests.documents import ROOT
from tests.engine.killed import wait_until
from tests.language.endpoint.asker import question
from tests.language.endpoint.scripted import Answer, served

pytestmark = pytest.mark.slow

QUESTIONS = ["a = 7, b = a. What is the value of b?", "Who lives in the red house?", "Count to five."]
SHOTS = (Turn("user", "x = 3. What is the value of x?"), Turn("assistant", "The value of x is 3"))


def test_it_says_what_the_weights_say(serving, smollm2, journal):
    """Without the tokenizer: conversations, and texts that begin as the server's own tokenizer begins them."""
    speaker, local = Endpoint(address_of(serving, str(smollm2)), journal), LocalSpeaker(pretrained("smollm2"), False)
    requests = [Request((*SHOTS, Turn("user", text)), tokens=12) for text in QUESTIONS]
    requests += [question(text, begun="The answer is", chat=False, tokens=8) for text in QUESTIONS]
    came = speaker.say(requests)
    told = [(each.text, each.read, each.written) for each in came]
    # the server counts the token that ends a text, too
    expected = [(each.text, each.read, each.written + (each.finish == "stop")) for each in local.say(requests)]
    assert told == expected
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert {line["answered_as"] for line in lines} == {f"{smollm2}@main"}  # it writes a revision behind the name
    assert speaker.say(requests) == came and len(journal.read_text().splitlines()) == 6


@pytest.mark.nightly
def test_it_says_what_a_local_model_says_killed_resumed_and_busy(serving, smollm2, journal, tmp_path):
    """With the tokenizer at hand: conversations and plain text, begun or not, with or without a text that ends them."""
    requests = [
        Request((*SHOTS, Turn("user", text)), begun, chat=chat, tokens=10, stop=stop)
        for text in QUESTIONS
        for begun in ("", "The value of b is")
        for chat, stop in ((True, ""), (True, "."), (False, "\n"))
    ]

    def busy(asked):
        if not asked.before and len(server.asked) % 2:
            return Answer(429, {"error": {"message": "too many"}}, {"Retry-After": "0.1"})
        sent = urllib.request.Request(serving.removesuffix("/v1") + asked.path, json.dumps(asked.body).encode())
        sent.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(sent, timeout=60) as reply:
            return Answer(body=json.load(reply))

    out = tmp_path / "said.json"
    with served(busy) as server:
        command = [sys.executable, "-m", "tests.language.endpoint.asker", address_of(server.url, str(smollm2))]
        command += [str(journal), '{"tokenizer": "smollm2", "concurrent": 2}', repr(requests), str(out)]
        process = subprocess.Popen(command, cwd=ROOT)
        wait_until(lambda: server.answered.total() >= 6, 300)
        process.kill()
        assert process.wait(30) != 0 and not out.exists()
        subprocess.run(command, cwd=ROOT, check=True)
        refused = len(server.asked) - server.answered.total()
    assert refused >= 5 and server.answered.total() <= len(requests) + 2  # what was in flight may be asked twice
    came, expected = json.loads(out.read_text()), LocalSpeaker(pretrained("smollm2")).say(requests)
    assert [(each["text"], each["finish"], each["read"]) for each in came] == [
        (each.text, each.finish, each.read) for each in expected
    ]
    assert len({each.text for each in expected}) > 9


def test_it_does_not_continue_a_conversation_and_has_no_other_model(serving, smollm2, journal):
    with pytest.raises(SpecError, match=r"^endpoint: does not go on with a begun answer; .*422.*chat=False"):
        Endpoint(address_of(serving, str(smollm2)), journal).say([question(QUESTIONS[0], begun="The answer is")])
    with pytest.raises(SpecError, match=r"^model: .* says 400: Server is pinned to .*; give a name that"):
        Endpoint(address_of(serving, "huge"), journal).say([question("x")])
