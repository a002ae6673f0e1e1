"""What asking may cost."""

from dataclasses import replace

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.asking.request import Request, Turn
from anchorlab.language.endpoint import Budget, Pace
from tests.language.endpoint.kit import endpoint, question
from tests.language.endpoint.scripted import Answer, served, spoken

PRICES = {"price_read": 1.0, "price_written": 10.0}
USED = {"prompt_tokens": 100, "completion_tokens": 10}  # 200 millionths
USED_COST = 200e-6
WORST = Budget(**PRICES).worst(question("10"))


def used(asked):
    return spoken(asked, usage=USED)


def questions(count):
    return [question(10 + number) for number in range(count)]


def test_the_worst_cost_is_a_token_for_every_byte_and_all_tokens_of_the_answer():
    request = question("é" * 100, tokens=50, chat=False)
    # two bytes each, and the line's end
    assert Budget(price_read=2.0, price_written=3.0).worst(request) == pytest.approx((201 * 2 + 50 * 3) / 1e6)
    assert Budget().worst(request) == 0


@pytest.mark.parametrize(
    ("turns", "most"),
    [
        # the texts with an end of line each, and a second one behind an answer; 128 for the template's own words; 16
        # for what it writes around each turn, and around the one that it begins
        (1, 4 + 1 + 128 + 16 * 2),
        (3, 3 * 4 + 1 + 2 + 1 + 128 + 16 * 4),
    ],
)
def test_a_chat_s_worst_cost_counts_what_the_template_writes(turns, most):
    request = Request(tuple(Turn("assistant" if place % 2 else "user", "four") for place in range(turns)))
    budget = Budget(price_read=1e6)
    assert budget.worst(request) == most
    assert budget.worst(replace(request, begun="It is")) == most + 5


def test_what_was_spent_is_counted(journal):
    with served(used) as server:
        speaker = endpoint(server, journal, budget=Budget(**PRICES))
        speaker.say(questions(5))
        speaker.say(questions(5))
    assert speaker.tally.cost == pytest.approx(5 * USED_COST)
    assert (speaker.tally.read, speaker.tally.written) == (500, 50)


def test_a_first_batch_that_could_cost_more_is_refused_before_asking(journal):
    with served(used) as server:
        budget = Budget(max_cost=4.99 * WORST, **PRICES)
        with pytest.raises(SpecError, match=r"^max_cost: the questions can cost .*nothing was asked$"):
            endpoint(server, journal, budget=budget).say(questions(5))
        assert server.asked == []
        endpoint(server, journal, budget=Budget(max_cost=5 * WORST, **PRICES)).say(questions(5))
        assert len(server.asked) == 5
        # what is remembered costs nothing
        endpoint(server, journal, budget=Budget(max_cost=0, **PRICES)).say(questions(5))
    assert len(server.asked) == 5


def test_a_request_that_could_exceed_the_budget_is_not_sent(journal):
    budget = Budget(max_cost=20.5 * USED_COST + WORST, **PRICES)
    with served(used) as server:
        speaker = endpoint(server, journal, budget=budget, pace=Pace(concurrent=4))
        speaker.say(questions(1))
        with pytest.raises(SpecError, match=r"^max_cost: the next request could exceed it: .*no question is"):
            speaker.say(questions(100))
        # up to the last request that fits, though four were on their way at once
        assert len(server.asked) == 21
        assert speaker.tally.cost == pytest.approx(21 * USED_COST)
        assert speaker.tally.cost <= budget.max_cost
        again = endpoint(server, journal, budget=Budget(max_cost=100 * WORST, **PRICES))
        again.say(questions(100))
    assert (again.tally.remembered, again.tally.answered) == (21, 79)
    assert server.answered == {request.turns[0].text: 1 for request in questions(100)}


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (Answer(cut=-1), 3),  # may be charged for: a dropped connection
        (Answer(body="{"), 3),  # and a malformed reply
        (Answer(500, "no"), 8),  # turned down: costs nothing
        (Answer(429, "no"), 8),
    ],
)
def test_tries_that_may_be_charged_count_in_full(journal, fault, tries):
    with served(lambda asked: fault) as server:
        speaker = endpoint(server, journal, budget=Budget(max_cost=3.5 * WORST, **PRICES))
        with pytest.raises(SpecError, match="^max_cost" if tries == 3 else "gave no answer in 8 tries"):
            speaker.say(questions(1))
    assert len(server.asked) == tries
    assert speaker.tally.cost == pytest.approx(3 * WORST if tries == 3 else 0)


@pytest.mark.parametrize("known", [{}, {"price_read": 1.0}, {"price_written": 1.0}])
def test_a_limit_without_prices_is_refused(known):
    with pytest.raises(SpecError, match=r"^price_(read|written): is not known, and max_cost cannot be kept without it"):
        Budget(max_cost=1.0, **known)


def test_what_is_free_may_have_a_limit_of_nothing(journal):
    with served() as server:
        endpoint(server, journal, budget=Budget(max_cost=0, price_read=0, price_written=0)).say(questions(3))
    assert len(server.asked) == 3
