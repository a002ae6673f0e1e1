"""A model of 24 layers by 8 heads: maps out of sight wait, and the controls stay quick."""

from dataclasses import replace

import pytest

from tests.browser import until
from tests.report.hand_made_findings import one_hot_view

HEAD = ".attention-view .head"
LAST = 24 * 8 - 1

TIMES = """async () => {
  const root = document.querySelector('.attention-view');
  const middle = (times, act) => {
    const took = Array.from({length: times}, (_, at) => {
      const started = performance.now();
      act(at);
      return performance.now() - started;
    });
    return took.sort((one, other) => one - other)[times >> 1];
  };
  const slider = root.querySelector('input[type=range]'), large = root.querySelector('.large');
  const next = root.querySelector('[aria-label^="Next example"]'), box = large.getBoundingClientRect();
  const over = (at) => ({clientX: box.left + 90 + 5 * at, clientY: box.top + 60 + 5 * at});
  return {
    step: middle(9, (at) => { slider.value = at % 3; slider.dispatchEvent(new Event('input')); }),
    example: middle(9, () => next.click()),
    hover: middle(31, (at) => large.dispatchEvent(new PointerEvent('pointermove', over(at)))),
  };
}"""


@pytest.fixture(scope="module")
def view():
    large = one_hot_view(layers=24, heads=8, length=64)
    return replace(large, recorded_only="Recorded examples only: it is too large.")


@pytest.fixture
def page(read, findings, view):
    opened = read(replace(findings, figures=(), views=(view,))).page
    opened.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")
    return opened


def drawn(page, head):
    return page.locator(f"{HEAD} canvas").nth(head).evaluate("canvas => canvas.toDataURL()")


def go_back(page):
    page.locator("input[type=range]").fill("0")


def test_what_is_out_of_sight_is_drawn_once_it_is_scrolled_to(page):
    before = drawn(page, 0), drawn(page, LAST)
    go_back(page)
    assert drawn(page, 0) != before[0]
    assert drawn(page, LAST) == before[1]
    page.locator(HEAD).nth(LAST).scroll_into_view_if_needed()
    until(lambda: drawn(page, LAST) != before[1])


def test_a_page_is_printed_with_all_its_heads(page):
    before = drawn(page, LAST)
    go_back(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert drawn(page, LAST) != before


def test_arrow_keys_bring_far_heads_into_sight(page):
    page.locator(HEAD).first.focus()
    for _ in range(23):
        page.keyboard.press("ArrowDown")
    box, grid = page.locator(HEAD).nth(LAST - 7).bounding_box(), page.locator(".heads").bounding_box()
    assert page.locator(".detail h4").inner_text() == "Layer 23, head 0"
    assert grid["y"] <= box["y"] and box["y"] + box["height"] <= grid["y"] + grid["height"]
    for _ in range(18):
        page.keyboard.press("ArrowUp")
    numbers = page.locator(".head-name").first.bounding_box()  # they stay on top of what scrolls
    assert page.locator(HEAD).nth(5 * 8).bounding_box()["y"] >= numbers["y"] + numbers["height"] - 1


@pytest.mark.nightly
def test_it_stays_quick(page):
    """Ten times the bounds of an idle machine, 50 ms and 16 ms of script."""
    took = page.evaluate(TIMES)
    assert took["step"] < 500 and took["example"] < 500 and took["hover"] < 160, took


def test_it_says_why_there_is_no_live_model(page):
    assert page.locator(".recorded-only").inner_text() == "Recorded examples only: it is too large."
    assert page.locator(".typed, .live").count() == 0
