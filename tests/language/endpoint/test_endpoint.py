"""What is asked and what comes back, where nothing fails."""

import asyncio
from dataclasses import replace
from itertools import accumulate

import pytest

from anchorlab.errors import SpecError, StoreError
from anchorlab.language.asking.request import Request, Said, Speaker, Turn
from anchorlab.language.endpoint import Pace
from anchorlab.runs.lock import Lock
from tests.language.endpoint.kit import SOON, endpoint, lines, question
from tests.language.endpoint.scripted import Answer, said, served, spoken


def test_a_conversation_is_put_as_messages(journal):
    turns = (Turn("user", "a = 1. What is a?"), Turn("assistant", "1"), Turn("user", "b = 2. What is b?"))
    with served() as server:
        speaker: Speaker = endpoint(server, journal, extra={"top_p": 0.5})
        assert speaker.name == "tiny"
        request = Request(turns, temperature=0.7, seed=2**40 + 5, tokens=9)
        assert speaker.say([request]) == [Said(said("b = 2. What is b?"), "stop", 6, 3)]
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.body == {
        "model": "tiny",
        "messages": [
            {"role": "user", "content": "a = 1. What is a?"},
            {"role": "assistant", "content": "1"},
            {"role": "user", "content": "b = 2. What is b?"},
        ],
        "temperature": 0.7,
        "seed": 5,
        "max_tokens": 9,
        "top_p": 0.5,
    }
    assert "authorization" not in asked.headers


def test_one_text_is_put_as_a_completion(journal):
    request = Request((Turn("user", "Q"), Turn("assistant", "A"), Turn("user", "R")), begun="The value is", chat=False)
    with served() as server:
        (came,) = endpoint(server, journal).say([request])
    (asked,) = server.asked
    assert asked.path == "/v1/completions"
    assert asked.body == {
        "model": "tiny",
        "prompt": "Q\nA\n\nR\nThe value is",
        "temperature": 0.0,
        "max_tokens": 16,
    }
    assert came.text == said(request.text)


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("left_in", [False, True])
def test_a_text_ends_what_is_said(journal, chat, left_in):
    def script(asked):
        assert asked.body["stop"] == ["\n"]
        return spoken(asked, "it is 5\nand so on" if left_in else "it is 5")

    with served(script) as server:
        (came,) = endpoint(server, journal).say([question("x", stop="\n", chat=chat)])
    assert (came.text, came.finish) == ("it is 5", "stop")


def test_answers_come_in_the_order_of_the_requests(journal):
    with served(lambda asked: replace(spoken(asked), after=0.02 * (20 - int(asked.text)))) as server:
        came = endpoint(server, journal).say([question(number) for number in range(20)])
    assert [each.text for each in came] == [said(str(number)) for number in range(20)]


def test_equal_requests_are_put_once_and_others_are_not_taken_for_equal(journal):
    different = [
        question("x"),
        question("x", seed=1, temperature=1.0),
        question("x", seed=2, temperature=1.0),
        question("x", temperature=1.0),
        question("x", tokens=17),
        question("x", chat=False),
        question("x", stop="."),
        question("y"),
    ]
    with served() as server:
        first = endpoint(server, journal)
        *_, seeded = first.say([*different * 2, question("x", seed=3)])  # the likeliest text needs no seed
        assert len(server.asked) == len(different)
        assert seeded.text == said("x")
        assert (first.tally.answered, first.tally.remembered) == (8, 0)
        again = endpoint(server, journal)
        assert again.say(different) == first.say(different)
        assert (again.tally.answered, again.tally.remembered) == (0, 8)
        assert len(server.asked) == len(different)
        for other in ({"model": "large"}, {"extra": {"top_p": 0.5}}):
            endpoint(server, journal, **other).say(different)
        assert len(server.asked) == 3 * len(different)
    with served() as elsewhere:
        endpoint(elsewhere, journal).say(different)
        assert len(elsewhere.asked) == len(different)


def test_no_more_than_asked_for_at_once(journal):
    with served(lambda asked: replace(spoken(asked), after=0.05)) as server:
        endpoint(server, journal, pace=Pace(concurrent=3)).say([question(number) for number in range(12)])
    changes = sorted([(asked.at, 1) for asked in server.asked] + [(end, -1) for end in server.finished])
    assert max(accumulate(change for _, change in changes)) == 3


def test_progress_and_tally(journal):
    seen = []

    def script(asked):
        if asked.text == "no":
            message = {"role": "assistant", "content": None, "refusal": "I will not"}
            return spoken(asked, choices=[{"message": message, "finish_reason": "stop"}])
        if asked.text == "filtered":
            return spoken(asked, choices=[{"message": {"content": "I"}, "finish_reason": "content_filter"}])
        if asked.text == "forbidden":
            return Answer(400, {"error": {"message": "not allowed", "code": "content_filter"}})
        if asked.text == "thinks":
            return spoken(asked, choices=[{"message": {"content": None}, "finish_reason": "length"}], usage=None)
        return spoken(asked, model="tiny@main")

    with served(script) as server:
        speaker = endpoint(server, journal)
        requests = [question(text) for text in ("yes", "no", "filtered", "forbidden", "thinks")]
        came = speaker.say(requests, lambda done, total: seen.append((done, total)))
    assert [(each.text, each.finish) for each in came] == [
        (said("yes"), "stop"),
        ("I will not", "refusal"),
        ("I", "refusal"),
        ("not allowed", "refusal"),
        ("", "length"),
    ]
    assert (came[4].read, came[4].written) == (None, None)
    tally = speaker.tally
    assert (tally.answered, tally.refused, tally.empty, tally.malformed) == (5, 3, 1, 0)
    assert tally.models == {"tiny@main": 1, "tiny": 3}
    assert seen == [(number, 5) for number in range(1, 6)]


def test_every_request_and_answer_is_kept(journal):
    with served() as server:
        endpoint(server, journal, extra={"top_p": 0.5}).say([question("x", temperature=0.5, seed=3)])
    (line,) = lines(journal)
    assert line["request"] == {
        "turns": [{"role": "user", "text": "x"}],
        "begun": "",
        "chat": True,
        "temperature": 0.5,
        "seed": 3,
        "tokens": 16,
        "stop": "",
    }
    assert line["answer"] == {"text": said("x"), "finish": "stop", "read": 1, "written": 3}
    assert (line["url"], line["model"], line["answered_as"]) == (server.url, "tiny", "tiny")
    assert (line["extra"], line["tries"], line["format"]) == ({"top_p": 0.5}, 1, 1)


def test_half_a_character_is_kept(journal):
    with served(lambda asked: spoken(asked, "half \ud83d")) as server:
        first = endpoint(server, journal).say([question("x")])
        assert first[0].text == "half \ud83d"
        assert endpoint(server, journal).say([question("x")]) == first


def test_it_asks_where_a_loop_runs_already(journal):
    async def notebook(server):
        return endpoint(server, journal).say([question("x")])

    with served() as server:
        assert asyncio.run(notebook(server))[0].text == said("x")


def test_the_server_s_word_for_the_most_tokens(journal):
    def new(asked):
        if "max_tokens" in asked.body and "messages" in asked.body:
            problem = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return Answer(400, {"error": {"message": problem, "code": "unsupported_parameter"}}, after=0.05)
        return spoken(asked)

    requests = [question("text", chat=False), *(question(number) for number in range(5))]
    with served(new) as server:
        speaker = endpoint(server, journal, pace=Pace(concurrent=3))
        assert [each.text for each in speaker.say(requests[1:])] == [said(str(number)) for number in range(5)]
    assert sum("max_tokens" in asked.body for asked in server.asked) == 1
    assert [asked.body["max_completion_tokens"] for asked in server.asked[1:]] == [16] * 5
    with served(new) as server:  # where three learn it at once
        came = endpoint(server, journal, pace=Pace(concurrent=3)).say(requests)
    assert len(came) == 6


def test_a_word_that_is_learned_is_no_try(journal):
    """Two tries are allowed: one finds the server busy, the other is answered; before them it asks for another word."""
    busy = iter([True, False])

    def new(asked):
        if "max_tokens" in asked.body:
            return Answer(400, {"error": {"message": "Use 'max_completion_tokens' instead."}})
        return Answer(500, "no") if next(busy) else spoken(asked)

    with served(new) as server:
        speaker = endpoint(server, journal, patience=SOON.replace(tries=2))
        assert [each.text for each in speaker.say([question("x")])] == [said("x")]
    assert len(server.asked) == 3
    assert [line["tries"] for line in lines(journal) if "tries" in line] == [2]


@pytest.mark.parametrize("known", [None, True])
def test_a_begun_answer_is_continued_where_the_server_does(journal, known):
    def continues(asked):
        if asked.body.get("continue_final_message") and asked.body.get("add_generation_prompt"):
            return Answer(400, {"error": {"message": "Cannot set both to True."}})
        return spoken(asked, " 5" if asked.text == "The value is" else "The value was 5")

    requests = [question("x", begun="The value is"), question("y", begun="The value was"), question("z")]
    with served(continues) as server:
        came = endpoint(server, journal, continues=known).say(requests)
        assert [each.text for each in came] == [" 5", " 5", "The value was 5"]  # what is repeated is taken off
    asked = server.asked[1 if known is None else 0]
    assert len(server.asked) == (4 if known is None else 3)
    assert asked.body["messages"][-1] == {"role": "assistant", "content": "The value is"}
    assert (asked.body["continue_final_message"], asked.body["add_generation_prompt"]) == (True, False)


def ignores(asked):
    return spoken(asked)


def knows_no_such_field(asked):
    if "continue_final_message" in asked.body:
        return Answer(422, {"detail": "Unexpected fields in the request: {'continue_final_message'}"})
    return spoken(asked)


@pytest.mark.parametrize(("script", "known"), [(ignores, None), (knows_no_such_field, None), (ignores, False)])
def test_a_begun_answer_is_refused_where_the_server_does_not_continue(journal, script, known):
    with served(script) as server:
        speaker = endpoint(server, journal, continues=known)
        with pytest.raises(SpecError, match=r"does not go on with a begun answer.*chat=False"):
            speaker.say([question("x", begun="The value is")])
        assert speaker.tally.answered == 0
        assert all(asked.body.get("max_tokens") == 1 for asked in server.asked[:1])
        assert speaker.say([question("x"), question("x", begun="The value is", chat=False)])


def test_the_journal_of_another_process_is_left_alone(journal):
    journal.parent.mkdir()
    other = Lock(journal.with_name(journal.name + ".lock"))
    other.acquire()
    with served() as server:
        with pytest.raises(StoreError, match=r"in use|already open"):
            endpoint(server, journal).say([question("x")])
        assert server.asked == []
        other.release()
        endpoint(server, journal).say([question("x")])
