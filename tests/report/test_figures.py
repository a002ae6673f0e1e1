from dataclasses import replace
from itertools import pairwise
from math import inf, nan
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.findings import (
    BarFigure,
    Bars,
    DotFigure,
    Dots,
    Event,
    LineFigure,
    Map,
    MapFigure,
    Scatter,
    ScatterFigure,
    TimelineFigure,
    grid,
    line,
)
from anchorlab.report import draw, save
from anchorlab.report.figures import page_svg
from anchorlab.report.lines import _apart, _spread
from anchorlab.report.style import INK, MARKERS, PAPER, colour_and_marker
from tests.findings.hand_made import FIGURES, LINES, MAPS
from tests.report.hand_made_findings import PROVENANCE

TENS = [10.0, 10.0]
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_draws_mean_and_band_and_says_title_provenance_and_labels(findings, tmp_path):
    axes = draw(findings.figures[0], PROVENANCE).axes[0]
    curve = axes.lines[0]
    assert curve.get_xdata().tolist() == [1, 2, 4]
    np.testing.assert_allclose(curve.get_ydata(), [0.2, 0.6, 0.95])
    band = axes.collections[0].get_paths()[0].vertices
    assert {tuple(np.round(corner, 6)) for corner in band} >= {(1, 0.1), (2, 0.7), (4, 1.0)}
    assert axes.lines[1].get_ydata() == [0.1, 0.1]
    said = texts(save(findings.figures[0], PROVENANCE, tmp_path / "figure.svg").read_text())
    for part in ("Height against size", "size", "height", "tall", "guessing"):
        assert part in said
    note = next(text for text in said if "profile quick" in text)
    assert "seeds 0..2" in note
    assert "band: lowest to highest" in note


def test_a_figure_names_its_seed_and_a_band_that_has_a_width(findings):
    assert draw(findings.figures[1], PROVENANCE).get_supxlabel().startswith("profile quick · seeds 0..2 · ")
    one = replace(findings.figures[1], seeds="2")
    assert draw(one, PROVENANCE).get_supxlabel().startswith("profile quick · seeds 2 · ")
    # that of a single seed
    several, one = line("a", [1, 2], [[1, 2], [3, 2]]), line("a", [1, 2], [[1, 2]])
    stopped = line("a", [1, 2], [[1, nan]])
    for lines, banded in (((several,), True), ((one,), False), ((one, several), True), ((stopped,), False)):
        drawn = draw(LineFigure("t", "", "x", "y", lines), PROVENANCE).get_supxlabel()
        assert ("band" in drawn, drawn.startswith("profile")) == (banded, not banded)


def test_equal_curves_are_drawn_once_with_both_names():
    lines = (
        line("first", [1, 2, 3], [[1, nan, 2]]), line("other", [1, 2, 3], [[1, 0, 2]]),
        line("second", [1, 2, 3], [[1, nan, 2]]), line("elsewhere", [1, 2, 4], [[1, nan, 2]]),
    )  # fmt: skip
    axes = draw(LineFigure("t", "", "x", "y", lines), PROVENANCE).axes[0]
    assert [one.get_label() for one in axes.lines] == ["first = second", "other", "elsewhere"]
    assert len({one.get_color() for one in axes.lines}) == 3
    assert {one.get_text() for one in axes.texts} == {"first\n= second", "other", "elsewhere"}


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_same_figure_same_bytes(tmp_path, ending):
    for figure in FIGURES if ending == "svg" else (FIGURES[LINES], FIGURES[MAPS]):
        first, second = (save(figure, PROVENANCE, tmp_path / f"{name}.{ending}").read_bytes() for name in "ab")
        assert first == second


def test_page_svg_takes_the_pages_colours_and_font(findings):
    svg = page_svg(findings.figures[0])
    ElementTree.fromstring(svg)
    assert "var(--ink)" in svg
    assert "var(--line-0)" in svg
    assert "#0072b2" not in svg
    assert "DejaVu" not in svg
    assert "profile quick" not in svg  # the page prints it under the figure
    assert 'aria-label="Height against size"' in svg


def test_maps_share_one_scale_and_leave_repeated_ticks_out():
    tokens = ("a", "$b$", "c")
    one, two = Map("one", grid(np.eye(3)), tokens, tokens), Map("two", grid(np.eye(3) / 2), tokens, tokens)
    drawing = draw(MapFigure("Maps", "", ((one, two),)), PROVENANCE)
    left, right = drawing.axes[:2]
    assert left.images[0].norm is right.images[0].norm
    assert (left.images[0].norm.vmin, left.images[0].norm.vmax) == (0.0, 1.0)
    assert [label.get_text() for label in left.get_yticklabels()] == list(tokens)
    assert {label.get_text() for label in right.get_yticklabels()} == {""}
    np.testing.assert_array_equal(right.images[0].get_array(), np.eye(3) / 2)


def test_a_side_of_one_cell_without_labels_has_the_number_0_alone():
    axes = draw(MapFigure("Map", "", ((Map("", grid(np.eye(2)[:, :1])),),)), PROVENANCE).axes[0]
    inside = [at for at in axes.get_xticks() if -0.5 <= at <= 0.5]
    assert (inside, axes.get_xticklabels()[list(axes.get_xticks()).index(0)].get_text()) == ([0], "0")


def test_long_labels_of_one_map_are_broken_and_take_less_room_than_the_map():
    rows = tuple(f"attribution patching, {steps} steps" for steps in range(15))
    columns = tuple(f"reading-comprehension, {layers} x 4" for layers in range(16))
    drawing = draw(MapFigure("Map", "", ((Map("", grid(np.zeros((15, 16))), rows, columns),),)), PROVENANCE)
    axes = drawing.axes[0]
    assert axes.get_yticklabels()[3].get_text() == "attribution patching,\n3 steps"
    drawing.canvas.draw()
    inside, outside = axes.get_window_extent(), axes.get_tightbbox()
    assert inside.width > 0.7 * outside.width and inside.height > 0.7 * outside.height
    labels = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(below.y1 <= above.y0 for above, below in pairwise(labels))
    labels = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(left.x1 <= right.x0 for left, right in pairwise(labels))


def test_a_maps_rows_are_along_y_from_above_and_its_columns_along_x():
    values = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    figure = MapFigure("Map", "", ((Map("", grid(values), ("r0", "r1"), ("c0", "c1", "c2")),),), "keys", "queries")
    axes = draw(figure, PROVENANCE).axes[0]
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), values)
    # left, right, bottom, top: the first row is the topmost
    assert tuple(image.get_extent()) == (*axes.get_xlim(), *axes.get_ylim()) == (-0.5, 2.5, 1.5, -0.5)
    assert [(at, one.get_text()) for at, one in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)] == [
        (0, "r0"),
        (1, "r1"),
    ]
    assert [one.get_text() for one in axes.get_xticklabels()] == ["c0", "c1", "c2"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("keys", "queries")


def test_names_of_curves_are_in_the_order_of_the_curves():
    """However near their ends are, and wherever they stand in the list."""
    ends = [0.500, 0.503, 0.498, 0.506, 0.501]
    lines = tuple(line(f"{end}", [0, 1], [[0.5, end]]) for end in ends)
    axes = draw(LineFigure("t", "", "x", "y", lines, y_range=(0, 1)), PROVENANCE).axes[0]
    places = {float(one.get_text()): one.xy[1] + one.get_position()[1] / 1000 for one in axes.texts}
    assert sorted(ends, key=places.get) == sorted(ends)


def test_cells_of_a_small_map_have_their_numbers():
    values = [[0.0, 0.25, 1.0], [0.5, nan, 0.875]]
    axes = draw(MapFigure("t", "", ((Map("", grid(values)),),), value_range=(0, 1)), PROVENANCE).axes[0]
    assert {one.get_position(): one.get_text() for one in axes.texts} == {
        (0, 0): "0", (1, 0): "0.25", (2, 0): "1", (0, 1): "0.5", (2, 1): "0.88",
    }  # fmt: skip
    whole = draw(MapFigure("t", "", ((Map("", grid(np.eye(3))),),)), PROVENANCE).axes[0]
    assert (axes.patch.get_hatch(), whole.patch.get_hatch()) == ("////", None)  # a missing cell is not a white zero
    colours = {one.get_text(): one.get_color() for one in axes.texts}
    assert colours["0"] == colours["0.25"] == INK and colours["1"] == colours["0.88"] == PAPER
    svg = page_svg(MapFigure("t", "", ((Map("", grid(values)),),)))
    assert "var(--paper)" in svg and PAPER not in svg
    for larger in (np.zeros((5, 5)), np.zeros((1, 25))):
        maps = ((Map("", grid(values)), Map("", grid(larger))),)
        assert not [one for axes in draw(MapFigure("t", "", maps), PROVENANCE).axes[:2] for one in axes.texts]


def test_numbers_that_are_as_good_as_zero_are_written_as_zero():
    """They would not fit into their cells; 0.005 of the largest number is still written."""
    maps = ((Map("", ((-2.2e-9, 0.75), (0.00375, -0.0037))),),)
    axes = draw(MapFigure("t", "", maps), PROVENANCE).axes[0]
    assert sorted(one.get_text() for one in axes.texts) == ["0", "0", "0.0037", "0.75"]
    axes = draw(MapFigure("t", "", ((Map("", ((inf, 0.75), (nan, 0.5))),),)), PROVENANCE).axes[0]
    assert sorted(one.get_text() for one in axes.texts) == ["0.5", "0.75"]  # infinity is no largest number
    infinite = draw(MapFigure("t", "", ((Map("", ((inf, 0.75), (0.25, 0.5))),),)), PROVENANCE).axes[0]
    assert infinite.patch.get_hatch() == "////"  # nor is it drawn


def test_a_map_may_name_its_own_axes_and_is_white_at_zero_if_signed():
    one, other = Map("a", grid(np.eye(9))), Map("b", grid(np.eye(9)), x_label="token", y_label="")
    left, right, below = draw(MapFigure("t", "", ((one, other), (one,))), PROVENANCE).axes[:3]
    assert (left.get_xlabel(), left.get_ylabel()) == ("", "query")  # the figure's names are at its left and lower side
    assert (right.get_xlabel(), right.get_ylabel()) == ("token", "")
    assert (below.get_xlabel(), below.get_ylabel()) == ("key", "query")
    drawing = draw(MapFigure("Signed", "", ((Map("", grid([[-3.0, 1.0]])),),), signed=True), PROVENANCE)
    image = drawing.axes[0].images[0]
    assert image.norm(0.0) == 0.5
    assert (image.norm.vmin, image.norm.vmax) == (-3.0, 3.0)
    np.testing.assert_allclose(image.cmap(0.5)[:3], 1.0, atol=0.01)


def test_points_of_kinds_have_a_name_for_each_in_place_of_a_scale():
    clouds = (Scatter("one", (0, 1, 2), (2, 3, 4), (0, 1, 0)), Scatter("two", (5,), (7,), (1,)))
    figure = ScatterFigure("Points", "", clouds, "x", "y", "holds the key", ("no", "yes"))
    drawing = draw(figure, PROVENANCE)
    left, right = drawing.axes  # and no bar
    (legend,) = drawing.legends
    assert legend.get_title().get_text() == "holds the key"
    assert [one.get_text() for one in legend.get_texts()] == ["no", "yes"]
    no, yes = left.collections
    np.testing.assert_array_equal(no.get_offsets(), [[0, 2], [2, 4]])
    np.testing.assert_array_equal(yes.get_offsets(), [[1, 3]])
    np.testing.assert_array_equal(right.collections[1].get_offsets(), [[5, 7]])
    assert {one.get_facecolor()[0].tobytes() for one in (no, yes)} == {
        one.get_facecolor()[0].tobytes() for one in legend.legend_handles
    }
    assert len({one.get_paths()[0].vertices.shape for one in (no, yes)}) == 2  # told apart without colour, too


def test_scatters_share_one_named_scale_and_keep_their_places():
    clouds = (Scatter("one", (0, 1), (2, 3), (20, 60)), Scatter("$two", (5, 6), (7, 8), (40, 100)))
    figure = ScatterFigure("Points", "", clouds, "across", "up", "item")
    left, right, bar = draw(figure, PROVENANCE).axes
    points, others = left.collections[0], right.collections[0]
    np.testing.assert_array_equal(points.get_offsets(), [[0, 2], [1, 3]])
    np.testing.assert_array_equal(others.get_offsets(), [[5, 7], [6, 8]])
    assert points.norm is others.norm and (points.norm.vmin, points.norm.vmax) == (20, 100)
    np.testing.assert_array_equal(others.get_array(), [40, 100])
    assert bar.get_ylabel() == "item"
    for strange in (nan, inf, -inf):
        cloud = ScatterFigure("t", "", (Scatter("", (0, 1, 2), (0, 1, 2), (20, strange, 60)),), "x", "y", "v")
        norm = draw(cloud, PROVENANCE).axes[0].collections[0].norm
        assert (norm.vmin, norm.vmax) == (20, 60)
    svg = page_svg(figure)
    assert {"one", "$two", "across", "up", "item"} <= set(texts(svg))
    assert "var(--ink)" in svg and "var(--line-" not in svg  # the axes follow the page, the points keep their colours


@pytest.mark.slow
def test_dots_have_a_panel_for_each_choice_and_a_point_for_each_value():
    one = Dots("one", ("a", "b"), ((0.0, 0.5), (1.0, nan)), marked=1)
    others = tuple(Dots(f"panel {index}", ("c",), ((nan,),)) for index in range(4))
    figure = DotFigure("Dots", "", (one, *others), "height", (0.0, 1.0))
    drawing = draw(figure, PROVENANCE)
    first, *rest = drawing.axes
    assert len(rest) == 7 and [axes.axison for axes in drawing.axes] == [True] * 5 + [False] * 3  # two rows of four
    points, means, marked = first.lines
    np.testing.assert_array_equal(points.get_xydata(), [[0, 0], [0, 0.5], [1, 1]])
    np.testing.assert_array_equal(means.get_xydata(), [[0, 0.25], [1, 1]])
    assert list(marked.get_xdata()) == [1, 1]
    assert [label.get_fontweight() for label in first.get_xticklabels()] == ["normal", "bold"]
    assert first.get_ylim() == rest[0].get_ylim() == pytest.approx((-0.04, 1.04))
    assert {"one", "a", "b", "panel 3", "height"} <= set(texts(page_svg(figure)))


def test_bars_stand_in_groups_with_intervals_and_a_dashed_line_each(tmp_path):
    bars = (Bars("one", (0.5, 0.25), (0.4, 0.2), (0.6, 0.3)), Bars("two", (1.0, nan)))
    figure = BarFigure("Bars", "", ("left", "right"), bars, "height", (0.25, 0.125), "guessing", (0.0, 1.0))
    (axes,) = draw(figure, PROVENANCE).axes
    heights = [[bar.get_height() for bar in container] for container in axes.containers]
    np.testing.assert_array_equal(heights, [[0.5, 0.25], [1.0, nan]])
    (first, second), (third, _) = ([bar.get_x() for bar in container] for container in axes.containers)
    assert first < third < second and second - first == pytest.approx(1)
    interval, *dashed = (line.get_segments() for line in axes.collections)
    assert [[end[1] for end in one] for one in interval] == [[0.4, 0.6], [0.2, 0.3]]
    assert [one[0][0][1] for one in dashed] == [0.25, 0.125]
    shown = texts(page_svg(figure))
    assert {"left", "right", "one", "two", "guessing", "height"} <= set(shown)
    whole = " ".join(texts(save(figure, PROVENANCE, tmp_path / "a.svg").read_text("utf-8")))
    assert "95 % interval" in whole


def test_a_timeline_has_a_row_for_each_event_and_a_point_for_each_member():
    events = (Event("head", "heads", (2.0, 4.0, 9.0)), Event("loss", "losses", (5.0, None, None)))
    figure = TimelineFigure("Times", "", "step", events, end=20)
    (axes,) = draw(figure, PROVENANCE).axes
    points = {line.get_label(): line for line in axes.lines if line.get_linestyle() == "None"}
    np.testing.assert_array_equal(points["heads"].get_xydata(), [[2, 0], [4, 0], [9, 0]])
    np.testing.assert_array_equal(points["losses"].get_xydata(), [[5, 1]])
    medians = [line.get_xdata() for line in axes.lines if list(line.get_ydata()) == [-0.32, 0.32]]
    np.testing.assert_array_equal(medians, [[4, 4]])
    assert not [line for line in axes.lines if list(line.get_ydata()) == [0.68, 1.32]]  # most never had a loss
    assert {"head", "loss", "heads", "losses", "step", "2 of 3 never"} <= set(texts(page_svg(figure)))


def test_a_small_range_on_a_logarithmic_axis_still_has_labels():
    figure = LineFigure("t", "", "x", "y", (line("a", [1, 2], [[0.3, 0.7]]),), log_y=True)
    drawing = draw(figure, PROVENANCE)
    low, high = drawing.axes[0].get_ylim()
    labels = drawing.axes[0].get_yticklabels()
    shown = [float(label.get_text()) for label in labels if low <= label.get_position()[1] <= high]
    assert len(shown) >= 2
    assert all(0.2 < value < 0.8 for value in shown)


@pytest.mark.parametrize("count", [1, 7, 12])
def test_every_curve_is_named(count):
    lines = tuple(line(f"curve {i}", [0, 1], [[0.0, i]]) for i in range(count))
    said = texts(page_svg(LineFigure("t", "", "x", "y", lines)))
    assert [f"curve {i}" for i in range(count)] == sorted((s for s in said if s.startswith("curve")), key=_number)


def _number(text: str) -> int:
    return int(text.split()[1])


def test_labels_are_pushed_apart_and_kinds_differ_in_colour_or_marker():
    assert _apart([50.0, 10.0], TENS, 0.0, 100.0) == [50, 10]
    assert _apart([20.0, 20.0], TENS, 0.0, 100.0) == [25, 15]  # for equal wants, the first is above
    assert _apart([0.0, 1.0], TENS, 0.0, 100.0) == [5, 15]  # kept inside, in the order of what they want
    assert _apart([52.0, 53.0, 51.0, 51.0], TENS * 2, 0.0, 100.0) == [56.75, 66.75, 46.75, 36.75]
    assert _apart([90.0, 99.0], TENS, 0.0, 100.0) == [85, 95]
    # Neighbours stay at least an eleventh of log 8 apart, a factor of 1.208, counted from the last: no 7, no 5.
    assert _spread([float(x) for x in range(1, 9)]) == [1, 2, 3, 4, 6, 8]
    assert _spread([5.0]) == [5]
    assert len({colour_and_marker(kind) for kind in range(49)}) == 49
    assert colour_and_marker(0)[0] == colour_and_marker(7)[0] and colour_and_marker(0)[1] != colour_and_marker(7)[1]


def test_nan_leaves_a_gap_and_empty_figures_are_drawn():
    gaps = LineFigure("t", "", "x", "y", (line("a", [1, 2, 3, 4], [[1, nan, 2, nan]]),))
    axes = draw(gaps, PROVENANCE).axes[0]
    (curve,), (name,) = axes.lines, axes.texts
    np.testing.assert_array_equal(curve.get_xydata(), [[1, 1], [2, nan], [3, 2], [4, nan]])
    assert curve.get_marker() in MARKERS  # else a point between gaps would not be seen
    assert (name.get_text(), name.xy) == ("a", (1.0, 2))
    empty = draw(LineFigure("t", "", "x", "y", (), log_x=True), PROVENANCE).axes[0]
    assert (list(empty.lines), list(empty.texts), empty.get_xlabel()) == ([], [], "x")


@pytest.mark.parametrize(("values", "scale"), [([nan, nan], (0, 1)), ([nan, 3.0, 1.0], (1, 3))])
def test_cells_that_are_not_numbers_are_left_empty(values, scale):
    figure = MapFigure("t", "", ((Map("", grid([values])),),), value_range=(None, None))
    axes = draw(figure, PROVENANCE).axes[0]
    (image,) = axes.images
    np.testing.assert_array_equal(np.ma.filled(image.get_array(), nan), [values])
    assert (image.norm.vmin, image.norm.vmax) == scale
    assert image.cmap.get_bad()[3] == 0  # nothing is painted
    assert [one.get_text() for one in axes.texts] == [f"{value:g}" for value in values if value == value]


def test_matplotlibs_settings_stay_and_an_unknown_ending_is_refused(findings, tmp_path):
    before = dict(mpl.rcParams)
    draw(findings.figures[0], PROVENANCE)
    assert dict(mpl.rcParams) == before
    with pytest.raises(SpecError, match=r"figure\.path"):
        save(findings.figures[0], PROVENANCE, tmp_path / "figure.gif")
    assert list(tmp_path.iterdir()) == []
