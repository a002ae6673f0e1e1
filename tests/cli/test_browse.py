"""`anchorlab browse` writes the page once, or again and again until Ctrl-C."""

import pytest

from tests.engine.conftest import often  # noqa: F401
from tests.engine.killed import stop_when
from tests.small_experiments import experiment

pytestmark = pytest.mark.usefixtures("often")


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
