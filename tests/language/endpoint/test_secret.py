"""A key is sent to its server and is nowhere else: no file, no log, no message, whatever the server sends back."""

import logging
import pickle
import traceback
from urllib.parse import quote

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.endpoint import Server
from anchorlab.language.endpoint.secret import read_secret
from tests.language.endpoint.kit import SOON, endpoint, question
from tests.language.endpoint.scripted import Answer, served, spoken

KEYS = ["sk-very-secret-0123456789", 'odd"key\\with/signs%+0123', "0123456789"]


def echo(asked):
    return asked.headers["authorization"]


ECHOES = {
    "answer": lambda asked: spoken(asked, f"you sent {echo(asked)}"),
    "completion": lambda asked: spoken(asked, f"you sent {echo(asked)}"),
    "refusal": lambda asked: spoken(asked, choices=[{"message": {"content": None, "refusal": echo(asked)}}]),
    "filtered": lambda asked: Answer(400, {"error": {"message": echo(asked), "code": "content_filter"}}),
    "another model": lambda asked: spoken(asked, model=echo(asked)),
    "unauthorised": lambda asked: Answer(401, {"error": {"message": f"wrong: {echo(asked)}", "code": echo(asked)}}),
    "unknown": lambda asked: Answer(404, {"detail": [{"loc": echo(asked)}]}),
    "a page": lambda asked: Answer(400, f"<html>{echo(asked)}</html>"),
    "limited": lambda asked: Answer(429, {"error": echo(asked)}),
    "failed": lambda asked: Answer(500, f"trace: {quote(echo(asked))}"),
    "malformed": lambda asked: Answer(body=f"no json: {echo(asked)}"),
    "an error": lambda asked: Answer(body={"error": {"message": echo(asked)}}),
    "a header": lambda asked: Answer(429, "", {"Retry-After": echo(asked)}),
    "cut": lambda asked: Answer(body=echo(asked) * 10, cut=50),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("case", ECHOES)
def test_a_server_that_echoes_the_key(journal, monkeypatch, caplog, capfd, key, case):
    monkeypatch.setenv("MY_KEY", key)
    # the transport's own log names the headers of a reply, never those of a request
    caplog.set_level(logging.INFO if case == "a header" else logging.DEBUG)
    shown = []
    with served(ECHOES[case]) as server:
        speaker = endpoint(server, journal, key_variable="MY_KEY", patience=SOON.replace(tries=2))
        try:
            shown.append(repr(speaker.say([question("x", chat=case != "completion")])))
        except SpecError as error:
            shown += [str(error), repr(error), pickle.dumps(error).decode("latin-1")]
            # with the variables of every frame but this one, as some tools show them, and the errors behind it
            error.with_traceback(error.__traceback__.tb_next)
            shown += traceback.TracebackException.from_exception(error, capture_locals=True).format()
    assert server.asked[0].headers["authorization"] == f"Bearer {key}"
    shown += [repr(vars(speaker)), repr(speaker.tally), caplog.text, *capfd.readouterr()]
    shown += [file.read_text() for file in journal.parent.rglob("*") if file.is_file()]
    assert sorted(file.name for file in journal.parent.rglob("*")) == [journal.name, f"{journal.name}.lock"]
    for form in (key, quote(key), quote(key, safe=""), repr(key)[1:-1], key.replace("\\", "\\\\").replace('"', '\\"')):
        assert not any(form in text for text in shown)
    assert any("***" in text for text in shown) or case in ("a header", "cut")


def test_a_key_in_the_address_is_refused_and_not_shown(journal):
    for url in (f"https://me:{KEYS[0]}@host/v1", f"https://{KEYS[0]}@host/v1", f"https://host/v1?key={KEYS[0]}"):
        with pytest.raises(SpecError, match="environment") as raised:
            Server(url=url, model="tiny")
        shown = traceback.TracebackException.from_exception(raised.value).format(chain=True)
        assert KEYS[0] not in "".join(shown)


def test_a_key_given_for_the_variable_s_name_is_not_shown():
    for key in (KEYS[0], "gsk_0123456789abc", "abcdef0123456789"):
        with pytest.raises(SpecError, match=r"^key_variable: is not the name of an environment variable") as raised:
            Server(url="http://host/v1", model="tiny", key_variable=key)
        assert key not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("value", ["two words 0123", "new\nline-0123", "schlüssel-0123", "nul\x7f-0123"])
def test_a_key_that_no_header_can_carry_is_not_shown(monkeypatch, value):
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(SpecError, match=r"^key: \$MY_KEY holds characters that no key has") as raised:
        read_secret("MY_KEY")
    assert value not in str(raised.value)


def test_white_space_around_a_key_is_no_part_of_it(monkeypatch):
    monkeypatch.setenv("MY_KEY", f" {KEYS[0]}\n")
    assert read_secret("MY_KEY").value == KEYS[0]
    monkeypatch.setenv("MY_KEY", " ")
    assert read_secret("MY_KEY").value is None


def test_a_placeholder_does_not_spoil_the_text(monkeypatch, journal):
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    with served(lambda asked: spoken(asked, "the EMPTY set")) as server:
        assert endpoint(server, journal).say([question("x")])[0].text == "the EMPTY set"


def test_a_key_is_not_pickled(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEYS[0])
    with pytest.raises(TypeError, match="not written"):
        pickle.dumps(read_secret("MY_KEY"))


def test_the_same_question_under_another_key_is_remembered(journal, monkeypatch):
    with served() as server:
        for key in KEYS:
            monkeypatch.setenv("OPENAI_API_KEY", key)
            endpoint(server, journal).say([question("x")])
    assert len(server.asked) == 1
