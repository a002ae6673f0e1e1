"""Signals during training wait for the end of a step."""

import os
import signal
import threading

import pytest

from anchorlab.training.signals import DelayedSignals


@pytest.fixture(autouse=True)
def put_back():
    found = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert before == {number: signal.getsignal(number) for number in before}
    signal.signal(signal.SIGINT, found)


def test_ctrl_c_waits_until_it_is_delivered():
    reached = False
    with pytest.raises(KeyboardInterrupt), DelayedSignals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.waiting == signal.SIGINT
        reached = True
        signals.deliver()
        raise AssertionError("it was not delivered")
    assert reached


def test_what_was_not_delivered_is_so_at_the_end():
    with pytest.raises(KeyboardInterrupt), DelayedSignals():
        os.kill(os.getpid(), signal.SIGINT)


def test_a_handler_that_returns_lets_training_go_on_and_the_next_signal_waits_too():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with DelayedSignals() as signals:
            for count in (1, 2):
                os.kill(os.getpid(), signal.SIGTERM)
                assert len(heard) == count - 1
                signals.deliver()
                assert len(heard) == count and signals.waiting is None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_that_raises_an_error_is_called_once():
    heard = []

    def end(number, frame):
        heard.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(KeyboardInterrupt), DelayedSignals() as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            signals.deliver()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with DelayedSignals() as signals:
            os.kill(os.getpid(), signal.SIGINT)
            assert signals.waiting is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_delays_nothing():
    seen = []

    def enter():
        with DelayedSignals():
            seen.append(signal.getsignal(signal.SIGINT))

    usual = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [usual]
