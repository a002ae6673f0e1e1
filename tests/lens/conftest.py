"""Models that are built by hand, for all tests of the lens."""

import pytest

from tests.lens.hand_built import identity_solver, stacked


@pytest.fixture(scope="module")
def solver():
    return identity_solver()


@pytest.fixture(scope="module")
def solvers():
    """Two members, of which the first shifts by one and the second by two."""
    return stacked(identity_solver(1), identity_solver(2))
