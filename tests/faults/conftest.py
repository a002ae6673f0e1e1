"""The study without faults, which all tests of faults are judged by."""

import shutil

import pytest

from tests.faults.judge import judged, reference, wrong
from tests.faults.roles import Place, Said


@pytest.fixture(scope="session")
def expected(tmp_path_factory):
    return reference(tmp_path_factory.mktemp("faults") / "reference")


@pytest.fixture
def hurt_copy(expected, tmp_path):
    """A copy of the reference, which each test hurts in its own way."""
    place = Place(tmp_path / "copy")
    shutil.copytree(expected.place.folder, place.folder)
    judged(place, Said())
    assert wrong(place, expected) == []
    return place
