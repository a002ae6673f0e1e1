"""A server that fails now and then, and one that fails for good."""

import itertools
from dataclasses import replace

import pytest

from anchorlab.errors import SpecError, StoreError
from anchorlab.language.endpoint import Endpoint, Pace, Patience, Server
from tests.language.endpoint.kit import SOON, endpoint, lines, question
from tests.language.endpoint.scripted import Answer, said, served, spoken

PASSING = {
    "limited": lambda asked: Answer(429, {"error": {"message": "too many"}}, {"Retry-After": "0.03"}),
    "failed": lambda asked: Answer(500, "<html>no</html>"),
    "overloaded": lambda asked: Answer(529, {"error": {"message": "overloaded"}}),
    "dropped": lambda asked: Answer(cut=-1),
    "truncated": lambda asked: replace(spoken(asked), cut=40),
    "late": lambda asked: replace(spoken(asked), after=1.5),
    "no json": lambda asked: Answer(body='{"choices": [{"message": {"cont'),
    "empty": lambda asked: Answer(body=""),
    "a list": lambda asked: Answer(body=[1]),
    "no choices": lambda asked: spoken(asked, choices=[]),
    "no message": lambda asked: spoken(asked, choices=[{"finish_reason": "stop"}]),
    "no text": lambda asked: spoken(asked, choices=[{"message": {"content": [{"type": "text"}]}}]),
    "an error": lambda asked: Answer(body={"error": {"message": "upstream is away", "code": 502}}),
}
KINDS = ("limited", "failed", "dropped", "late")
COUNTED = {"overloaded": "failed", "truncated": "dropped"} | {kind: kind for kind in KINDS}


@pytest.mark.slow
@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_tried_again(journal, fault):
    def script(asked):
        return PASSING[fault](asked) if asked.before < 2 else spoken(asked)

    with served(script) as server:
        speaker = endpoint(server, journal, patience=SOON.replace(timeout=1.0))
        assert [each.text for each in speaker.say([question("x")])] == [said("x")]
    assert len(server.asked) == 3
    counts = {name: getattr(speaker.tally, name) for name in (*KINDS, "malformed")}
    assert counts == {name: 2 * (name == COUNTED.get(fault, "malformed")) for name in counts}
    assert speaker.tally.answered == 1
    problem, again, answer = lines(journal)
    assert problem["problem"] == again["problem"] != ""
    assert (answer["answer"]["text"], answer["tries"]) == (said("x"), 3)


@pytest.mark.slow
def test_a_thousand_questions_with_a_tenth_of_faults(journal):
    kinds = itertools.cycle(name for name in PASSING if name != "late")

    def script(asked):
        drawn = int(said(f"{asked.text} for the {asked.before}. time")[-8:], 16)
        return PASSING[next(kinds)](asked) if drawn % 10 == 0 else spoken(asked)

    with served(script) as server:
        speaker = endpoint(server, journal, pace=Pace(concurrent=32))
        came = speaker.say([question(number) for number in range(1000)])
    assert [each.text for each in came] == [said(str(number)) for number in range(1000)]
    assert server.answered == {str(number): 1 for number in range(1000)}
    tally = speaker.tally
    failures = tally.limited + tally.failed + tally.dropped + tally.late + tally.malformed
    assert failures == len(server.asked) - 1000 > 80
    assert min(tally.limited, tally.failed, tally.dropped, tally.malformed) > 5
    assert (tally.answered, tally.absent) == (1000, 0)
    assert sum("answer" in line for line in lines(journal)) == 1000


def test_all_wait_when_the_server_asks_for_it(journal):
    def script(asked):
        if asked.text == "1" and not asked.before:
            return Answer(429, {"error": {"message": "too many"}}, {"Retry-After": "0.5"})
        return replace(spoken(asked), after=0.1)

    with served(script) as server:
        endpoint(server, journal, pace=Pace(concurrent=2)).say([question(number) for number in range(12)])
    said_so = next(asked.at for asked in server.asked if asked.text == "1")
    after = [asked.at - said_so for asked in server.asked if asked.at > said_so]
    assert len(after) >= 10
    assert sum(at < 0.5 for at in after) <= 1  # the one that went out beside it


FOR_GOOD = {
    "no key": (401, {"error": {"message": "You did not provide a key"}}, r"^key: .*OPENAI_API_KEY is not set; set it"),
    "no right": (403, {"detail": "no"}, "^key: .*is not set"),
    "no model": (404, {"error": {"message": "The model `tiny` does not exist."}}, "^model: .*404: The model `tiny`"),
    "other code": (400, {"error": {"message": "unknown", "code": "model_not_found"}}, "^model: .*models lists"),
    "pinned": (400, {"detail": "Server is pinned to 'big' model; requested 'tiny'."}, "^model: .*pinned"),
    "no path": (404, {"detail": "Not Found"}, "^endpoint: .*404: Not Found; give the address up to and with /v1"),
    "too long": (
        400,
        {"error": {"message": "maximum context\nlength is 10"}},
        "^endpoint: .*maximum context length is",
    ),
    "unpaid": (402, {"error": "pay first"}, "^endpoint: no credit is left: .*pay first"),
    "used up": (429, {"error": {"message": "quota", "code": "insufficient_quota"}}, "^endpoint: no credit is left"),
    "not a text": (418, {"error": {"message": {"a": "teapot"}}}, '^endpoint: .*418: {"a": "teapot"}'),
}


@pytest.mark.parametrize("case", FOR_GOOD)
def test_what_does_not_pass_is_one_line_and_one_request(journal, case):
    status, body, expected = FOR_GOOD[case]
    with served(lambda asked: Answer(status, body)) as server:
        speaker = endpoint(server, journal)
        with pytest.raises(SpecError, match=expected) as raised:
            speaker.say([question(number) for number in range(20)])
    assert "\n" not in str(raised.value)
    assert len(server.asked) == 1
    assert (speaker.tally.answered, speaker.tally.cost) == (0, 0.0)


def test_a_wrong_key(journal, monkeypatch):
    monkeypatch.setenv("MY_KEY", "a-key-of-mine-1234")
    said = pytest.raises(SpecError, match=r"^key: .*401: wrong; check the key in \$MY_KEY")
    with served(lambda asked: Answer(401, {"error": {"message": "wrong"}})) as server, said:
        endpoint(server, journal, key_variable="MY_KEY").say([question("x")])
    assert server.asked[0].headers["authorization"] == "Bearer a-key-of-mine-1234"


def test_no_server(journal):
    with served() as server:
        url = server.url
    asked = Endpoint(Server(url=url, model="tiny"), journal)  # waits of seconds, were there any
    with pytest.raises(SpecError, match=f"^endpoint: no server at {url} .*; start it, or check the address$"):
        asked.say([question("x")])
    nowhere = Endpoint(Server(url="http://no.such.host.invalid/v1", model="tiny"), journal)
    with pytest.raises(SpecError, match=r"^endpoint: no server at"):
        nowhere.say([question("x")])


def test_a_server_that_goes_away_is_given_up_and_gone_on_with(journal):
    with served() as server:
        speaker = endpoint(server, journal, patience=SOON.replace(tries=3))
        speaker.say([question(number) for number in range(5)])
    with pytest.raises(SpecError, match=r"gave no answer in 3 tries; the last: .*no question is asked twice"):
        speaker.say([question(number) for number in range(10)])
    assert speaker.tally.absent >= 3


def test_a_server_that_stays_broken_is_given_up(journal):
    with served(lambda asked: spoken(asked) if int(asked.text) < 5 else Answer(503, "")) as server:
        speaker = endpoint(server, journal, patience=SOON.replace(tries=3), pace=Pace(concurrent=2))
        with pytest.raises(SpecError, match="gave no answer in 3 tries; the last: 503"):
            speaker.say([question(number) for number in range(100)])
        assert len(server.asked) <= 5 + 2 * 3
        assert speaker.tally.answered == 5
        server.script = spoken
        again = endpoint(server, journal)
        again.say([question(number) for number in range(100)])
    assert (again.tally.remembered, again.tally.answered) == (5, 95)
    assert server.answered == {str(number): 1 for number in range(100)}


def test_a_wait_of_an_hour_is_not_waited(journal):
    later = Answer(429, {"error": {"message": "later"}}, {"Retry-After": "3600"})
    with served(lambda asked: later) as server, pytest.raises(SpecError, match="asks to wait 3600 s"):
        endpoint(server, journal).say([question("x")])
    assert len(server.asked) == 1


def test_another_model_s_answer(journal):
    with served(lambda asked: spoken(asked, model="huge")) as server:
        speaker = endpoint(server, journal)
        with pytest.raises(SpecError, match=r"^model: 'tiny' was asked and 'huge' answered; .*answers_as"):
            speaker.say([question(number) for number in range(20)])
        assert len(server.asked) == 1
        assert speaker.tally.models == {"huge": 1}
        assert "'huge' answered" in lines(journal)[0]["problem"]
        allowed = endpoint(server, journal, answers_as="huge")
        assert allowed.say([question("x")])[0].text == said("x")
    assert lines(journal)[-1]["answered_as"] == "huge"


def test_answers_on_their_way_are_kept_when_another_ends_the_round(journal):
    def script(asked):
        if asked.text == "3":
            return Answer(404, {"error": {"message": "no"}})
        return replace(spoken(asked), after=0.0 if asked.text == "0" else 0.3)

    with served(script) as server, pytest.raises(SpecError, match="404"):
        endpoint(server, journal, pace=Pace(concurrent=4)).say([question(number) for number in range(30)])
    assert {line["request"]["turns"][0]["text"] for line in lines(journal) if "answer" in line} == {"0", "1", "2", "4"}
    assert len(server.asked) == 5


def test_a_disk_that_takes_no_line(journal, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    with served() as server:
        monkeypatch.setattr("anchorlab.language.endpoint.journal.os.fsync", full)
        with pytest.raises(StoreError, match="cannot be written: No space left"):
            endpoint(server, journal).say([question("x")])


def test_the_client_library_is_asked_for(journal, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(SpecError, match=r"openai: is not installed; run pip install 'anchorlab\[language\]'"):
        Endpoint(Server(url="http://127.0.0.1:1/v1", model="m"), journal, patience=Patience()).say([question("x")])
