"""The roles of positions, from roles written by hand."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens.landscape.roles import role_map
from anchorlab.tasks import task

IDENTITY = task("anchor/identity", length=6)


def with_roles(monkeypatch, **roles):
    """The map of three sequences of six positions, of which the last is scored, with these roles."""
    named = {name.replace("_", " "): torch.tensor(places) for name, places in roles.items()}
    monkeypatch.setattr(type(IDENTITY), "roles", lambda self, batch: named)
    return role_map(IDENTITY, IDENTITY.sample("test", 3, 0))


def test_a_position_has_its_first_role(monkeypatch):
    """Roles with several positions, with fewer in some sequences, shared by two roles, and without any."""
    found = with_roles(
        monkeypatch,
        asked=[[5], [5], [-1]],
        x0_of_pair_1=[[0, 3], [5, 1], [-1, 5]],
        key=[[3], [2], [0]],
        absent=[[-1], [5], [-1]],
    )
    assert found.names == ("asked", "x0-of-pair-1", "key", "absent", "other")
    assert found.cells.tolist() == [[1, 4, 4, 1, 4, 0], [4, 1, 2, 4, 4, 0], [2, 4, 4, 4, 4, 1]]
    assert found.scored.tolist() == [[0], [0], [1]]
    assert found.occurring(found.cells) == ["asked", "x0-of-pair-1", "key", "other"]
    assert found.occurring(found.scored) == ["asked", "x0-of-pair-1"]


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({}, r"^task: has no roles that tell positions apart; define `roles` on it, or choose units='heads'$"),
        ({"asked": [[*range(6)]] * 3, "key": [[2]] * 3}, r"^task: has no roles that tell positions apart; "),
        ({"other": [[2]] * 3}, r"^task.roles: 'other' has a meaning of its own; call the role something else$"),
    ],
)
def test_bad_roles_are_one_line(monkeypatch, roles, message):
    with pytest.raises(SpecError, match=message):
        with_roles(monkeypatch, **roles)
