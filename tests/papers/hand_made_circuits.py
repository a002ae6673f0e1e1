"""Circuits written by hand, for chains of two steps and models with one head in each layer."""

import numpy as np

from anchorlab.findings import Map, MapFigure
from anchorlab.lens import AttentionRule, Circuit, CircuitPath, Explanation
from anchorlab.tasks import Example, Token
from anchorlab.viewer import AttentionView

JOIN = AttentionRule("x1 of pair 1", "x0 of pair 1")
FIRST = AttentionRule("query x0", "x1 of pair 1")
SECOND = AttentionRule("query x0", "x2 of pair 2")


def path(layer, rule, cut=0.6, head=0):
    """A path whose cut costs `cut` live, and half of that with maps."""
    return CircuitPath(layer, head, rule, attention=0.9, cut_loss=cut, mapped_cut_loss=cut / 2)


def circuit(*paths, loss=0.02, model=0.005, layers=4):
    """A circuit whose heads have these paths and else attend uniformly."""
    heads = {(layer, 0): Explanation("uniform") for layer in range(layers)}
    for one in paths:
        heads[one.layer, one.head] = Explanation("uniform", (*heads[one.layer, one.head].rules, one.rule))
    return Circuit(heads, tuple(paths), ("x0 of pair 1", "x1 of pair 1", "query x0"), 0.05, model, loss, loss, 1.0, 0.9)


def titled(title: str) -> AttentionView:
    """The smallest attention view there is."""
    return AttentionView.of(title, [Example((Token("4", "key"),), (), "4", "test")], [0], np.ones((1, 1, 1, 1, 1, 1)))


def maps_titled(title: str) -> MapFigure:
    """The smallest figure of maps there is."""
    return MapFigure(title, "", ((Map("", ((1.0,),)),),))
