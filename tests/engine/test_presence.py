"""Workers are seen while they live, at work or not; one who waits for workers is told when there is none."""

import os
import threading
import time

import pytest

from anchorlab.engine import Worker, run
from anchorlab.engine.folder import Folder
from anchorlab.engine.presence import Presence, anyone_at_work
from anchorlab.errors import StoreError
from anchorlab.runs import Store
from anchorlab.runs.atomic_files import read_json, write_json
from tests.engine.killed import wait_until
from tests.processes import processes
from tests.small_experiments import experiment

pytestmark = pytest.mark.nightly


def work(root):
    """A worker that waits for work until it is killed."""
    Worker(Store(root), pause=0.05).work()


class TestOneWorker:
    def test_it_is_seen_until_it_ends_and_leaves_nothing(self, tmp_path):
        one, other = Presence(tmp_path), Presence(tmp_path)
        assert not anyone_at_work(tmp_path)
        one.show()
        one.show()
        assert anyone_at_work(tmp_path) and len(list((tmp_path / "workers").iterdir())) == 1
        other.show()
        one.end()
        assert anyone_at_work(tmp_path)
        other.end()
        assert not anyone_at_work(tmp_path) and not list((tmp_path / "workers").iterdir())

    def test_it_makes_no_store(self, tmp_path):
        Presence(tmp_path / "new").show()
        assert not list(tmp_path.iterdir())

    def test_a_linked_folder_is_refused(self, tmp_path):
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "workers").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match="workers: is a link; remove it"):
            Presence(tmp_path / "store").show()
        assert not list((tmp_path / "elsewhere").iterdir())
        there = Presence(tmp_path / "elsewhere")
        there.show()
        (tmp_path / "store" / "workers").unlink()
        (tmp_path / "store" / "workers").symlink_to(tmp_path / "elsewhere" / "workers")
        assert anyone_at_work(tmp_path / "elsewhere")
        assert not anyone_at_work(tmp_path / "store")
        there.end()

    @pytest.mark.killed
    def test_one_that_is_killed_is_gone_and_the_next_clears_its_folder(self, tmp_path):
        child = processes.Process(target=work, args=(tmp_path,), daemon=True)
        child.start()
        wait_until(lambda: anyone_at_work(tmp_path), 60)
        child.kill()
        child.join()
        assert not anyone_at_work(tmp_path)
        left = list((tmp_path / "workers").iterdir())
        assert len(left) == 1
        one = Presence(tmp_path)
        one.show()
        assert not left[0].exists() and anyone_at_work(tmp_path)
        one.end()

    def test_one_of_another_machine_counts_until_its_lease_has_passed(self, tmp_path):
        one = Presence(tmp_path, lease=2.0)
        one.show()
        (claim,) = (tmp_path / "workers").glob("*/claim.json")
        said = read_json(claim, "")
        one._lease._released.set()  # it is frozen
        write_json(claim.parent, claim.name, {**said, "machine": "another", "process": 1})
        assert anyone_at_work(tmp_path)
        os.utime(claim, (time.time() - 3.0,) * 2)
        assert not anyone_at_work(tmp_path)


@pytest.mark.killed
def test_who_waits_is_told_that_nobody_works_until_somebody_does(tmp_path):
    store, asked, told = Store(tmp_path / "runs"), experiment(), []
    presence = Presence(store.root)
    folder = Folder(pause=0.02, patience=0.3, again=1.0)

    def report(status):
        told.append((status.label, status.note))

    waiting = threading.Thread(target=lambda: run([asked], store, report=report, on=folder), daemon=True)
    store.root.mkdir()
    presence.show()
    waiting.start()
    wait_until(lambda: list(store.root.rglob("plan.json")), 60)
    time.sleep(1.0)
    text = f"no worker is at work in {store.root}"
    assert not [one for one in told if "no worker" in "".join(one)]
    presence.end()  # it waited, and had no work of ours
    wait_until(lambda: told[-1] == (text, f"{text}: start one with `anchorlab worker {store.root}`"), 10)
    count = sum(text in note for _, note in told)
    assert count == 1
    wait_until(lambda: sum(text in note for _, note in told) == 2, 10)  # from time to time
    presence.show()
    wait_until(lambda: told[-1] == (asked.cell.label, ""), 10)
    presence.end()
    Worker(store, pause=0.02).work(until_empty=True)
    waiting.join(30)
    assert not waiting.is_alive() and asked.cell in store
