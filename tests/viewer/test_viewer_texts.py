"""The attention viewer on texts, in headless Chromium: spaces are visible, heads are sorted by their scores."""

import numpy as np
import pytest

from anchorlab.report import show
from anchorlab.tasks.batch import Example, Token
from anchorlab.viewer import AttentionView, ViewScores

HEAD = ".attention-view .head"
TEXTS = (("The", " cat", "\n", " "), ("a", " b"))
SHIFT = (0.1, 0.9, 0.2, 0.5, 0.9, 0.0)
UNIFORM = (0.5, 0.1, 0.2, 0.3, 0.4, 0.6)


def made_view() -> AttentionView:
    """Two layers of three heads: query q attends to key (q + head + example) mod (q + 1), layer 1 by halves."""
    pattern = np.zeros((1, 1, 2, 2, 3, 4, 4))
    for example, layer, head, query in np.ndindex(2, 2, 3, 4):
        pattern[0, 0, example, layer, head, query, (query + head + example) % (query + 1)] = 1 / (1 + layer)
    shown = [Example(tuple(Token(text, "token") for text in texts), (), "", "") for texts in TEXTS]
    scores = [ViewScores("shift", ((SHIFT,),)), ViewScores("first_token", ((UNIFORM,),))]
    labels = [[["-", "shift 1", "-", "-", "shift 2", "first token"]]]
    return AttentionView.of("Cats", shown, [0], pattern, ["made"], labels=labels, causal=True, scores=scores)


@pytest.fixture
def page(visit, tmp_path):
    return visit(show(made_view()).save(tmp_path / "view.html"))


def names(page):
    """The heads in the order in which they are shown."""
    labels = page.locator(HEAD).evaluate_all("heads => heads.map((one) => one.getAttribute('aria-label'))")
    return [label.partition(":")[0] for label in labels]


def chosen(page):
    return page.locator(".detail h4").inner_text()


def sort_by(page, name):
    page.get_by_label("Sort heads by").and_(page.locator("select")).select_option(label=name)


def test_spaces_are_visible_and_weights_of_a_causal_view_at_their_places(page):
    assert page.locator(".sequence li > span").all_inner_texts() == ["The", "·cat", "⏎", "␣"]
    picker = page.get_by_label("Example", exact=True).and_(page.locator("select"))
    assert picker.locator("option").nth(1).inner_text() == "2: a b"
    readout = page.locator(".readout")
    page.locator(HEAD).nth(1).click()  # query 3, head 1, example 0: key (3 + 1) mod 4
    assert readout.inner_text() == "query 3 “␣” attends most to key 0 “The” with weight 1.000"
    page.keyboard.press("n")  # query 1, head 1, example 1: key 3 mod 2
    assert readout.inner_text() == "query 1 “·b” attends most to key 1 “·b” with weight 1.000"
    page.locator(HEAD).nth(5).click()  # layer 1, head 2: key 4 mod 2
    assert readout.inner_text() == "query 1 “·b” attends most to key 0 “a” with weight 0.500"


def test_heads_are_sorted_by_a_score_and_back(page):
    in_order = names(page)
    sort_by(page, "shift")
    assert names(page) == [in_order[at] for at in (1, 4, 3, 2, 0, 5)]
    assert page.locator(f"{HEAD} .label").all_inner_texts() == [
        "0.1 0.90", "1.1 0.90", "1.0 0.50", "0.2 0.20", "0.0 0.10", "1.2 0.00",
    ]  # fmt: skip
    assert page.locator(".layer-name").first.is_hidden()
    sort_by(page, "layer and head")
    assert names(page) == in_order
    assert page.locator(f"{HEAD} .label").all_inner_texts() == ["", "shift 1", "", "", "shift 2", "first token"]


def test_arrow_keys_move_in_the_order_shown(page):
    sort_by(page, "shift")
    page.locator(HEAD).first.click()
    assert chosen(page) == "Layer 0, head 1"
    for key, wanted in (
        ("ArrowRight", "Layer 1, head 1"),
        ("ArrowDown", "Layer 0, head 0"),
        ("End", "Layer 1, head 2"),
        ("ArrowDown", "Layer 1, head 2"),
        ("Home", "Layer 0, head 2"),
        ("ArrowUp", "Layer 0, head 1"),
    ):
        page.keyboard.press(key)
        assert chosen(page) == wanted, key


def test_the_key_s_goes_through_the_orders_and_keeps_the_focus(page):
    first = names(page)[0]
    page.locator(HEAD).nth(4).click()
    for wanted in ("Layer 0, head 1".lower(), "layer 1, head 2", first):
        page.keyboard.press("s")
        assert names(page)[0] == wanted
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "layer 1, head 1: shift 2"


def test_scores_of_a_head_are_shown_over_it_and_beside_its_map(page):
    hovered = page.locator(HEAD).nth(1)
    assert hovered.get_attribute("title") == "layer 0, head 1: shift 1\nshift 0.90 · first token 0.10"
    hovered.click()
    assert page.locator(".scores").inner_text() == "shift 0.90 · first token 0.10"


def test_a_view_without_scores_cannot_be_sorted(visit, tmp_path):
    view = AttentionView.of(
        "Cat", [Example((Token("a", "token"),), (), "", "")], [0], np.ones((1, 1, 1, 1, 1, 1)), causal=True
    )
    page = visit(show(view).save(tmp_path / "view.html"))
    assert page.get_by_label("Sort heads by").count() == 0 and page.locator(".scores").count() == 0
    page.keyboard.press("s")
    assert "sort heads" not in page.locator(".keys").inner_text()
