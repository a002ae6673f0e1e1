"""Slows training in the process that imports this, so that a test meets it at work: many states, each with a pause."""

import os
import time

import tests.small_experiments  # noqa: F401 - registers the test's own modules
from anchorlab.training import trainer

PAUSE = 0.01  # seconds

os.fsync = lambda descriptor: None
trainer._LEAST_TRAINING_PER_KEEPING = 0
_state = trainer.Session._state


def _slow_state(session):
    time.sleep(PAUSE)
    return _state(session)


trainer.Session._state = _slow_state
