"""Drawings of circuits: where each part is, and that everything can be read."""

from itertools import combinations

import pytest
from matplotlib.patches import PathPatch

from anchorlab.findings import CircuitArrow, CircuitFigure, CircuitPanel
from anchorlab.report import draw
from anchorlab.report.figures import page_svg
from tests.report.hand_made_findings import PROVENANCE
from tests.report.test_figures import texts

ROLES = (*(f"x{step} of pair {pair}" for pair in (3, 2, 1) for step in (pair - 1, pair)), "query x0")
PAIRS = tuple(CircuitArrow(3, 0, f"x{s} of pair {s}", f"x{s - 1} of pair {s}", "1.10") for s in (3, 2, 1))
CHAIN = tuple(CircuitArrow(layer, 0, "query x0", f"x{s} of pair {s}", f"0.{layer}") for s, layer in ((1, 7), (3, 8)))
PANEL = CircuitPanel("A", ROLES, 12, PAIRS + CHAIN)
LONG = (
    "every position", "value after operation one", "extraordinarilylongrolename", "key of the second anchor", "asked",
)  # fmt: skip
CROWDED = CircuitPanel(
    "A title that is longer than the panel is wide, so that it needs a second line below the first",
    LONG,
    3,
    (
        CircuitArrow(0, 0, "asked", LONG[1], "0.74"),
        CircuitArrow(0, 1, "asked", LONG[1], "12.31"),  # another head on the same path
        CircuitArrow(0, 2, "asked", LONG[0], "0.004"),
        CircuitArrow(2, 1, "asked", "asked", "3.21"),
        CircuitArrow(2, 1, LONG[2], LONG[3], "3.21"),
    ),
)
CROSSING = CircuitPanel(
    "", tuple("abcde"), 1, (CircuitArrow(0, 0, "e", "a", "12.31"), CircuitArrow(0, 0, "d", "b", "12.31"))
)


def figure(*panels):
    return CircuitFigure("Circuits", "", panels)


def names(axes):
    """The words under the columns, from above, by the position of each column."""
    found = {}
    for text in axes.texts:
        if hasattr(text, "xy") and text.xy[1] == 0:
            found.setdefault(text.xy[0], []).append(text.get_text())
    return [(x, " ".join(words)) for x, words in sorted(found.items())]


def test_a_path_leads_from_its_key_below_its_layer_to_its_query_above():
    (axes,) = draw(figure(PANEL), PROVENANCE).axes
    columns, roles = zip(*names(axes), strict=True)
    assert roles == ROLES
    middles = dict(zip((3, 7, 8), axes.get_yticks(), strict=True))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["layer 3", "layer 7", "layer 8"]
    curves = [patch for patch in axes.patches if isinstance(patch, PathPatch)]
    colours = {}
    for arrow, curve in zip(PANEL.arrows, curves, strict=True):
        start, end = curve.get_path().vertices[[0, -1]]
        assert (start[0], end[0]) == (columns[ROLES.index(arrow.key)], columns[ROLES.index(arrow.query)])
        assert start[1] < middles[arrow.layer] < end[1]
        colours.setdefault(arrow.layer, set()).add(curve.get_edgecolor())
    assert [len(own) for own in colours.values()] == [1, 1, 1]
    assert len(set.union(*colours.values())) == 3
    # a layer ends where the next begins: what it writes can be read there
    written = curves[3].get_path().vertices[-1, 1]
    read = curves[4].get_path().vertices[0, 1]
    assert middles[7] < written <= read < middles[8]


def test_many_layers_without_a_path_take_little_room():
    def height(layers):
        arrow = CircuitArrow(layers - 1, 0, "asked", "key", "1")
        panel = CircuitPanel("", ("key", "asked"), layers, (arrow,))
        return draw(figure(panel), PROVENANCE).axes[0].get_ylim()[1]

    assert height(1) < height(3) < height(9) < 4 * height(1)
    assert height(200) == pytest.approx(height(9))


@pytest.mark.parametrize(
    ("panels", "bare"),
    [((PANEL,) * 3, True), ((CROWDED, CROSSING), True), ((PANEL, CROWDED, PANEL, CROWDED, PANEL, PANEL), False)],
)
def test_everything_can_be_read(panels, bare):
    drawing = draw(figure(*panels), PROVENANCE, bare=bare)
    drawing.draw_without_rendering()
    sheet = drawing.get_window_extent()
    assert sheet.width <= 12 * drawing.dpi
    boxes = []
    for axes in drawing.axes:
        if axes.axison:
            written = [*axes.texts, *axes.get_yticklabels(), axes.title, axes._left_title]
            boxes += [(text.get_text(), text.get_window_extent()) for text in written if text.get_text()]
    for (text, box), (other, other_box) in combinations(boxes, 2):
        touching = min(box.x1, other_box.x1) - max(box.x0, other_box.x0) > 1
        assert not (touching and min(box.y1, other_box.y1) - max(box.y0, other_box.y0) > 1), (text, other)
    for text, box in boxes:
        assert sheet.x0 <= box.x0 and box.x1 <= sheet.x1 and sheet.y0 <= box.y0 and box.y1 <= sheet.y1, text


def test_costs_are_told_with_their_heads_only_where_heads_need_telling_apart():
    assert {"0.0 · 0.74", "0.1 · 12.31", "2.1 · 3.21"} <= set(texts(page_svg(figure(CROWDED))))
    svg = page_svg(figure(PANEL))
    assert {"1.10", "0.7", "0.8"} <= set(texts(svg))
    assert "var(--line-0)" in svg and "var(--raised)" in svg and "#f6f8fa" not in svg
