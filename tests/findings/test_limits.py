"""Findings of a stranger: what is read is finite, bounded and printable, and can be drawn."""

import json
import warnings
from dataclasses import replace

import pytest

from anchorlab.errors import SpecError
from anchorlab.findings import BarFigure, Bars, CircuitArrow, CircuitPanel, Dots, Findings, Line
from anchorlab.report.page import render
from tests.findings import hand_made as of
from tests.report.hand_made_findings import one_hot_view


def changed(path, value):
    """The JSON of `FINDINGS` with another value at a path such as `figures.0.title`."""
    data = json.loads(of.FINDINGS.to_json())
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    inner = data
    for part in above:
        inner = inner[part]
    inner[last] = value
    return json.dumps(data)


NOT_FINITE = ("NaN", "Infinity", "-Infinity", 1e308, -1e101)
RANGES = [f"figures.{at}.y_range.{end}" for at in (of.LINES, of.DOTS, of.BARS) for end in (0, 1)]
FINITE = [
    *RANGES, f"figures.{of.MAPS}.value_range.0", f"figures.{of.LINES}.references.0.value",
    f"figures.{of.TIMELINE}.end", "provenance.seconds",
]  # fmt: skip


@pytest.mark.parametrize("path", FINITE)
@pytest.mark.parametrize("value", NOT_FINITE)
def test_what_an_axis_needs_is_finite(path, value):
    with pytest.raises(SpecError, match=r"^findings\.") as raised:
        Findings.from_json(changed(path, value))
    assert "\n" not in str(raised.value) and path.split(".")[-2 if path[-1].isdigit() else -1] in str(raised.value)


DRAWN = [
    f"figures.{of.LINES}.lines.0.x.0", f"figures.{of.LINES}.lines.0.mean.1", f"figures.{of.LINES}.lines.0.low.1",
    f"figures.{of.SCATTERS}.scatters.0.x.0", f"figures.{of.SCATTERS}.scatters.0.values.0",
    f"figures.{of.DOTS}.panels.0.values.0.0", f"figures.{of.BARS}.bars.0.values.0",
    f"figures.{of.BARS}.bars.0.high.0", f"figures.{of.BARS}.dashed.0", f"figures.{of.TIMELINE}.events.0.at.0",
    f"figures.{of.MAPS}.maps.0.0.values.0.0",
]  # fmt: skip


@pytest.mark.parametrize("path", DRAWN)
def test_numbers_without_a_place_are_drawn_as_gaps(path):
    """And those that matplotlib cannot square count as infinite."""
    for value in ("NaN", "Infinity", 1e308, -1e308, 5e-324):
        found = Findings.from_json(changed(path, value))
        at = int(path.split(".")[1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert "<svg" in render([replace(found, figures=(found.figures[at],))], "t")
    assert Line("a", (1e101, -1e101, 1e99), (1e-301, -0.0, 1e-299)) == Line(
        "a", (float("inf"), -float("inf"), 1e99), (0, 0, 1e-299)
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (f"figures.{of.MAPS}.maps", [], r"figure\.maps: has none"),
        (f"figures.{of.MAPS}.maps", [[]], r"figure\.maps: has a row without maps"),
        (f"figures.{of.MAPS}.maps.0.0.values", [], r"map\.values: has rows of \[\] columns"),
        (f"figures.{of.MAPS}.maps.0.0.values", [[], []], r"map\.values: has rows without columns"),
        (f"figures.{of.BARS}.bars", [], r"figure\.bars: has none"),
        (f"figures.{of.SCATTERS}.scatters", [], r"figure\.scatters: has none"),
        (f"figures.{of.DOTS}.panels", [], r"figure\.panels: has none"),
        (f"figures.{of.TIMELINE}.events", [], r"figure\.events: has none"),
        (f"figures.{of.CIRCUITS}.panels", [], r"figure\.panels: has none"),
        (f"figures.{of.CIRCUITS}.panels.0.layers", 10**9, r"layers: .*less than or equal to 1000, got 1000000000"),
        (f"figures.{of.CIRCUITS}.panels.0.layers", -1, r"layers: .*greater than or equal to 0"),
        (f"figures.{of.CIRCUITS}.panels.0.arrows.0.head", 10**9, r"head: .*less than 1000000"),
        ("tables.0.rows.0.0", [[]], r"rows\.0\.0"),
        ("provenance.reused", 10**25, r"provenance\.reused: input should be less than 9223372036854775808"),
    ],
)
def test_what_no_page_can_show_is_refused_in_one_line(path, value, message):
    with pytest.raises(SpecError, match=message) as raised:
        Findings.from_json(changed(path, value))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 300


def test_lines_of_a_caption_and_joined_letters_stay():
    text = "one\n\ttwo \u200d três ✓"
    assert Findings.from_json(changed("figures.0.caption", text)).figures[0].caption == text


TEXTS = [
    "study",
    "title",
    "summary",
    "provenance.hardware",
    *(f"figures.{at}.{name}" for at in range(7) for name in ("title", "caption")),
    f"figures.{of.LINES}.x_label",
    f"figures.{of.LINES}.lines.0.label",
    f"figures.{of.LINES}.references.0.label",
    f"figures.{of.DOTS}.panels.0.ticks.0",
    f"figures.{of.BARS}.groups.0",
    f"figures.{of.BARS}.dashed_label",
    f"figures.{of.TIMELINE}.events.0.group",
    f"figures.{of.MAPS}.maps.0.0.row_ticks.0",
    f"figures.{of.MAPS}.maps.0.0.x_label",
    f"figures.{of.CIRCUITS}.panels.0.title",
    f"figures.{of.CIRCUITS}.panels.0.arrows.0.label",
    "tables.0.columns.0",
    "tables.0.rows.0.0",
]
SIGNS = "\x1b]0;x\x07 \x9b31m\u202e\x00"
ESCAPED = "\\x1b]0;x\\x07 \\x9b31m\\u202e\\x00"


@pytest.mark.parametrize("path", TEXTS)
def test_signs_that_a_terminal_obeys_are_escaped_and_ten_million_letters_refused(path):
    found = Findings.from_json(changed(path, SIGNS))
    text = found.to_json()
    assert ESCAPED.replace("\\", "\\\\") in text
    assert Findings.from_json(text).to_json() == text
    if path.startswith("figures"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            render([replace(found, figures=(found.figures[int(path.split(".")[1])],))], "t")
        assert all(str(one.message).isprintable() for one in caught)
    with pytest.raises(SpecError, match=r"string should have at most 10?000 characters") as raised:
        Findings.from_json(changed(path, "a" * 10_000_000))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 300


@pytest.mark.parametrize(
    "make",
    [
        lambda: replace(of.FIGURES[of.LINES], lines=of.CURVES * 1001),
        lambda: replace(of.FIGURES[of.LINES], references=of.FIGURES[of.LINES].references * 501),
        lambda: Dots("p", ("a",) * 1001, ((1,),) * 1001),
        lambda: replace(of.FIGURES[of.DOTS], panels=of.FIGURES[of.DOTS].panels * 401),
        lambda: replace(of.FIGURES[of.DOTS], panels=(Dots("p", ("a",) * 1000, ((1,),) * 1000),) * 11),
        lambda: replace(of.FIGURES[of.SCATTERS], scatters=of.FIGURES[of.SCATTERS].scatters * 401),
        lambda: BarFigure("t", "c", ("g",) * 1000, (Bars("b", (1,) * 1000),) * 11, "y"),
        lambda: replace(of.FIGURES[of.TIMELINE], events=of.FIGURES[of.TIMELINE].events * 1001),
        lambda: replace(of.FIGURES[of.MAPS], maps=of.FIGURES[of.MAPS].maps * 401),
        lambda: replace(of.FIGURES[of.MAPS], maps=(of.FIGURES[of.MAPS].maps[0] * 200, *of.FIGURES[of.MAPS].maps * 2)),
        lambda: replace(of.FIGURES[of.CIRCUITS], panels=of.FIGURES[of.CIRCUITS].panels * 401),
        lambda: CircuitPanel("p", ("k", "q"), 2, (CircuitArrow(1, 0, "q", "k", ""),) * 401),
        lambda: replace(of.FINDINGS, figures=of.FIGURES * 15),
        lambda: replace(of.FINDINGS, tables=(of.TABLE,) * 101),
        lambda: replace(of.FINDINGS, views=(one_hot_view(),) * 101),
    ],
)
def test_more_parts_than_can_be_drawn_are_refused(make):
    with pytest.raises(ValueError, match=r"at most \d+ items|give \d+ or fewer"):
        make()


@pytest.mark.parametrize("oracle", ["{", "[" * 100_000, "9" * 5000, "nothing"], ids=["cut", "deep", "long", "no"])
def test_an_oracle_that_is_no_json_is_refused(oracle):
    from anchorlab.findings.view import Architecture, LiveModel

    kind = dict.fromkeys(("residual", "output_linear", "layer_norm", "feed_forward", "mask"), (True,))
    architecture = Architecture(1, 1, 1, 1, 0, projection=True, shift_values=0, length=1, inputs=1, outputs=1, **kind)
    assert LiveModel(architecture, (), (), (), "{}").oracle == "{}"
    with pytest.raises(ValueError, match=r"live\.oracle: is not JSON: .*; make it with page_oracle"):
        LiveModel(architecture, (), (), (), oracle)
