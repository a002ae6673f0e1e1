"""What is asked, what comes back, and what is kept."""

import asyncio
import io
import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import replace

import pytest

from anchorlab.errors import SpecError, StoreError
from anchorlab.language import pretrained
from anchorlab.language.asking import LocalSpeaker
from anchorlab.language.asking.request import Request, Said, Speaker, Turn
from anchorlab.language.endpoint import Access, Endpoint, address_of
from anchorlab.language.endpoint.wire import is_of_model
from anchorlab.runs.lock import locked
from tests.browser import until
from tests.documents import DOCS, ROOT, blocks
from tests.language.asking.bytes import tokenizer
from tests.language.endpoint.asker import question
from tests.language.endpoint.scripted import Answer, said, served, spoken
from tests.runs.tiny_trainer import held

PAGE = DOCS / "how_to" / "endpoints.md"
KEY = "sk-very-secret-0123456789"
TEN = [question(number) for number in range(10)]
BUSY = Answer(429, {"error": {"message": "too many"}}, {"Retry-After": "0.3"})


@pytest.fixture
def server():
    with served() as server:
        yield server


def endpoint(server, journal, model="tiny", **access):
    return Endpoint(f"{server.url}#{model}", journal, Access(**access))


def kept(journal):
    return [json.loads(line) for line in journal.read_text().splitlines()]


def test_a_conversation_is_sent_as_messages_and_a_text_as_a_prompt(server, journal):
    turns = (Turn("user", "a = 1. What is a?"), Turn("assistant", "1"), Turn("user", "b = 2. What is b?"))
    speaker: Speaker = endpoint(server, journal, extra={"top_p": 0.5, "max_tokens": None, "max_completion_tokens": 99})
    chat = Request(turns, temperature=0.7, seed=2**40 + 5, tokens=9, stop="\n")
    assert speaker.say([chat]) == [Said(said("b = 2. What is b?"), "stop", 6, 3)]
    text = replace(chat, begun="The value is", chat=False, temperature=0.0, stop="")
    assert endpoint(server, journal).say([text])[0].text == said(text.text)
    one, other = server.asked
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    drawn = {"temperature": 0.7, "seed": 5, "stop": ["\n"], "top_p": 0.5, "max_completion_tokens": 99}
    assert one.path == "/v1/chat/completions" and "authorization" not in one.headers
    assert one.body == {"model": "tiny", "messages": messages, **drawn}
    prompt = "a = 1. What is a?\n1\n\nb = 2. What is b?\nThe value is"
    assert other.path == "/v1/completions"
    assert other.body == {"model": "tiny", "prompt": prompt, "temperature": 0.0, "max_tokens": 9}


def test_with_a_tokenizer_all_is_sent_as_one_text(server, journal, tmp_path):
    tokenizer().save_pretrained(tmp_path)
    asked = question("Hi", begun="It is")
    endpoint(server, journal, tokenizer=str(tmp_path)).say([asked, replace(asked, chat=False)])
    assert {(one.path, one.text) for one in server.asked} == {
        ("/v1/completions", "<|im_start|>user\nHi<|endoftext|>\n<|im_start|>assistant\nIt is"),
        ("/v1/completions", "<|endoftext|>Hi\nIt is"),
    }


def message(reason="stop", **fields):
    return lambda asked: spoken(asked, choices=[{"message": {"role": "assistant", **fields}, "finish_reason": reason}])


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (message(content=None, refusal="I will not"), ("I will not", "refusal")),
        (message("content_filter", content="I"), ("I", "refusal")),
        (lambda asked: Answer(400, {"error": {"message": "no", "code": "content_filter"}}), ("", "refusal")),
        (message("length", content=None), ("", "length")),  # all its tokens were thoughts
        (message("length", content="it is 5\nand"), ("it is 5", "stop")),  # the stop text was left in
        (message(content="The value is 5"), (" 5", "stop")),  # the beginning was repeated
        (message(content="half \ud83d"), ("half \ud83d", "stop")),
    ],
)
def test_what_a_server_may_reply(journal, script, expected):
    asked = question("x", begun="The value is", stop="\n")
    with served(script) as server:
        first = endpoint(server, journal, continues=True).say([asked])
        assert (first[0].text, first[0].finish) == expected
        assert endpoint(server, journal, continues=True).say([asked]) == first  # as it was kept
        assert len(server.asked) == 1


def test_equal_requests_are_sent_once_and_others_are_not_taken_for_equal(server, journal):
    drawn = [question("x", temperature=1.0, seed=seed) for seed in range(3)]
    different = [*drawn, question("x"), question("x", tokens=17), question("x", chat=False), question("x", stop=".")]
    *_, seeded = endpoint(server, journal).say([*different * 2, question("x", seed=3)])  # the likeliest needs no seed
    assert seeded.text == said("x") and len(server.asked) == len(different)
    endpoint(server, journal, timeout=9.0, concurrent=1).say(different)
    assert len(server.asked) == len(different)
    endpoint(server, journal, model="large").say(different)
    endpoint(server, journal, extra={"top_p": 0.5}).say(different)
    assert len(server.asked) == 3 * len(different)


def test_answers_of_version_0_2_are_read(journal):
    journal.parent.mkdir()
    key, answer = "dfd00ec95ad58a4a3f6ab97fdaf592f9", {"text": "5", "finish": "stop", "read": 1, "written": 3}
    tried = {"format": 1, "at": "2026-11-01T10:00:00.000+00:00", "key": key, "request": {}}
    lines = [tried | {"problem": "500: no"}, tried | {"answer": answer, "answered_as": "tiny", "tries": 2}]
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    speaker = Endpoint("http://127.0.0.1:8000/v1#tiny", journal, Access(extra={"top_p": 0.5}))
    assert speaker.say([question("x", seed=3)]) == [Said("5", "stop", 1, 3)]


def test_answers_come_in_order_and_few_at_once_at_a_rate_and_progress_is_told(journal):
    seen, running = [], []

    def script(asked):
        running.append(len(server.asked) - server.answered.total())
        return replace(spoken(asked), after=0.02 * (10 - int(asked.text)))

    async def cell():  # of a notebook
        return endpoint(server, journal, concurrent=3).say(TEN[:2])

    with served(script) as server:
        assert asyncio.run(cell())[0].text == said("0")
        came = endpoint(server, journal, concurrent=3).say(TEN, lambda done, total: seen.append((done, total)))
    assert [each.text for each in came] == [said(str(number)) for number in range(10)]
    assert seen == [(number, 10) for number in range(3, 11)] and max(running) == 3
    with served() as server:
        endpoint(server, journal.with_name("rated"), requests_a_minute=600).say(TEN[:6])
    assert server.asked[-1].at - server.asked[0].at > 5 * 0.1 * 0.9


@pytest.mark.parametrize("trouble", [BUSY, Answer(500, "<html>"), Answer(dropped=True), Answer(body={}, after=1.0)])
def test_a_busy_or_failing_server_is_waited_for(journal, trouble):
    with served(lambda asked: trouble if not asked.before and asked.text == "3" else spoken(asked)) as server:
        came = endpoint(server, journal, timeout=0.7).say(TEN)
    assert [each.text for each in came] == [said(str(number)) for number in range(10)]
    assert len(server.asked) == 11
    if trouble is BUSY:  # it is not asked again before it allows
        first, second = (one.at for one in server.asked if one.text == "3")
        assert second - first >= 0.3


def test_a_slow_server_needs_more_seconds(journal):
    with (
        served(lambda asked: replace(spoken(asked), after=1.0)) as server,
        pytest.raises(SpecError, match=r"^endpoint: .* Request timed out; give it more seconds \(timeout\)"),
    ):
        endpoint(server, journal, timeout=0.1, tries=1).say(TEN[:1])


def test_a_server_that_stays_busy_or_is_not_there_is_given_up(journal):
    with served(lambda asked: BUSY if asked.text == "7" else spoken(asked)) as server:
        with pytest.raises(SpecError, match=r"^endpoint: .* says 429: too many; run it again later; no"):
            endpoint(server, journal, tries=2, concurrent=1).say(TEN)
        assert len(server.asked) == 9 and len(kept(journal)) == 7
        server.script = spoken
        endpoint(server, str(journal)).say(TEN)
    assert server.answered == {str(number): 1 for number in range(10)}
    with served() as server:
        pass
    began = time.monotonic()
    with pytest.raises(SpecError, match=rf"^endpoint: no answer from {server.url}: Connection error; start it"):
        endpoint(server, journal).say(TEN)
    assert time.monotonic() - began < 5


def error(message, **fields):
    return {"error": {"message": message, **fields}}


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (401, error("no key\x1b[2J"), r"^key: .* says 401: no key\\x1b\[2J; set the key in \$OPENAI_API_KEY$"),
        (404, error("The model `tiny` does not exist."), "^model: .* 404: The model .*; give a name that .*/models"),
        (400, error("unknown", code="model_not_found"), "^model: .* 400: unknown; give a name"),
        (404, {"detail": "Not Found"}, "^endpoint: .* 404: Not Found; give the address up to and with /v1"),
        (400, error("at most\n10 tokens"), "^endpoint: .* 400: at most 10 tokens; change the request"),
        (402, {"error": "pay first"}, "^endpoint: .* 402: pay first; run it again later"),
        (429, error("an hour"), "^endpoint: .* 429: an hour; run it again later"),
        (200, "<html>welcome</html>", "^endpoint: .* replied without an answer"),
        (200, "[" * 100_000, "^endpoint: .* replied without an answer"),
        (200, {"choices": []}, "^endpoint: .* replied without an answer"),
        (200, {"choices": [{"message": {"content": [1]}}]}, "^endpoint: .* replied without an answer"),
    ],
)
def test_an_error_is_one_line_and_is_not_kept(journal, status, body, told):
    answer = Answer(status, body, {"Retry-After": "3600"})  # for which the client does not wait
    with served(lambda asked: answer) as server, pytest.raises(SpecError, match=told) as raised:
        endpoint(server, journal, concurrent=1).say(TEN)
    assert str(raised.value).isprintable() and len(server.asked) == 1 and kept(journal) == []


@pytest.mark.parametrize(
    ("model", "right", "wrong"),
    [
        ("tiny", ("tiny", "", "tiny@main", "tiny@step1000"), ("Tiny", "huge", "huge@tiny", "tiny-2")),
        ("tiny@step1000", ("tiny@step1000",), ("tiny@main",)),
        ("gpt-4o", ("gpt-4o-2024-08-06", "gpt-4o-0613"), ("gpt-4o-mini", "gpt-4o-mini-2024-07-18")),
        ("claude-3-5-haiku-latest", ("claude-3-5-haiku-20241022",), ("claude-3-5-haiku",)),
        ("claude-3-5-haiku-20241022", (), ("claude-3-5-haiku-20250101",)),
        ("a.b", (), ("axb-2024-08-06",)),
    ],
)
def test_under_which_name_an_answer_is_the_model_s(model, right, wrong):
    assert all(is_of_model(name, model) for name in right) and not any(is_of_model(name, model) for name in wrong)


def test_another_model_s_answer(journal):
    with served(lambda asked: spoken(asked, model="huge")) as server:
        with pytest.raises(SpecError, match=r"^model: 'tiny' was asked and 'huge' answered; .*answers_as"):
            endpoint(server, journal).say(TEN[:1])
        assert kept(journal) == []
        endpoint(server, journal, answers_as="huge").say(TEN[:1])
    assert kept(journal)[0]["answered_as"] == "huge"


@pytest.mark.parametrize("known", [None, True])
def test_a_begun_answer_is_continued_where_the_server_does(journal, known):
    def continues(asked):
        if asked.body.get("continue_final_message") and asked.body.get("add_generation_prompt"):
            return Answer(400, {"error": {"message": "Cannot set both to True."}})
        return spoken(asked, " 5")

    with served(continues) as server:
        speaker = endpoint(server, journal, continues=known)
        assert [each.text for each in speaker.say([question("x", begun="The value is"), question("z")])] == [" 5", " 5"]
        speaker.say([question("y", begun="The value is")])  # it is not asked what it can again
    assert len(server.asked) == (4 if known is None else 3)
    asked = next(one for one in server.asked if one.body.get("add_generation_prompt") is False)
    assert asked.body["messages"][-1] == {"role": "assistant", "content": "The value is"}
    assert asked.body["continue_final_message"] is True


def knows_no_such_field(asked):
    unknown = Answer(422, {"detail": "Unexpected fields in the request: {'continue_final_message'}"})
    return unknown if "continue_final_message" in asked.body else spoken(asked)


@pytest.mark.parametrize(("script", "known"), [(spoken, None), (knows_no_such_field, None), (spoken, False)])
def test_a_begun_answer_is_refused_where_the_server_does_not_continue(journal, script, known):
    with served(script) as server:
        speaker = endpoint(server, journal, continues=known)
        with pytest.raises(SpecError, match=r"^endpoint: .*does not go on with a begun answer.*chat=False"):
            speaker.say([question("x", begun="The value is")])
        assert kept(journal) == [] and len(server.asked) <= 2
        assert speaker.say([question("x"), question("x", begun="The value is", chat=False)])


@pytest.mark.parametrize("end", ["torn", "garbage\n{}\n[1]\n", '{"key": "a", "answer": {"text": 7}}\n'])
def test_a_line_that_cannot_be_read_is_asked_again(server, journal, end):
    endpoint(server, journal, concurrent=1).say(TEN)
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]) + (lines[-1][:40] if end == "torn" else end))
    for _ in range(2):
        assert endpoint(server, journal).say(TEN)[9].text == said("9")
    assert [one.text for one in server.asked[10:]] == ["9"]


def test_a_journal_that_cannot_be_written(server, journal, monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    journal.parent.mkdir()
    with held(lambda: locked(journal.with_name(f"{journal.name}.lock"))), pytest.raises(StoreError, match="in use"):
        endpoint(server, journal).say(TEN)
    journal.symlink_to(journal.with_name("elsewhere"))
    with pytest.raises(StoreError, match="is a link"):
        endpoint(server, journal).say(TEN)
    assert server.asked == [] and not journal.exists()
    journal.unlink()
    monkeypatch.setattr("pathlib.Path.open", lambda *_, **how: Full())
    with pytest.raises(StoreError, match=r"answers.jsonl: cannot be written: No space left"):
        endpoint(server, journal).say(TEN)


def test_a_key_goes_to_its_server_alone(server, journal, monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-service")
    monkeypatch.setenv("MY_KEY", f"{KEY}\n")
    away = Answer(307, "", {"Location": f"{server.url}/chat/completions"})
    with served(lambda asked: away if asked.text == "1" else spoken(asked)) as first:
        speaker = endpoint(first, journal, key_variable="MY_KEY")
        speaker.say(TEN)
        assert {one.headers["authorization"] for one in first.asked} == {f"Bearer {KEY}"}
        first.script = lambda asked: Answer(401, {"error": {"message": "wrong"}})
        with pytest.raises(SpecError, match=r"^key: .* says 401: wrong; set the key in \$MY_KEY$"):
            speaker.say([question("x")])
        endpoint(server, journal, key_variable="NO_KEY").say(TEN)
    assert len(server.asked) == 11 and not any("authorization" in one.headers for one in server.asked)
    shown = [caplog.text, repr(vars(speaker)), *(path.read_text() for path in journal.parent.iterdir())]
    assert not any(KEY in text for text in shown)


@pytest.mark.parametrize("value", ["new\nline-0123", "schlüssel-0123", "nul\x7f-0123"])
def test_a_key_that_no_header_can_carry_is_not_shown(server, journal, monkeypatch, value):
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(SpecError, match=r"^key: \$MY_KEY holds signs that no key has; set it to the key alone$"):
        endpoint(server, journal, key_variable="MY_KEY").say(TEN)


def test_the_client_library_is_asked_for(journal, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(SpecError, match=r"openai: is not installed; run pip install 'anchorlab\[language\]'"):
        Endpoint("http://127.0.0.1:1/v1#m", journal)
    text = "import sys, anchorlab.language.endpoint; print('openai' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", text], text=True) == "False\n"


@pytest.mark.killed
@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_what_was_answered_before_a_kill_is_not_asked_again(journal, tmp_path, sent):
    """Of 300 questions a tenth finds the server busy; the process is killed when 100 and 200 are answered."""

    def script(asked):
        busy = not asked.before and asked.text.endswith("7")
        return replace(BUSY, headers={"Retry-After": "0.02"}) if busy else replace(spoken(asked), after=0.03)

    out, requests = tmp_path / "said.json", repr([question(number) for number in range(300)])
    with served(script) as server:
        command = [sys.executable, "-m", "tests.language.endpoint.asker", f"{server.url}#tiny", str(journal), "{}"]
        command += [requests, str(out)]
        for so_many in (100, 200):
            process = subprocess.Popen(command, cwd=ROOT)
            until(lambda so_many=so_many: server.answered.total() >= so_many, 180)
            process.send_signal(sent)
            assert process.wait(10) != 0  # in no time, though requests are in flight
        assert subprocess.run(command, cwd=ROOT).returncode == 0
    assert [one["text"] for one in json.loads(out.read_text())] == [said(str(number)) for number in range(300)]
    twice = Counter(server.answered) - Counter({str(number): 1 for number in range(300)})
    assert set(server.answered) == {str(number) for number in range(300)} and twice.total() <= 2 * 8
    assert len(server.asked) <= 300 + 30 + 2 * 8


@pytest.mark.nightly
@pytest.mark.usefixtures("smollm2")
def test_the_page_on_servers_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with served() as server:
        code = "\n".join(blocks(PAGE, "python")).replace("http://127.0.0.1:8000/v1", server.url)
        assert "quick-unbegun@" in code
        exec(compile(code.replace("quick-unbegun@", "smoke@"), PAGE.name, "exec"), {})
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "0.0 0.25"
    of_study = [file.read_text().splitlines() for file in (tmp_path / "runs" / "answers").glob("*.jsonl")]
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 150
    assert len(server.asked) == 150 + sum(map(len, of_study)) and of_study


# A real server: transformers' own, with SmolLM2-135M.
QUESTIONS = ["a = 7, b = a. What is the value of b?", "Who lives in the red house?", "Count to five."]
SHOTS = (Turn("user", "x = 3. What is the value of x?"), Turn("assistant", "The value of x is 3"))


@pytest.mark.slow
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
@pytest.mark.slow
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
        until(lambda: server.answered.total() >= 6, 300)
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


@pytest.mark.slow
def test_it_does_not_continue_a_conversation_and_has_no_other_model(serving, smollm2, journal):
    with pytest.raises(SpecError, match=r"^endpoint: does not go on with a begun answer; .*422.*chat=False"):
        Endpoint(address_of(serving, str(smollm2)), journal).say([question(QUESTIONS[0], begun="The answer is")])
    with pytest.raises(SpecError, match=r"^model: .* says 400: Server is pinned to .*; give a name that"):
        Endpoint(address_of(serving, "huge"), journal).say([question("x")])
