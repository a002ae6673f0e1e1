"""The address of a server and the name of its model, as one text."""

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.endpoint import address_of, is_address, read_address

URL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("Qwen/Qwen3-0.6B", f"{URL}#Qwen/Qwen3-0.6B"),
        ("llama3.1:8b", f"{URL}#llama3.1:8b"),
        ("@cf/meta/llama", f"{URL}#%40cf/meta/llama"),
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


@pytest.mark.parametrize(
    "url", ["https://host", "http://[::1]:8000/v1", "http://my_host.local:80/a/v1", "http://host/@a/v1"]
)
def test_what_is_an_address(url):
    assert read_address(address_of(url, "m"))[1] == "m"


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8000", "localhost/v1", "ftp://host/v1", "http:///v1", "http://host:port/v1", "http://[::1/v1"),
        *(
            "http://host:999999/v1",
            f"{URL}?key=hidden",
            f"{URL}#hidden",
            "http://hidden@host/v1",
            "http://me:hidden@host/v1",
        ),
    ],
)
def test_what_is_no_address(url):
    with pytest.raises(SpecError, match=r"^endpoint: is not an address; write http://HOST:PORT/v1") as error:
        address_of(url, "tiny")
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("address", [URL, f"{URL}#"])
def test_an_address_without_a_name(address):
    with pytest.raises(SpecError, match=r"^model: the address names no model; write http://HOST:PORT/v1#NAME$"):
        read_address(address)
