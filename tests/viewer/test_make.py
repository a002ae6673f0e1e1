"""Views made of trained runs and of other models' patterns, and where people see them."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import anchorlab as al
from anchorlab.errors import SiteError, SpecError
from anchorlab.report import Viewer, show
from anchorlab.training import Times, TrainedRun
from anchorlab.viewer import view_json, view_patterns, view_run
from tests.browser import until
from tests.lens.hand_built import ANCHOR, LENGTH, blank, identity_solver, stacked
from tests.viewer.viewer_scripts import SOLVED, live_view

SOLVER = al.DecoderSpec(layers=2, heads=3, width=45, head_width=12, layer_norm=False, feed_forward=False)
SOLVER_LABELS = ("shift 1", "shift 2", "uniform", "broadcast from anchor+1", "broadcast from anchor", "self")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A real run of three members, 0 to 20 steps, whose training hardly began."""
    recipe = al.Recipe(
        data=al.FixedSample(size=20),
        batch=10,
        duration=20,
        checkpoints=Times(every=2),
        evaluation=al.Evaluation(size=10),
    )
    store = al.Store(tmp_path_factory.mktemp("runs"))
    return al.train(SOLVED, SOLVER, recipe, seeds=(5, 6, 7), workers=1, store=store)


@pytest.fixture
def solved(run, monkeypatch):
    """The run with weights written by hand: nothing is known until the end, when member 1 solves the task."""

    def ensemble(self, step=None):
        last = blank(2) if step != run.checkpoints[-1] else identity_solver()
        return stacked(blank(2), last, blank(2))

    monkeypatch.setattr(TrainedRun, "ensemble", ensemble)
    return run


def recorded(view):
    """The patterns of a view, `[member step example layer head query key]`."""
    shape = (len(view.members), len(view.steps), len(view.examples), view.layers, view.heads, view.length, view.length)
    return np.frombuffer(view.weights, "<u2").reshape(shape) / 1000


def test_shows_two_members_eight_checkpoints_and_every_split(run):
    view = view_run(run)
    assert view.members == ("seed 5", "seed 6")
    assert len(run.checkpoints) == 11
    assert len(view.steps) == 8 and (view.steps[0], view.steps[-1]) == (0, 20)
    assert [one.split for one in view.examples] == ["train"] * 4 + ["test"] * 4
    train, test = (SOLVED.sample(split, 4, seed=0).inputs.tolist() for split in ("train", "test"))
    assert [one.texts for one in view.examples] == [tuple(map(str, tokens)) for tokens in train + test]


def test_labels_and_predictions_of_hand_built_members(solved):
    view = view_run(solved, members=[0, 1], steps=[10, 20], examples=2)
    assert view.labels[0] == (("uniform",) * 6,) * 2
    assert view.labels[1] == (("uniform",) * 6, SOLVER_LABELS)
    assert view.predicted[0] == (("0",) * 4,) * 2
    # the solver cannot answer if the anchor comes first, because no token is before it
    able = [one.texts[0] != str(ANCHOR) for one in view.examples]
    right = [said == one.answer for said, one in zip(view.predicted[1][1], view.examples, strict=True)]
    assert right == able and any(right)
    solver, sequence = recorded(view)[1, 1, 0], view.examples[0].texts
    assert np.array_equal(solver[0, 0, 1:].argmax(axis=-1), np.arange(LENGTH - 1))  # the shifting head
    assert solver[1, 0, -1].argmax() == sequence.index(str(ANCHOR)) + 1  # the broadcasting one reads the key


def test_takes_the_models_along_where_the_page_can_run_them(solved):
    live = view_run(solved, members=[1], steps=[10, 20], examples=1).live
    assert live is not None
    written = dict(identity_solver().named_parameters())
    expected = np.concatenate([written[weight.name].detach().numpy().ravel() for weight in live.weights])
    assert np.array_equal(np.frombuffer(live.data[0][1], "<f4"), expected.astype("<f4"))
    assert live.data[0][0] != live.data[0][1]
    assert view_run(solved, examples=1, live=False).live is None


def test_takes_fewer_checkpoints_along_where_all_would_be_heavy(run, monkeypatch):
    size = 4 * 3 * sum(value.numel() for value in identity_solver().parameters())
    monkeypatch.setattr("anchorlab.viewer.make._CARRIED", 3 * size)
    live = view_run(run, members=range(3), steps=[0, 4, 8, 12, 16, 20], examples=1).live
    assert [one is not None for one in live.data[0]] == [True, False, True, False, False, True]
    for room, members in ((size - 1, 2), (size / 3, 1), (1, 1)):
        monkeypatch.setattr("anchorlab.viewer.make._CARRIED", room)
        live = view_run(run, members=range(3), steps=[0, 20], examples=1).live
        carried = [[one is not None for one in member] for member in live.data]
        assert carried == [[False, True]] * members + [[False, False]] * (3 - members)


def test_a_page_of_the_default_size_has_two_megabytes(tmp_path):
    """Of the two layers of width 64 of the pages in the docs, along training."""
    recipe = al.Recipe(
        data=al.FixedSample(size=50), duration=8, checkpoints=Times(every=1), evaluation=al.Evaluation(size=10)
    )
    model = al.DecoderSpec(layers=2, heads=1, width=64)
    run = al.train("anchor/identity", model, recipe, seeds=2, workers=1, store=al.Store(tmp_path))
    assert len(run.checkpoints) == 9
    page = show(run)
    assert len(page.html.encode()) < 2_000_000
    assert [[one is not None for one in member] for member in page.view.live.data] == [[False] * 7 + [True]] * 2


def test_says_why_a_page_cannot_run_the_model(run, monkeypatch):
    monkeypatch.setattr("anchorlab.viewer.live.MOST_PARAMETERS", 10)
    view = view_run(run, examples=1, steps=[20])
    assert view.live is None
    assert re.fullmatch(r"Recorded examples only: model has \d+ parameters, more than 10\.", view.recorded_only)
    assert json.loads(view_json(view))["recorded_only"] == view.recorded_only


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"members": [3]}, r"members: the run has no 3; choose from 0, 1, 2"),
        ({"members": []}, r"members: is empty"),
        ({"steps": [20, 21]}, r"steps: the run has no 21; choose from 0, 2, 4"),
        ({"examples": 0}, r"examples: cannot show 0 sequences"),
    ],
)
def test_refuses_what_the_run_does_not_have(run, given, said):
    with pytest.raises(SpecError, match=said):
        view_run(run, **given)


def test_refuses_views_that_no_browser_would_bear(run, monkeypatch):
    monkeypatch.setattr("anchorlab.viewer.make.MOST_RECORDED", 10_000)
    with pytest.raises(SpecError, match="choose fewer members, steps or examples"):
        view_run(run)


def test_a_model_without_attention_has_no_view(tmp_path):
    recipe = al.Recipe(data=al.FixedSample(size=20), batch=10, duration=1, evaluation=al.Evaluation(size=10))
    run = al.train(SOLVED, al.LSTMSpec(width=4), recipe, seeds=[0], workers=1, store=al.Store(tmp_path))
    with pytest.raises(SiteError, match="hook_pattern"):
        view_run(run)


def shifting(heads, length, batch=1):
    """Patterns in which head h attends h + 1 back, or to the first token."""
    pattern = np.zeros((batch, heads, length, length), dtype=np.float32)
    for head, query in np.ndindex(heads, length):
        pattern[:, head, query, max(query - head - 1, 0)] = 1
    return pattern


@pytest.mark.parametrize("kind", ["numpy", "torch", "bfloat16 with gradients"])
def test_patterns_of_any_model(kind):
    pattern = shifting(2, 6, batch=2)
    if kind != "numpy":
        pattern = torch.tensor(pattern)
    if kind.startswith("bfloat16"):
        pattern = pattern.bfloat16().requires_grad_()
    tokens = [["the", "cat", "sat", "on", "the", "mat"], ["a", "b", "c", "d", "e", "f"]]
    view = view_patterns((pattern, pattern), tokens, title="Two layers")
    assert (view.title, view.layers, view.heads, view.members) == ("Two layers", 2, 2, ("model",))
    assert [one.texts for one in view.examples] == [tuple(row) for row in tokens]
    assert np.array_equal(recorded(view)[0, 0, 1, 0], shifting(2, 6)[0])
    assert view.labels == ((("shift 1", "shift 2") * 2,),)


def test_patterns_of_one_sequence_with_roles_and_repeated_tokens():
    view = view_patterns([shifting(1, 3)], ["x", "y", "z"], roles=["noise", "anchor", "key"])
    assert view.examples[0].roles == ("noise", "anchor", "key")
    tokens = ["a", "b", "c", "a", "d", "e", "b", "f"]
    pattern = np.zeros((1, 1, 8, 8), dtype=np.float32)
    for query, key in enumerate((0, 0, 0, 1, 0, 0, 2, 0)):  # from the second a and b to what followed the first
        pattern[0, 0, query, key] = 1
    uniform = np.tril(np.ones((1, 1, 8, 8), dtype=np.float32)) / np.arange(1, 9)[:, None]
    assert view_patterns([pattern, uniform], tokens).labels == ((("induction", "uniform"),),)


@pytest.mark.parametrize("given", [lambda one: torch.tensor(np.stack([one, one])), lambda one: [one] * 2])
def test_patterns_of_one_sequence_need_no_axis_for_it(given):
    """`[layer head query key]` in one array, or `[head query key]` per layer."""
    pattern, tokens = shifting(1, 3)[0], ["x", "y", "z"]
    assert al.attention(given(pattern), tokens).view == view_patterns([pattern[None]] * 2, tokens)


@pytest.mark.parametrize(
    ("patterns", "tokens", "said"),
    [
        ([shifting(1, 3)], ["a", "b"], "patterns: has layers of shape .* for 1 sequences of 2"),
        ([shifting(1, 3)], [["a", "b", "c"], ["a"]], "tokens: does not have 2 sequences of 3"),
        ([2 * shifting(1, 3)], ["a"] * 3, "has weights outside 0..1"),
        *(([shifting(1, 1)], tokens, "^tokens: has .* in a sequence") for tokens in ([], [[]], ["a"], [["a"]])),
    ],
)
def test_refuses_patterns_that_do_not_fit(patterns, tokens, said):
    with pytest.raises(SpecError, match=said):
        view_patterns(patterns, tokens)


def test_a_view_of_patterns_needs_no_answer_and_no_checkpoint(visit, tmp_path):
    page = visit(show(view_patterns([shifting(2, 5)], list("abcde"))).save(tmp_path / "view.html"))
    assert page.locator(".prediction").inner_text() == ""
    assert page.locator(".roles").is_hidden()
    assert page.get_by_label("Checkpoint").count() == 0
    assert page.locator(".readout").inner_text() == "query 4 “e” attends most to key 3 “d” with weight 1.000"


def solver_view():
    examples = torch.tensor([[4, 5, 3, 6, 7, 8, 9, 10, 11]])
    return live_view([stacked(identity_solver())], SOLVED, examples)


def test_a_saved_page_works_offline_from_a_file(visit, tmp_path):
    view = replace(solver_view(), title="<b>Solver</b> & friends")
    path = show(view).save(tmp_path / "view.html")
    page = visit(path)
    assert page.title() == "<b>Solver</b> & friends" == page.locator("h1").inner_text()
    page.locator(".typed input").fill("7 8 3 9 10 11 4 5 6")
    assert page.locator(".prediction").inner_text() == "answer 9 · predicted 9 ✓"
    assert not re.search(r"""(?:src|href)=["'](?!#)""", path.read_text())


def test_draws_itself_in_a_notebook(browser):
    """In a frame inside a page, which grows to the height of what it holds."""
    page = browser.new_context(viewport={"width": 900, "height": 700}).new_page()
    page.set_content(f"<h1>Cell</h1><div>{show(solver_view())._repr_html_()}</div>")
    frame = page.frame_locator("iframe")
    frame.locator(".head").nth(3).click()
    assert frame.locator(".detail h4").inner_text() == "Layer 1, head 0"
    frame.get_by_role("radio", name="switched off").check()
    assert "layer 1, head 0: switched off" in frame.locator(".edits").inner_text()
    fits = """() => {
      const frame = document.querySelector('iframe'), inside = frame.contentDocument.documentElement;
      return frame.clientHeight >= inside.scrollHeight && frame.clientHeight < inside.scrollHeight + 40;
    }"""
    until(lambda: page.evaluate(fits))
    page.context.close()


def test_a_run_is_shown_as_it_is_viewed_by_default(run):
    shown = show(run)
    assert isinstance(shown, Viewer)
    assert shown.view == view_run(run)
    assert repr(shown).startswith("Viewer('Attention of ")
    assert shown.html == show(shown.view).html
