"""What higher floors do for lower ones: `anchorlab/__init__`, above all floors, hands it down."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HandedDown:
    """What no lower floor may name.

    Fields
        plot: draws a value as a figure, with the choices of its class
        card: writes a value as the HTML card of a notebook
        study: returns a study by its name, one of `anchorlab.names.STUDIES`
        study_title: returns its title without importing it
        to_hugging_face: turns one member of an ensemble into a model of transformers
    """

    plot: Callable[..., Any]
    card: Callable[[Any], str]
    study: Callable[[str], Any]
    study_title: Callable[[str], str]
    to_hugging_face: Callable[..., Any]


_handed: list[HandedDown] = []


def hand_down(given: HandedDown) -> None:
    """Make something known to all floors, in place of what was handed down before."""
    _handed[:] = [given]


def handed_down() -> HandedDown:
    """Return what was handed down."""
    return _handed[0]
