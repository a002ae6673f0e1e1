"""The attention viewer in headless Chromium: each control changes what is drawn."""

from dataclasses import replace

import numpy as np
import pytest

from anchorlab.tasks.batch import Example, Token
from anchorlab.viewer import AttentionView
from tests.report.hand_made_findings import one_hot_view

LARGE, HEAD = ".attention-view .large", ".attention-view .head"


@pytest.fixture
def page(read, findings):
    return read(replace(findings, figures=())).page


def drawn(page, head=0):
    """The pixels of a small map."""
    return page.locator(f"{HEAD} canvas").nth(head).evaluate("canvas => canvas.toDataURL()")


def said(page):
    return page.locator(".attention-view .readout").inner_text()


def state(page):
    data = page.locator(".attention-view").evaluate("root => ({...root.dataset})")
    return {name: int(data[name]) for name in ("step", "example", "layer", "head")}


def test_shows_every_head_and_the_last_checkpoint_first(page):
    assert page.locator(HEAD).count() == 6
    assert state(page) == {"step": 2, "example": 0, "layer": 0, "head": 0}
    assert said(page) == "query 8 “28” attends most to key 6 “26” with weight 1.000"


def test_slider_changes_the_drawn_pattern_and_the_prediction(page):
    before = drawn(page), page.locator(LARGE).evaluate("canvas => canvas.toDataURL()")
    slider = page.get_by_label("Checkpoint").and_(page.locator("input"))
    slider.fill("0")
    assert state(page)["step"] == 0
    assert slider.get_attribute("aria-valuetext") == "step 0"
    assert drawn(page) != before[0]
    assert page.locator(LARGE).evaluate("canvas => canvas.toDataURL()") != before[1]
    assert "key 8 “28”" in said(page)
    assert "predicted 99 ✗" in page.locator(".prediction").inner_text()
    slider.press("ArrowRight")
    assert "predicted 22 ✓" in page.locator(".prediction").inner_text()
    assert "key 7 “27”" in said(page)


def test_brackets_move_over_checkpoints_and_stop_at_the_ends(page):
    page.keyboard.press("[")
    assert state(page)["step"] == 1
    for _ in range(5):
        page.keyboard.press("[")
    assert state(page)["step"] == 0
    page.keyboard.press("]")
    assert state(page)["step"] == 1


def test_example_picker_and_its_keys(page):
    before = drawn(page)
    page.get_by_label("Example", exact=True).and_(page.locator("select")).select_option("1")
    assert state(page)["example"] == 1
    assert drawn(page) != before
    assert page.locator(".sequence li").all_inner_texts() == [str(30 + at) for at in range(9)]
    assert "answer 32" in page.locator(".prediction").inner_text()
    page.locator("h1").click()
    page.keyboard.press("n")
    assert state(page)["example"] == 0
    page.keyboard.press("p")
    assert state(page)["example"] == 1
    page.get_by_label("Next example (n)").click()
    assert state(page)["example"] == 0


def test_arrow_keys_move_between_heads(page):
    page.locator(HEAD).first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert state(page) | {"step": 0} == {"step": 0, "example": 0, "layer": 1, "head": 2}
    assert page.locator(".detail h4").inner_text() == "Layer 1, head 2"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "layer 1, head 2"
    assert page.locator(f"{HEAD}[aria-selected=true]").count() == 1
    assert page.locator(f"{HEAD}[tabindex='0']").count() == 1
    assert said(page) == "query 8 “28” attends most to key 4 “24” with weight 0.500"


def test_click_shows_a_head_large(page):
    page.locator(HEAD).nth(4).click()
    assert page.locator(".detail h4").inner_text() == "Layer 1, head 1"
    assert "layer 1, head 1" in page.locator(LARGE).get_attribute("aria-label")


def test_enter_goes_into_the_large_map_and_escape_back(page):
    page.locator(HEAD).first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.classList.contains('large')")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert said(page) == "query 7 “27” attends to key 5 “25” with weight 1.000"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.classList.contains('head')")


def test_hover_shows_query_key_and_weight(page):
    large = page.locator(LARGE)
    large.scroll_into_view_if_needed()
    box = large.bounding_box()
    # With 9 tokens of two characters the cells are 54 pixels wide; the last one ends 2 pixels before the right edge.
    right = box["x"] + box["width"] - 2
    page.mouse.move(right - 54 * 6.5, box["y"] + 7 + 54 * 4.5)
    assert said(page) == "query 4 “24” attends to key 2 “22” with weight 1.000"
    assert page.locator(".sequence li.query").inner_text() == "24"
    assert page.locator(".sequence li.key").inner_text() == "22"
    page.mouse.move(0, 0)
    assert said(page).startswith("query 8 “28” attends most to")


def test_hover_over_a_token_shows_where_it_looks(page):
    page.locator(".sequence li").nth(5).hover()
    assert said(page) == "query 5 “25” attends most to key 3 “23” with weight 1.000"
    weights = page.locator(".sequence li").evaluate_all("all => all.map(one => one.style.getPropertyValue('--weight'))")
    assert weights == ["0", "0", "0", "1", "0", "0", "0", "0", "0"]


def test_dark_mode_by_key_and_button_redraws_the_maps(page):
    light = drawn(page), page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("d")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert drawn(page) != light[0]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light[1]
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    page.locator("#theme").click()
    assert (drawn(page), page.evaluate("getComputedStyle(document.body).backgroundColor")) == light


def test_follows_the_dark_system_and_prints_light(read, findings):
    page = read(findings, scheme="dark").page
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_play_runs_through_training(page):
    page.locator("input[type=range]").fill("0")
    page.get_by_label("Play training").click()
    page.locator(".attention-view[data-step='2']").wait_for()


def test_colour_scale(page):
    page.locator(HEAD).nth(3).click()
    before = drawn(page, 3)
    page.get_by_label("Colour scale").select_option("root")
    assert drawn(page, 3) != before


@pytest.mark.parametrize(("layers", "heads", "length"), [(1, 1, 9), (12, 12, 9), (2, 2, 256)])
@pytest.mark.parametrize("width", [360, 1280])
def test_sizes_fit_the_window(read, findings, layers, heads, length, width):
    view = one_hot_view(steps=1, examples=1, layers=layers, heads=heads, length=length)
    page = read(replace(findings, figures=(), views=(view,)), width=width).page
    assert page.locator(HEAD).count() == layers * heads
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(HEAD).first.bounding_box()["width"] > 15
    assert page.locator(LARGE).bounding_box()["width"] > 200


def test_letters_go_to_the_viewer_last_used(read, findings):
    page = read(replace(findings, figures=(), views=(one_hot_view(), one_hot_view()))).page
    second = page.locator(".attention-view").nth(1)
    second.locator(".head").first.click()
    page.keyboard.press("n")
    assert [page.locator(".attention-view").nth(i).get_attribute("data-example") for i in (0, 1)] == ["0", "1"]


def test_a_role_has_the_same_colour_on_every_page(read, findings):
    """Whichever role comes first, and whatever other roles there are."""

    def colours(*roles):
        tokens = tuple(Token(str(at), role) for at, role in enumerate(roles))
        view = AttentionView.of("t", [Example(tokens, (), "", "")], [0], np.zeros((1, 1, 1, 1, *[len(roles)] * 2)))
        page = read(replace(findings, figures=(), views=(view,))).page
        chips = page.locator(".sequence li").evaluate_all("all => all.map(one => getComputedStyle(one).color)")
        return dict(zip(roles, chips, strict=True))

    pages = [
        colours("anchor", "key", "noise"),
        colours("key", "noise", "anchor"),
        colours("mine", "key", "yours", "query", "anchor"),
        colours("yours", "mine", "query"),
        colours("trigger", "output", "plain"),
    ]
    first = pages[0]
    assert len(set(first.values())) == 3
    assert [page[role] for page in pages[1:3] for role in ("anchor", "key")] == [first["anchor"], first["key"]] * 2
    assert (pages[4]["trigger"], pages[4]["output"]) == (first["anchor"], first["key"])
    assert len(set(pages[2].values())) == 5 and pages[3]["query"] == pages[2]["query"]
    assert len(set(pages[3].values())) == 3
