"""A server that means harm: what it sends is bounded, is not followed elsewhere, and comes out as one plain line."""

import base64
import json
import tracemalloc
import zlib

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.endpoint import Budget, Server
from anchorlab.language.endpoint.client import MOST_BYTES, Client
from anchorlab.language.endpoint.secret import Secret
from tests.language.endpoint.kit import SOON, endpoint, lines, question
from tests.language.endpoint.scripted import Answer, said, served, spoken

ONCE = SOON.replace(tries=1, timeout=60.0)
DEEP = 100_000


@pytest.fixture
def peak():
    """The most memory that a test has held until now, in bytes."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def refused(script, journal, match, **settings):
    """Ask a server once and return the one line it comes to, and the server."""
    with served(script) as server, pytest.raises(SpecError, match=match) as raised:
        endpoint(server, journal, patience=ONCE, **settings).say([question("x")])
    line = str(raised.value)
    assert line.isprintable() and len(line) < 700
    return line, server


@pytest.fixture(scope="module")
def bomb():
    """A megabyte of gzip that unpacks to one of 1 GiB."""
    packer = zlib.compressobj(6, wbits=16 + zlib.MAX_WBITS)
    return b"".join([packer.compress(b" " * (1 << 20)) for _ in range(1024)]) + packer.flush()


@pytest.mark.slow
def test_a_packed_answer_is_not_unpacked(journal, bomb, peak):
    assert len(bomb) < 1.2e6
    _, server = refused(
        lambda asked: Answer(body=bomb, headers={"Content-Encoding": "gzip"}),
        journal,
        "the last: the reply is packed .gzip., though a plain one was asked for",
    )
    assert server.asked[0].headers["accept-encoding"] == "identity"
    assert peak() < 100e6


def test_an_endless_answer_is_cut_off(journal, peak):
    text = json.dumps("y" * (MOST_BYTES + 1))
    refused(lambda asked: Answer(body=text), journal, f"the last: the reply is longer than {MOST_BYTES // 2**20} MiB")
    refused(lambda asked: Answer(500, text), journal, "the reply is longer than")
    assert peak() < 12 * MOST_BYTES


@pytest.mark.parametrize("charset", ["zlib", "hex", "bz2", "idna", "utf-7", "rot13", "undefined", "nothing", "utf-16"])
@pytest.mark.parametrize("status", [200, 400])
def test_a_charset_unpacks_nothing(journal, charset, status):
    kind = {"Content-Type": f"application/json; charset={charset}"}
    body = zlib.compress(b" " * (1 << 20)) if charset == "zlib" else b'{"error": "+ADw-"}'
    refused(lambda asked: Answer(status, body, kind), journal, "^endpoint: ")
    with served(lambda asked: Answer(body=spoken(asked).body, headers=kind)) as server:
        assert endpoint(server, journal, patience=ONCE).say([question("y")])[0].text == said("y")


def test_a_long_answer_within_the_bound_is_read(journal):
    text = "y" * (MOST_BYTES - 1000)
    with served(lambda asked: spoken(asked, text)) as server:
        assert endpoint(server, journal, patience=ONCE).say([question("x")])[0].text == text


NESTED = {
    "no answer": lambda asked: Answer(body="[" * DEEP + "]" * DEEP),
    "an error in an answer": lambda asked: Answer(body='{"error": ' + "[" * DEEP + "]" * DEEP + "}"),
    "an error": lambda asked: Answer(400, '{"error": ' * DEEP + "1" + "}" * DEEP),
    "a list": lambda asked: Answer(400, '{"detail": ' + "[" * DEEP + "]" * DEEP + "}"),
    "a failure": lambda asked: Answer(500, "[" * DEEP),
}


@pytest.mark.parametrize("depth", [DEEP, 997, 990, 970, 900, 500])  # around what Python reads, and writes again
@pytest.mark.parametrize("case", NESTED)
def test_json_nested_deep_is_one_line(journal, case, depth, monkeypatch):
    monkeypatch.setattr(f"{__name__}.DEEP", depth)
    refused(NESTED[case], journal, "^endpoint: ")


def test_an_error_nested_deep_is_written_out_once(journal, monkeypatch):
    written, dumps = [], json.dumps
    monkeypatch.setattr(json, "dumps", lambda *given, **how: written.append(1) or dumps(*given, **how))
    body = '{"error": ' * 500 + '{"code": ["' + "x" * 1000 + '"]}' + "}" * 500
    refused(lambda asked: Answer(400, body), journal, '{"code": ."x')
    assert len(written) < 20  # and not at each of the 500 levels


def test_an_error_that_cannot_be_written_out_is_one_line():
    deep = []
    for _ in range(DEEP):
        deep = [deep]
    client = Client(Server(url="http://127.0.0.1:1/v1", model="tiny"), Secret(None), 1.0)
    assert client._words({"error": {"message": "", "detail": deep}}) == "words that are nested too deeply to read"


@pytest.mark.parametrize(
    "count", ["1" + "0" * 3999, "1" + "0" * 308, "1000000000000", "true", "-1", "1.5", '"7"', "NaN", "1e999"]
)
def test_a_count_that_no_tokens_have_is_not_believed(journal, count):
    def script(asked):
        body = json.dumps(spoken(asked, usage={"prompt_tokens": "COUNT", "completion_tokens": 5}).body)
        return Answer(body=body.replace('"COUNT"', count))

    priced = Budget(price_read=2.0, price_written=2.0)
    with served(script) as server:
        speaker = endpoint(server, journal, patience=ONCE, budget=priced)
        (answer,) = speaker.say([question("x")])
    assert (answer.text, answer.read, answer.written) == (said("x"), None, 5)
    assert speaker.tally.cost == priced.worst(question("x"))  # where the server does not count


def test_a_count_of_more_digits_than_are_read_is_no_answer(journal):
    body = '{"usage": {"prompt_tokens": 1' + "0" * 4999 + "}}"
    refused(lambda asked: Answer(body=body), journal, "the reply is not JSON")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(journal, monkeypatch, status):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    with served() as other:
        where = f"{other.url}/chat/completions"
        line, server = refused(
            lambda asked: Answer(status, "", {"Location": where}),
            journal,
            rf"^endpoint: .* sends questions on to {other.url}.*, which is not followed; give that address",
        )
        assert other.asked == [] and len(server.asked) == 1
    assert "very-secret" not in line


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\u2028\r\x00"
SPEAKING = {
    "an error": lambda asked: Answer(400, {"error": {"message": f"no{ESCAPES}"}}),
    "a code": lambda asked: Answer(401, {"error": {"message": "no", "code": ESCAPES}}),
    "a page": lambda asked: Answer(404, f"<html>{ESCAPES}</html>"),
    "a failure": lambda asked: Answer(503, {"detail": ESCAPES}),
    "no answer": lambda asked: Answer(body={"error": ESCAPES}),
    "no json": lambda asked: Answer(body=ESCAPES),
    "another model": lambda asked: spoken(asked, model=f"huge{ESCAPES}"),
    "a long name": lambda asked: spoken(asked, model="huge" * 100_000),
    "a redirect": lambda asked: Answer(307, "", {"Location": "http://127.0.0.1:1/\x1b[31m"}),
}


@pytest.mark.parametrize("case", SPEAKING)
def test_what_a_server_says_is_plain_text(journal, case):
    refused(SPEAKING[case], journal, "^(endpoint|model|key): ")
    for line in lines(journal):
        assert line["problem"].isprintable() and len(line["problem"]) < 700


KEY = "sk-very-secret-0123456789+/?"


@pytest.mark.parametrize("around", ["", "a", "ab", "Bearer ", "me:"])
@pytest.mark.parametrize("coded", ["standard", "urlsafe", "unpadded", "hex", "HEX"])
def test_a_key_echoed_in_another_writing_is_hidden(journal, monkeypatch, around, coded):
    monkeypatch.setenv("MY_KEY", KEY)
    whole = f"{around}{KEY}{around}".encode()
    form = {
        "standard": base64.b64encode(whole).decode(),
        "urlsafe": base64.urlsafe_b64encode(whole).decode(),
        "unpadded": base64.b64encode(whole).decode().rstrip("="),
        "hex": whole.hex(),
        "HEX": whole.hex().upper(),
    }[coded]
    quoting = Answer(400, {"error": {"message": f"seen {form} here"}})
    text, _ = refused(lambda asked: quoting, journal, "seen", key_variable="MY_KEY")
    text += journal.read_text()
    assert "***" in text
    for start in range(len(form)):  # no piece that spells more than two bytes of the key at its ends
        for end in range(start + 1, len(form) + 1):
            assert form[start:end] not in text or _spelled(form, start, end, whole) <= 2


def _spelled(form, start, end, whole):
    """How many bytes of the key a piece of the form spells."""
    bits = 4 if len(form) == 2 * len(whole) else 6
    first, last = -(-start * bits // 8), end * bits // 8
    begin = whole.index(KEY.encode())
    return min(last, begin + len(KEY)) - max(first, begin)
