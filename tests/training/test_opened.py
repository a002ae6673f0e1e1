"""Runs of a store, opened by address and by conditions."""

import pytest

import anchorlab as al
from anchorlab.engine import run
from anchorlab.errors import SpecError, StoreError
from anchorlab.runs import Store
from tests.small_experiments import experiment


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of two and of four steps, and one that has not begun."""
    store = Store(tmp_path_factory.mktemp("store"))
    found = run([experiment(duration=steps) for steps in (2, 4)], store, workers=1)
    with store.open(experiment(duration=6).cell):
        pass
    return {one.experiment.steps: one.run.address for one in found}, store


def test_by_the_address_that_commands_print(runs):
    addresses, store = runs
    for steps, address in addresses.items():
        assert al.run(address[:8], store).experiment.steps == steps
        assert al.run(address, str(store.root)).metric("loss")["step"].max() == steps


def test_by_conditions(runs):
    addresses, store = runs
    assert {one.run.address for one in al.find_runs(store=store)} == {*addresses.values()}
    assert [one.experiment.steps for one in al.find_runs("recipe.duration>3", store=store)] == [4]


def test_what_cannot_be_opened(runs):
    _, store = runs
    with pytest.raises(StoreError, match="no run begins with 'zz'"):
        al.run("zz", store)
    with pytest.raises(StoreError, match="not finished"):
        al.run(experiment(duration=6).cell.address, store)
    with pytest.raises(SpecError, match=r"^address: should be text, got 3; write al\.run"):
        al.run(3, store)


def test_a_raw_run_and_a_store_say_what_opens_a_run(runs):
    addresses, store = runs
    with pytest.raises(SpecError, match=r"^cell: .*; open runs by `al\.run\(ADDRESS\)`"):
        store.open(addresses[2])
    raw = store.find(addresses[2])
    with pytest.raises(AttributeError, match=rf"al\.run\('{addresses[2]}', STORE\) has \.metric"):
        _ = raw.metric
    assert not hasattr(raw, "anything")
