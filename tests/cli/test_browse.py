"""`anchorlab browse` writes the page once, or again and again until Ctrl-C."""

import pytest

from tests.engine.killed import stop_when
from tests.small_experiments import experiment

pytestmark = pytest.mark.usefixtures("often")


@pytest.fixture
def often(monkeypatch):
    """Reports and states after every step."""
    monkeypatch.setattr("anchorlab.training.trainer._REPORT_EVERY", 0.0)
    monkeypatch.setattr("anchorlab.training.trainer._LEAST_TRAINING_PER_KEEPING", 0)


def test_a_training_is_watched(anchorlab, workplace, monkeypatch):
    """The page is written again with the run that has begun meanwhile; the curves are in `tests/report`."""
    store, pauses, pages, one = workplace / "runs", [], [], experiment(duration=10**6)
    store.mkdir()

    def sleep(seconds):
        pauses.append(seconds)
        pages.append((store / "browse.html").read_text())
        if len(pauses) == 2:
            raise KeyboardInterrupt
        stop_when([one], store)

    monkeypatch.setattr("anchorlab.cli.studies.browse.sleep", sleep)
    said = anchorlab("browse", "--every", "20")
    assert (said.code, said.out, said.err) == (0, f"page: {store / 'browse.html'}\n", "")
    assert pauses == [20, 20]
    assert [one.cell.address in page for page in pages] == [False, True]
    assert all('<meta http-equiv="refresh" content="20">' in page for page in pages)


def test_a_pause_is_a_second_or_more(refused):
    assert refused("browse", "--every", "0") == "anchorlab: every: 0 is not a number of seconds; give 1 or more\n"
