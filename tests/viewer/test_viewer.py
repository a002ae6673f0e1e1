"""The attention viewer in headless Chromium: controls, contrast, two panes side by side, and 192 heads."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorlab.tasks.batch import Example, Token
from anchorlab.viewer import AttentionView, ViewPath
from tests.browser import contrasts, until
from tests.lens.hand_built import identity_solver, stacked
from tests.report.hand_made_findings import one_hot_view
from tests.viewer.viewer_scripts import SOLVED, live_view

LARGE, HEAD = ".attention-view .large", ".attention-view .head"


@pytest.fixture
def page(read, findings):
    return read(replace(findings, figures=()))


def drawn(page, head=0):
    """The pixels of a small map."""
    return page.locator(f"{HEAD} canvas").nth(head).evaluate("canvas => canvas.toDataURL()")


def said(page):
    return page.locator(".attention-view .readout").inner_text()


def state(page):
    data = page.locator(".attention-view").evaluate("root => ({...root.dataset})")
    return {name: int(data[name]) for name in ("step", "example", "layer", "head")}


def test_shows_every_head_and_the_last_checkpoint_first_and_a_click_shows_a_head_large(page):
    assert page.locator(HEAD).count() == 6
    assert state(page) == {"step": 2, "example": 0, "layer": 0, "head": 0}
    assert said(page) == "query 8 “28” attends most to key 6 “26” with weight 1.000"
    page.locator(HEAD).nth(4).click()
    assert page.locator(".detail h4").inner_text() == "Layer 1, head 1"
    assert "layer 1, head 1" in page.locator(LARGE).get_attribute("aria-label")


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


def test_enter_goes_into_the_large_map_and_escape_back(page):
    page.locator(HEAD).first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.classList.contains('large')")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert said(page) == "query 7 “27” attends to key 5 “25” with weight 1.000"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.classList.contains('head')")


def test_hover_shows_query_key_and_weight_and_where_a_token_looks(page):
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
    page = read(findings, scheme="dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_play_runs_through_training_and_the_colour_scale_changes(page):
    page.locator("input[type=range]").fill("0")
    page.get_by_label("Play training").click()
    page.locator(".attention-view[data-step='2']").wait_for()
    page.locator(HEAD).nth(3).click()
    before = drawn(page, 3)
    page.get_by_label("Colour scale").select_option("root")
    assert drawn(page, 3) != before


@pytest.mark.parametrize(("layers", "heads", "length"), [(1, 1, 9), (12, 12, 9), (2, 2, 256)])
@pytest.mark.parametrize("width", [360, 1280])
def test_sizes_fit_the_window(read, findings, layers, heads, length, width):
    view = one_hot_view(steps=1, examples=1, layers=layers, heads=heads, length=length)
    page = read(replace(findings, figures=(), views=(view,)), width=width)
    assert page.locator(HEAD).count() == layers * heads
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(HEAD).first.bounding_box()["width"] > 15
    assert page.locator(LARGE).bounding_box()["width"] > 200


def test_letters_go_to_the_viewer_last_used(read, findings):
    page = read(replace(findings, figures=(), views=(one_hot_view(), one_hot_view())))
    second = page.locator(".attention-view").nth(1)
    second.locator(".head").first.click()
    page.keyboard.press("n")
    assert [page.locator(".attention-view").nth(i).get_attribute("data-example") for i in (0, 1)] == ["0", "1"]


def test_a_role_has_the_same_colour_on_every_page(read, findings):
    """Whichever role comes first, and whatever other roles there are."""

    def colours(*roles):
        tokens = tuple(Token(str(at), role) for at, role in enumerate(roles))
        view = AttentionView.of("t", [Example(tokens, (), "", "")], [0], np.zeros((1, 1, 1, 1, *[len(roles)] * 2)))
        page = read(replace(findings, figures=(), views=(view,)))
        chips = page.locator(".sequence li").evaluate_all("all => all.map(one => getComputedStyle(one).color)")
        return dict(zip(roles, chips, strict=True))

    pages = [
        colours("anchor", "key", "noise"), colours("key", "noise", "anchor"),
        colours("mine", "key", "yours", "query", "anchor"), colours("yours", "mine", "query"),
        colours("trigger", "output", "plain"),
    ]  # fmt: skip
    first = pages[0]
    assert len(set(first.values())) == 3
    assert [page[role] for page in pages[1:3] for role in ("anchor", "key")] == [first["anchor"], first["key"]] * 2
    assert (pages[4]["trigger"], pages[4]["output"]) == (first["anchor"], first["key"])
    assert len(set(pages[2].values())) == 5 and pages[3]["query"] == pages[2]["query"]
    assert len(set(pages[3].values())) == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(read, findings, scheme):
    labels = ((("shift 1", "uniform", "-", "self", "position 0", "matching"),),)
    examples = torch.tensor([[4, 5, 3, 6, 7, 8, 9, 10, 11]])
    live = live_view([stacked(identity_solver())], SOLVED, examples)
    circuits = ((ViewPath(1, 0, "asked → key", (((8, 3),),)),),)
    view = replace(live, labels=labels, recorded_only="It is too large.", circuits=circuits)
    page = read(replace(findings, figures=(), views=(view,)), scheme=scheme)
    assert contrasts(page, ".attention-view")[0][0] >= 4.5
    page.locator(".typed input").fill("7 8 3 9 10 11 4 5 6")
    page.get_by_role("radio", name="switched off").check()
    assert contrasts(page, ".attention-view")[0][0] >= 4.5
    page.locator(".typed input").fill("what")
    assert contrasts(page, ".attention-view")[0][0] >= 4.5


COMPARE = "select[aria-label='Compare with']"
PANES = ".attention-view .pane"


@pytest.fixture
def compared(read, findings):
    labels = (tuple(tuple(f"shift {step + head}" if head else "-" for head in range(6)) for step in range(3)),)
    opened = read(replace(findings, figures=(), views=(replace(one_hot_view(), labels=labels),)))
    opened.locator(COMPARE).select_option(label="member 0")
    return opened


def both_say(compared):
    return compared.locator(".attention-view .readout").all_inner_texts()


def test_a_second_pane_shows_another_checkpoint_with_a_slider_of_its_own(compared):
    assert compared.locator(f"{PANES} .which").all_inner_texts() == ["member 0, step 200", "member 0, step 0"]
    assert both_say(compared) == [
        "query 8 “28” attends most to key 6 “26” with weight 1.000",
        "query 8 “28” attends to key 6 “26” with weight 0.000, 1.000 less than member 0, step 200",
    ]
    drawn = compared.locator(f"{PANES} .large").evaluate_all("all => all.map(one => one.toDataURL())")
    assert drawn[0] != drawn[1]
    compared.get_by_label("Checkpoint compared with").fill("2")
    assert compared.locator(f"{PANES} .which").all_inner_texts() == ["member 0, step 200"] * 2
    assert both_say(compared)[1].endswith("with weight 1.000, the same as member 0, step 200")
    drawn = compared.locator(f"{PANES} .large").evaluate_all("all => all.map(one => one.toDataURL())")
    assert drawn[0] == drawn[1]
    compared.get_by_label("Checkpoint", exact=True).and_(compared.locator("input")).fill("1")
    assert compared.locator(f"{PANES} .which").all_inner_texts() == ["member 0, step 100", "member 0, step 200"]


def test_both_follow_the_pointer_and_the_head_chosen_in_either(compared):
    large = compared.locator(f"{PANES} .large").nth(1)
    large.focus()
    compared.keyboard.press("ArrowUp")  # from query 8, key 6
    compared.keyboard.press("ArrowRight")
    assert both_say(compared) == [
        "query 7 “27” attends to key 7 “27” with weight 0.000",
        "query 7 “27” attends to key 7 “27” with weight 1.000, 1.000 more than member 0, step 200",
    ]
    compared.locator(f"{PANES} .heads").nth(1).locator(".head").nth(4).click()
    assert compared.locator(f"{PANES} .detail h4").all_inner_texts() == ["Layer 1, head 1"] * 2
    assert compared.locator(f"{PANES} .head[aria-selected=true]").count() == 2
    compared.keyboard.press("ArrowLeft")
    assert compared.locator(f"{PANES} .detail h4").all_inner_texts() == ["Layer 1, head 0"] * 2
    assert (
        compared.evaluate("[...document.querySelectorAll('.heads')].indexOf(document.activeElement.closest('.heads'))")
        == 1
    )


def test_nothing_to_compare_with_closes_the_pane(compared):
    compared.locator(COMPARE).select_option(label="nothing")
    assert compared.locator(PANES).count() == 1
    assert compared.get_by_label("Checkpoint compared with").count() == 0
    assert both_say(compared) == ["query 8 “28” attends most to key 6 “26” with weight 1.000"]


def test_other_members_are_compared_from_the_same_checkpoint_and_long_names_shortened(read, findings):
    view = one_hot_view(steps=2)
    twice = replace(view, members=("seed 4", "seed 7"), weights=view.weights * 2, predicted=view.predicted * 2)
    compared = read(replace(findings, figures=(), views=(twice,)))
    compared.locator(COMPARE).select_option(label="seed 7")
    assert compared.locator(f"{PANES} .which").all_inner_texts() == ["seed 4, step 100", "seed 7, step 100"]
    assert both_say(compared)[1].endswith("the same as seed 4, step 100")
    labels = ((("broadcast from anchor+1", *["-"] * 5),),)
    compared = read(replace(findings, figures=(), views=(replace(one_hot_view(steps=1), labels=labels),)))
    assert compared.locator(".heads .label").first.inner_text() == "←anchor+1"
    assert compared.locator(".called").inner_text() == "broadcast from anchor+1"


def test_heads_carry_the_names_of_their_checkpoint(compared):
    first, second = (compared.locator(f"{PANES} .heads").nth(at) for at in (0, 1))
    assert first.locator(".label").all_inner_texts() == ["", *(f"shift {2 + head}" for head in range(1, 6))]
    assert second.locator(".label").all_inner_texts() == ["", *(f"shift {head}" for head in range(1, 6))]
    assert first.locator(".head").nth(1).get_attribute("aria-label") == "layer 0, head 1: shift 3"
    assert first.locator(".head").nth(0).get_attribute("aria-label") == "layer 0, head 0: no detector fires"
    first.locator(".head").nth(1).click()
    assert compared.locator(f"{PANES} .called").all_inner_texts() == ["shift 3", "shift 1"]


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


@pytest.fixture
def large_page(read, findings):
    view = replace(one_hot_view(layers=24, heads=8, length=64), recorded_only="Recorded only.")
    opened = read(replace(findings, figures=(), views=(view,)))
    opened.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")
    return opened


def test_what_is_out_of_sight_is_drawn_once_it_is_scrolled_to(large_page):
    before = drawn(large_page, 0), drawn(large_page, LAST)
    large_page.locator("input[type=range]").fill("0")
    assert drawn(large_page, 0) != before[0]
    assert drawn(large_page, LAST) == before[1]
    large_page.locator(HEAD).nth(LAST).scroll_into_view_if_needed()
    until(lambda: drawn(large_page, LAST) != before[1])


def test_a_page_is_printed_with_all_its_heads(large_page):
    before = drawn(large_page, LAST)
    large_page.locator("input[type=range]").fill("0")
    large_page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert drawn(large_page, LAST) != before


def test_arrow_keys_bring_far_heads_into_sight(large_page):
    large_page.locator(HEAD).first.focus()
    for _ in range(23):
        large_page.keyboard.press("ArrowDown")
    box, grid = large_page.locator(HEAD).nth(LAST - 7).bounding_box(), large_page.locator(".heads").bounding_box()
    assert large_page.locator(".detail h4").inner_text() == "Layer 23, head 0"
    assert grid["y"] <= box["y"] and box["y"] + box["height"] <= grid["y"] + grid["height"]
    for _ in range(18):
        large_page.keyboard.press("ArrowUp")
    numbers = large_page.locator(".head-name").first.bounding_box()  # they stay on top of what scrolls
    assert large_page.locator(HEAD).nth(5 * 8).bounding_box()["y"] >= numbers["y"] + numbers["height"] - 1


@pytest.mark.nightly
def test_it_stays_quick(large_page):
    """Ten times the bounds of an idle machine, 50 ms and 16 ms of script."""
    took = large_page.evaluate(TIMES)
    assert took["step"] < 500 and took["example"] < 500 and took["hover"] < 160, took


def test_it_says_why_there_is_no_live_model(large_page):
    assert large_page.locator(".recorded-only").inner_text() == "Recorded only."
    assert large_page.locator(".typed, .live").count() == 0
