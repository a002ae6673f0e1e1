"""The circuit of the attention viewer: where a run's paths lie, and what its arrows do in headless Chromium."""

from dataclasses import replace

import pytest
import torch
from playwright.sync_api import expect

import anchorlab as al
from anchorlab.lens import AttentionRule, Circuit, CircuitPath, Explanation
from anchorlab.viewer import ViewPath, view_run
from tests.lens.hand_built import ANCHOR, identity_solver, stacked
from tests.report.hand_made_findings import one_hot_view
from tests.viewer.test_viewer import LARGE, said, state
from tests.viewer.viewer_scripts import SOLVED, live_view

SPEC = al.DecoderSpec(layers=2, heads=2, width=4, head_width=2, layer_norm=False, feed_forward=False)
ARROW, SAID = ".attention-view .circuit .path", ".attention-view .circuit-said"


def path(layer, head, *places):
    return ViewPath(layer, head, f"role {layer} → key {head}", (places, ()))


VIEW = replace(one_hot_view(), circuits=((path(0, 1, (4, 3), (6, 5)), path(1, 2, (8, 4)), path(0, 0, (8, 8))),))
"""At the last of three steps, head h of layer l gives weight 1/(1 + l) to the position h + 2 before the query."""


def circuit(*rules):
    paths = tuple(
        CircuitPath(at, 1, rule, attention=0.9, cut_loss=1.0, mapped_cut_loss=1.0) for at, rule in enumerate(rules)
    )
    explanations = {(one.layer, one.head): Explanation("uniform", (one.rule,)) for one in paths}
    losses = dict.fromkeys(("model_loss", "loss", "live_loss"), 0.1)
    return Circuit(explanations, paths, ("anchor 1", "key 1", "asked"), 0.2, **losses, empty_loss=2.0, rest_loss=1.0)


@pytest.fixture
def page(read, findings):
    return read(replace(findings, figures=(), views=(VIEW,)))


def test_a_runs_paths_lie_where_its_rules_send_each_example(tmp_path):
    recipe = al.Recipe(data=al.FixedSample(size=20), batch=10, duration=1, evaluation=al.Evaluation(size=10))
    run = al.train(SOLVED, SPEC, recipe, seeds=(0, 1), workers=1, store=al.Store(tmp_path))
    one, other = (
        circuit(AttentionRule("key 1", "anchor 1"), AttentionRule("asked", "key 1")),
        circuit(AttentionRule("every position", 2)),
    )
    view = view_run(run, steps=[1], examples=3, circuits=[one, other])
    assert [[(one.layer, one.head, one.text) for one in paths] for paths in view.circuits] == [
        [(0, 1, "key 1 → anchor 1 (loss 1 when cut)"), (1, 1, "asked → key 1 (loss 1 when cut)")],
        [(0, 1, "every position → 2 before (loss 1 when cut)")],
    ]
    (matching, answering), (shifting,) = view.circuits
    assert len(view.examples) == 6
    for index, example in enumerate(view.examples):
        anchor = example.texts.index(str(ANCHOR))
        assert matching.places[index] == ((anchor + 1, anchor),)
        assert answering.places[index] == ((8, anchor + 1),)
        assert shifting.places[index] == tuple((query, query - 2) for query in range(2, 9))
    assert view_run(run, steps=[1], examples=1).circuits == ()
    with pytest.raises(ValueError, match=r"view\.circuits: has 1 circuits for 2 members"):
        view_run(run, steps=[1], circuits=[one])


def test_a_click_goes_to_the_head_and_the_query_of_a_path(page):
    assert page.locator(ARROW).count() == 4
    assert page.locator(".circuit h4").inner_text() == "Circuit: 3 paths in 3 heads"
    assert page.locator(".circuit .layer-of").all_text_contents() == ["layer 0", "layer 1"]
    arrow = page.get_by_role("button", name="role 1 → key 2")
    arrow.locator("circle").hover()
    told = "layer 1, head 2: role 1 → key 2, here query 8 “28” attends to key 4 “24” with weight 0.500"
    assert page.locator(SAID).inner_text() == told
    assert state(page)["head"] == 0
    arrow.locator("circle").click()
    assert state(page) == {"step": 2, "example": 0, "layer": 1, "head": 2}
    assert said(page) == "query 8 “28” attends to key 4 “24” with weight 0.500"
    assert [one.get_attribute("aria-pressed") for one in page.locator(ARROW).all()] == [
        "false", "false", "true", "false",
    ]  # fmt: skip
    page.mouse.move(0, 0)
    assert page.locator(SAID).inner_text().startswith("Stronger arrows carry more attention")


def test_tab_goes_over_paths_arrows_over_their_places_and_enter_follows(page):
    page.locator(ARROW).first.focus()
    page.keyboard.press("ArrowRight")
    assert "query 6 “26” attends to key 5 “25”" in page.locator(SAID).inner_text()
    page.keyboard.press("Enter")
    assert state(page) | {"step": 0} == {"step": 0, "example": 0, "layer": 0, "head": 1}
    assert said(page) == "query 6 “26” attends to key 5 “25” with weight 0.000"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.path") == "1.2 8 4"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.path") == "1.2 8 4"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.path") == "0.0 8 8"


def test_arrows_are_as_strong_as_attention_at_each_checkpoint_and_follow_the_example(page):
    def strengths():
        return page.locator(ARROW).evaluate_all("all => all.map(one => one.style.getPropertyValue('--strength'))")

    assert strengths() == ["0.200", "0.200", "0.600", "0.200"]
    page.locator("input[type=range]").fill("0")  # now to the position h before
    assert strengths() == ["1.000", "1.000", "0.200", "1.000"]
    page.locator("h1").click()
    page.keyboard.press("n")
    assert page.locator(ARROW).count() == 0  # no path runs in the second example


def test_nothing_is_shown_without_circuits_and_each_model_has_its_own(read, findings):
    plain = replace(findings, figures=())
    page = read(plain)
    assert page.locator(LARGE).count() == 1 and page.locator(".circuit").count() == 0
    bare = one_hot_view(steps=1)
    both = replace(
        bare,
        members=("a", "b"),
        weights=2 * bare.weights,
        predicted=(),
        circuits=(VIEW.circuits[0][:1], VIEW.circuits[0]),
    )
    page = read(replace(plain, views=(both,)), scheme="dark")
    page.get_by_label("Compare with").and_(page.locator("select")).select_option("2")
    assert page.locator(".circuit h4").all_inner_texts() == ["Circuit: 1 path in 1 head", "Circuit: 3 paths in 3 heads"]
    colours = page.locator(".circuit .line").evaluate_all("all => all.map(one => getComputedStyle(one).stroke)")
    assert colours[0] == colours[2] == "rgb(88, 177, 239)"  # the first head has the dark page's first colour


def test_fits_a_narrow_window_with_many_tokens_and_layers(read, findings):
    long = one_hot_view(steps=1, examples=1, layers=12, heads=1, length=256)
    places = tuple((query, query - 30) for query in range(100, 250, 30))
    view = replace(long, circuits=((ViewPath(3, 0, "a → b", (places,)), ViewPath(11, 0, "c → d", (((255, 99),),))),))
    page = read(replace(findings, figures=(), views=(view,)), width=360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator(".circuit .token").all_text_contents() == [
        str(20 + at) for at in (70, 99, *range(100, 250, 30), 255)
    ]
    assert page.locator(".circuit svg").bounding_box()["height"] < 300


def test_typed_sequences_have_no_places(read, findings):
    live = live_view([stacked(identity_solver())], SOLVED, torch.tensor([[4, 5, 3, 6, 7, 8, 9, 10, 11]]))
    view = replace(live, circuits=((ViewPath(1, 0, "asked → key 1", (((8, 3),),)),),))
    page = read(replace(findings, figures=(), views=(view,)))
    arrow = page.locator(ARROW)
    assert "with weight 1.000" in arrow.get_attribute("aria-label")
    arrow.locator("circle").click()
    page.get_by_role("radio", name="uniform pattern").check()
    assert "with weight 0.111" in arrow.get_attribute("aria-label")
    page.locator(".typed input").fill("7 8 3 9 10 11 4 5 6")
    expect(arrow).to_have_count(0)  # the page draws again after the input
    assert "recorded examples only" in page.locator(SAID).inner_text()
