"""Functions of higher layers that lower layers call; `anchorlab/__init__`, above all layers, hands them down."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HandedDown:
    """Functions that lower layers may not import.

    Fields
        plot: draws a value as a figure, with the choices of its class
        card: writes a value as the HTML card of a notebook
        study: returns a study by its name, one of `anchorlab.names.STUDIES`
        study_title: returns a study's title without importing it
        to_hugging_face: turns one member of an ensemble into a model of transformers
    """

    plot: Callable[..., Any]
    card: Callable[[Any], str]
    study: Callable[[str], Any]
    study_title: Callable[[str], str]
    to_hugging_face: Callable[..., Any]


_handed: list[HandedDown] = []


def hand_down(given: HandedDown) -> None:
    """Provide functions to all layers, replacing those handed down before."""
    _handed[:] = [given]


def handed_down() -> HandedDown:
    """Return the functions that were handed down."""
    return _handed[0]
