"""The address of a server, and the names of its model."""

import subprocess
import sys

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.endpoint import Server

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


@pytest.mark.parametrize("url", [URL, URL + "/", f" {URL} "])
def test_one_server_has_one_address(url):
    assert Server(url=url, model="tiny").url == URL


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


@pytest.mark.slow
def test_the_client_library_comes_late():
    text = "import sys, anchorlab.language.endpoint; print('openai' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"
