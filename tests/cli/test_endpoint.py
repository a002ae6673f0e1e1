"""Models behind servers on the command line: `anchorlab study STUDY --endpoint URL --model NAME`."""

import json
import re
from collections import Counter

import pytest

pytest.importorskip("openai")

from anchorlab.tasks.retrieval.prompts.reading import read
from tests.language.endpoint.scripted import Answer, served, spoken

STUDY = ("study", "retrieval/language-models", "--json")
SMOKE = (*STUDY, "--profile", "smoke")
KEY = "sk-very-secret-0123456789"
NAME = "@cf/meta/llama-3.1:8b"  # as a service writes names
PATTERNS = {"functions": r"\(", "kingdoms": "believe", "relatives": "works as", "lives-with": "lives"}


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def knowing(asked):
    """Answers right, by the parser that does not know how questions are made."""
    text = asked.text.rstrip("\n")
    formulation = next((name for name, pattern in PATTERNS.items() if re.search(pattern, text)), "equations")
    return spoken(asked, f" {read(formulation, text).answer}")


def at(url, name=NAME):
    return ("--endpoint", url, "--model", name)


def test_a_model_behind_a_server_is_studied_and_not_asked_again(anchorlab, workplace, monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", KEY)
    command = (*SMOKE, "--key-variable", "SERVICE_KEY", "--concurrent", "4")
    with served(knowing) as server:
        found = anchorlab(*command, *at(server.url))
        assert (found.code, found.err) == (0, "")
        assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
        assert {asked.body["model"] for asked in server.asked} == {NAME}
        assert set(server.answered.values()) == {1}
        arrived = len(server.asked)
        again = anchorlab(*command, *at(f"{server.url}/"))  # the same server
        assert len(server.asked) == arrived
    first, second = json.loads(found.out), json.loads(again.out)
    # of one question each, the interval of a right answer begins at 0.21: below it lies guessing among 16 alone
    assert [one["value"] for one in first["claims"]] == [1.0] * 6 + [1 / 5]
    assert first["claims"] == second["claims"]
    assert first["provenance"]["model"] == f"{NAME} at {server.url}"
    files = [path for path in workplace.rglob("*") if path.is_file()]
    assert {"report.html", "findings.json"} <= {path.name for path in files}
    assert {path.parent.name for path in files if path.name == "report.html"} == {
        f"smoke@http%3A%2F%2F127.0.0.1%3A{server.port}%2Fv1%23%2540cf%2Fmeta%2Fllama-3.1%3A8b"
    }
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_what_is_shown_of_a_model_behind_a_server(anchorlab, workplace, monkeypatch):
    monkeypatch.setattr("anchorlab.progress.FIRST", 0.0)
    with served(knowing) as server:
        shown = anchorlab(*SMOKE[:2], "--profile", "smoke", *at(server.url))
    listed = anchorlab("claims", "retrieval/language-models", "--json")
    assert (shown.code, listed.code) == (0, 0)
    assert f"{NAME} at {server.url}" in " ".join(shown.out.split())
    assert shown.err.startswith(f"asking {NAME}: retrieval/equations\n")
    page = next(workplace.rglob("report.html")).read_text()
    assert f"{NAME} at {server.url}" in page and "Candidates by likelihood" not in page
    # no weights, so no control with random ones
    assert {one["untrained"] for one in json.loads(listed.out)} == {None}


@pytest.mark.slow
def test_models_here_and_behind_a_server_are_columns(anchorlab, workplace):
    with served(knowing) as server:
        two = anchorlab(*SMOKE, *at(server.url, f"{NAME},other"))
        asked = len(server.asked)
        mixed = anchorlab(*SMOKE, "--model", f"tiny,{server.url}#{NAME}")
        assert len(server.asked) == asked  # all were answered
    assert (two.code, mixed.code) == (0, 0)
    assert Counter(one.body["model"] for one in server.asked) == {NAME: asked / 2, "other": asked / 2}
    models = json.loads(mixed.out)["provenance"]["model"]
    assert models.startswith("tiny, ") and models.endswith(f" parameters; {NAME} at {server.url}")


@pytest.mark.slow
def test_quick_without_a_beginning_needs_no_server_that_goes_on(anchorlab):
    with served(knowing) as server:
        found = anchorlab(*STUDY, "--profile", "quick-unbegun", "--concurrent", "16", *at(server.url))
    assert [one["value"] for one in json.loads(found.out)["claims"]] == [1.0] * 7
    assert len(server.asked) == len({one.text for one in server.asked}) > 400
    assert {one.path for one in server.asked} == {"/v1/chat/completions"}
    assert not [one for one in server.asked if "continue_final_message" in one.body]


def test_after_a_server_failed_the_study_goes_on(anchorlab):
    with served(lambda asked: knowing(asked) if len(server.asked) <= 7 else Answer(401, "no")) as server:
        stopped = anchorlab(*SMOKE, "--concurrent", "1", *at(server.url))
        assert (stopped.code, stopped.err.count("\n")) == (2, 1)
        assert server.answered.total() == 7
        server.script = knowing
        assert anchorlab(*SMOKE, *at(server.url)).code == 0
    assert set(server.answered.values()) == {1}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(401, {"error": {"message": "no key"}}), "says 401: no key; set the key in $OPENAI_API_KEY"),
        (Answer(404, {"error": {"message": f"The model {NAME} does not exist", "code": "model_not_found"}}),
         "/models lists"),
    ],
)  # fmt: skip
def test_what_a_server_turns_down(anchorlab, answer, told):
    with served(lambda asked: answer) as server:
        said = anchorlab(*SMOKE, "--concurrent", "1", *at(server.url))
        assert told in said.err
        assert (said.code, said.out, said.err.count("\n"), len(server.asked)) == (2, "", 1, 1)


def test_a_server_that_is_not_there(anchorlab):
    with served() as server:
        pass
    said = anchorlab(*SMOKE, *at(server.url))
    assert f"endpoint: no answer from {server.url}: " in said.err and "start it, or check the address" in said.err
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)


URL = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*SMOKE, "--endpoint", URL), "model: the address names no model; write http://HOST:PORT/v1#NAME"),
        ((*SMOKE, *at("127.0.0.1:8000")), "endpoint: is not an address; write http://HOST:PORT/v1"),
        ((*SMOKE, *at("ftp://127.0.0.1/v1")), "endpoint: is not an address; write http://HOST:PORT/v1"),
        ((*SMOKE, *at("http://127.0.0.1:999999/v1")), "endpoint: is not an address; write http://HOST:PORT/v1"),
        ((*SMOKE, *at("http://me:hidden@127.0.0.1/v1")), "endpoint: is not an address; write http"),
        ((*SMOKE, "--model", "http://me:hidden@127.0.0.1/v1#x"), "endpoint: is not an address; write http"),
        ((*SMOKE, "--model", URL), "model: the address names no model; write http://HOST:PORT/v1#NAME"),
        ((*SMOKE, *at(URL), "--revision", "main"), "revision: a model behind a server has none; leave it out"),
        ((*SMOKE, *at(URL), "--download"), "download: is for models on the hub, not for one at a server"),
        ((*SMOKE, *at(URL), "--key-variable", "sk-123"),
         "anchorlab: key-variable: is not the name of a variable; give the name"),
        ((*SMOKE, "--model", "smollm2", "--continues"), "continues: is for models behind servers"),
        ((*SMOKE, *at(URL), "--concurrent", "0"), "concurrent: input should be greater than or equal to 1, got 0"),
        ((*SMOKE, *at(URL), "--requests-a-minute", "0"), "requests-a-minute: input should be greater than 0"),
        ((*SMOKE, *at(URL), "--timeout", "-1"), "timeout: input should be greater than 0"),
        ((*SMOKE, *at(URL), "--extra", "{"), "extra: is not valid JSON"),
        ((*SMOKE, *at(URL), "--tokenizer", "/no/folder"),
         "tokenizer: there is no tokenizer /no/folder on this machine"),
        (("study", "language/heads", *at(URL)), "endpoint: this study needs the model's weights; give a model on this"),
        (("study", "language/along-training", *at(URL)), "endpoint: this study needs the model's weights"),
        (("study", "anchor/identity", *at(URL)), "model: the study opens no pretrained model"),
        (("show", "retrieval/equations", "--task.steps", "10000"), "steps"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_nothing_is_sent(refused, arguments, told):
    said = refused(*arguments)
    assert told in said and "hidden" not in said
