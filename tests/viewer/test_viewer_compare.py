"""Two panes side by side, and the names of heads: the same sequence, head and weight in both."""

from dataclasses import replace

import pytest

from tests.report.hand_made_findings import one_hot_view

COMPARE = "select[aria-label='Compare with']"
PANES = ".attention-view .pane"


@pytest.fixture
def page(read, findings):
    labels = (tuple(tuple(f"shift {step + head}" if head else "-" for head in range(6)) for step in range(3)),)
    opened = read(replace(findings, figures=(), views=(replace(one_hot_view(), labels=labels),))).page
    opened.locator(COMPARE).select_option(label="member 0")
    return opened


def said(page):
    return page.locator(".attention-view .readout").all_inner_texts()


def test_a_second_pane_shows_another_checkpoint(page):
    assert page.locator(f"{PANES} .which").all_inner_texts() == ["member 0, step 200", "member 0, step 0"]
    assert said(page) == [
        "query 8 “28” attends most to key 6 “26” with weight 1.000",
        "query 8 “28” attends to key 6 “26” with weight 0.000, 1.000 less than member 0, step 200",
    ]
    drawn = page.locator(f"{PANES} .large").evaluate_all("all => all.map(one => one.toDataURL())")
    assert drawn[0] != drawn[1]


def test_its_own_slider_moves_the_second_pane_alone(page):
    page.get_by_label("Checkpoint compared with").fill("2")
    assert page.locator(f"{PANES} .which").all_inner_texts() == ["member 0, step 200"] * 2
    assert said(page)[1].endswith("with weight 1.000, the same as member 0, step 200")
    drawn = page.locator(f"{PANES} .large").evaluate_all("all => all.map(one => one.toDataURL())")
    assert drawn[0] == drawn[1]
    page.get_by_label("Checkpoint", exact=True).and_(page.locator("input")).fill("1")
    assert page.locator(f"{PANES} .which").all_inner_texts() == ["member 0, step 100", "member 0, step 200"]


def test_both_follow_the_pointer_over_either(page):
    large = page.locator(f"{PANES} .large").nth(1)
    large.focus()
    page.keyboard.press("ArrowUp")  # from query 8, key 6
    page.keyboard.press("ArrowRight")
    assert said(page) == [
        "query 7 “27” attends to key 7 “27” with weight 0.000",
        "query 7 “27” attends to key 7 “27” with weight 1.000, 1.000 more than member 0, step 200",
    ]


def test_a_head_chosen_in_one_is_shown_in_both(page):
    page.locator(f"{PANES} .heads").nth(1).locator(".head").nth(4).click()
    assert page.locator(f"{PANES} .detail h4").all_inner_texts() == ["Layer 1, head 1"] * 2
    assert page.locator(f"{PANES} .head[aria-selected=true]").count() == 2
    page.keyboard.press("ArrowLeft")
    assert page.locator(f"{PANES} .detail h4").all_inner_texts() == ["Layer 1, head 0"] * 2
    assert (
        page.evaluate("[...document.querySelectorAll('.heads')].indexOf(document.activeElement.closest('.heads'))") == 1
    )


def test_nothing_to_compare_with_closes_the_pane(page):
    page.locator(COMPARE).select_option(label="nothing")
    assert page.locator(PANES).count() == 1
    assert page.get_by_label("Checkpoint compared with").count() == 0
    assert said(page) == ["query 8 “28” attends most to key 6 “26” with weight 1.000"]


def test_other_members_are_compared_from_the_same_checkpoint(read, findings):
    view = one_hot_view(steps=2)
    twice = replace(view, members=("seed 4", "seed 7"), weights=view.weights * 2, predicted=view.predicted * 2)
    page = read(replace(findings, figures=(), views=(twice,))).page
    page.locator(COMPARE).select_option(label="seed 7")
    assert page.locator(f"{PANES} .which").all_inner_texts() == ["seed 4, step 100", "seed 7, step 100"]
    assert said(page)[1].endswith("the same as seed 4, step 100")


def test_heads_carry_the_names_of_their_checkpoint(page):
    first, second = (page.locator(f"{PANES} .heads").nth(at) for at in (0, 1))
    assert first.locator(".label").all_inner_texts() == ["", *(f"shift {2 + head}" for head in range(1, 6))]
    assert second.locator(".label").all_inner_texts() == ["", *(f"shift {head}" for head in range(1, 6))]
    assert first.locator(".head").nth(1).get_attribute("aria-label") == "layer 0, head 1: shift 3"
    assert first.locator(".head").nth(0).get_attribute("aria-label") == "layer 0, head 0: no detector fires"
    first.locator(".head").nth(1).click()
    assert page.locator(f"{PANES} .called").all_inner_texts() == ["shift 3", "shift 1"]


def test_long_names_are_shortened_under_the_map_alone(read, findings):
    labels = ((("broadcast from anchor+1", *["-"] * 5),),)
    page = read(replace(findings, figures=(), views=(replace(one_hot_view(steps=1), labels=labels),))).page
    assert page.locator(".heads .label").first.inner_text() == "←anchor+1"
    assert page.locator(".called").inner_text() == "broadcast from anchor+1"
