"""The address of a server, the names of its model, and both as one text."""

import subprocess
import sys

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.endpoint import Access, Budget, Pace, Server, address_of, is_address, read_address
from tests.language.endpoint.kit import SOON, question
from tests.language.endpoint.scripted import said, served

URL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("asked", "came", "right"),
    [
        ("tiny", "tiny", True),
        ("tiny", None, True),
        ("tiny", "", True),
        ("tiny", "tiny@main", True),
        ("/models/tiny", "/models/tiny@main", True),
        ("tiny", "tiny@step1000", True),
        ("tiny@step1000", "tiny@step1000", True),
        ("tiny@step1000", "tiny@main", False),
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("gpt-4", "gpt-4-0613", True),
        ("gpt-4", "gpt-4o", False),
        ("gpt-4o", "gpt-4o-mini", False),
        ("gpt-4o", "gpt-4o-mini-2024-07-18", False),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku-20241022", True),
        ("claude-3-5-haiku-20241022", "claude-3-5-haiku-20250101", False),
        ("a.b", "axb", False),
        ("a.b", "axb-2024-08-06", False),
        ("tiny", "Tiny", False),
        ("tiny", "huge@tiny", False),
        ("tiny", "huge", False),
    ],
)
def test_under_which_name_an_answer_is_the_model_s(asked, came, right):
    assert Server(url=URL, model=asked).is_model(came) is right


def test_another_name_that_is_allowed():
    server = Server(url=URL, model="tiny", answers_as="/models/tiny.gguf")
    assert server.is_model("/models/tiny.gguf") and server.is_model("tiny") and not server.is_model("huge")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("127.0.0.1:8000", "is not an address"),
        ("localhost/v1", "is not an address"),
        ("ftp://host/v1", "is not an address"),
        ("http:///v1", "is not an address"),
        ("http://host:port/v1", "is not an address"),
        ("http://[::1/v1", "is not an address"),
        ("", "is not an address"),
        (f"{URL}?a=b", r"behind \? or #"),
        (f"{URL}#a", r"behind \? or #"),
        ("http://me@host/v1", "a user or a password"),
    ],
)
def test_what_is_no_address(url, problem):
    with pytest.raises(SpecError, match=f"^url: .*{problem}.*; "):
        Server(url=url, model="tiny")


@pytest.mark.parametrize("field", ["model", "messages", "prompt", "stream", "n"])
def test_further_fields_leave_the_request_alone(field):
    with pytest.raises(SpecError, match=f"^extra.{field}: is set by the request itself"):
        Server(url=URL, model="tiny", extra={field: 1})


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("Qwen/Qwen3-0.6B", f"{URL}#Qwen/Qwen3-0.6B"),
        ("llama3.1:8b", f"{URL}#llama3.1:8b"),
        ("@cf/meta/llama", f"{URL}#%40cf/meta/llama"),
        ("claude@20240620", f"{URL}#claude%4020240620"),
        ("a,b", f"{URL}#a%2Cb"),
        ("50%#1", f"{URL}#50%25#1"),
        ("%40", f"{URL}#%2540"),
        ("C:\\models\\é", f"{URL}#C:\\models\\é"),
    ],
)
def test_an_address_keeps_the_name(name, address):
    assert address_of(f" {URL}/ ", name) == address == address_of(URL, name)
    assert is_address(address)
    assert read_address(address) == (URL, name)


def test_a_name_written_by_hand():
    assert read_address(f"{URL}#@cf/meta/llama") == (URL, "@cf/meta/llama")
    for name in ("smollm2", "Qwen/Qwen3-0.6B", "./folder#1", "C:\\models\\x.gguf"):
        assert not is_address(name)


@pytest.mark.parametrize("address", [URL, f"{URL}#"])
def test_an_address_without_a_name(address):
    with pytest.raises(SpecError, match=r"^model: the address names no model; write http://HOST:PORT/v1#NAME$"):
        read_address(address)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "http://me:hidden@127.0.0.1/v1", f"{URL}?key=hidden"])
def test_an_address_that_no_server_has(url):
    with pytest.raises(SpecError, match=r"^endpoint: ") as error:
        address_of(url, "tiny")
    assert "hidden" not in str(error.value)


def test_a_model_is_asked_as_its_access_says(journal, monkeypatch):
    monkeypatch.setenv("OWN_KEY", "sk-0123456789")
    access = Access(
        key_variable="OWN_KEY",
        extra={"top_p": 0.5},
        answers_as="large",
        pace=Pace(concurrent=1),
        patience=SOON,
        budget=Budget(max_cost=1.0, price_read=10.0, price_written=10.0),
    )
    with served() as server:
        model = access.open(f"{server.url}#tiny", journal)
        model.check([question("x")])
        assert [each.text for each in model.say([question("x")])] == [said("x")]
        with pytest.raises(SpecError, match=r"^max_cost: the questions can cost"):
            model.check([question("y" * 100_000)])
    (asked,) = server.asked
    assert (asked.headers["authorization"], asked.body["model"]) == ("Bearer sk-0123456789", "tiny")
    assert asked.body["top_p"] == 0.5


def test_what_is_checked_leaves_no_file(journal):
    budget = Budget(max_cost=0, price_read=1.0, price_written=1.0)
    model = Access(budget=budget).open(f"{URL}#tiny", journal)
    with pytest.raises(SpecError, match="nothing was asked"):
        model.check([question("x")])
    assert not journal.parent.exists()


@pytest.mark.slow
def test_the_client_library_comes_late():
    text = "import sys, anchorlab.language.endpoint; print('openai' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"
