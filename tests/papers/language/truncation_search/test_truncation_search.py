"""The study of the truncation search: a model whose loud matrix is known, and controls that fail when they should."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anchorlab.language.answers import Questions
from anchorlab.language.prompts import split_by_unit
from anchorlab.language.truncation_controls import TruncationControls
from anchorlab.language.truncations import search_truncations
from anchorlab.models import Truncate
from anchorlab.papers.language.laser import Laser, ask_both
from anchorlab.papers.language.truncation_search import asking, truncation_search
from anchorlab.papers.language.truncation_search.asking import ObservedSearch, Seen, Setting
from anchorlab.studies import ObservationContext
from tests.language.spoken import DIVIDED, LAYERS, LOUD, PROMPTS, divided, spoken, token
from tests.papers.hand_made_runs import values_of
from tests.papers.language.noise.test_noise import PROMPTS as HALF
from tests.papers.language.noise.test_noise import answers


def controls(gain: float, others: float, random: float, perplexity: float, the: float = 0.1) -> TruncationControls:
    """The right word, the others and the random changes raised by factors; the perplexity is 20 before."""
    full = answers(0.1, 0.4)
    cut = answers(0.1 * gain, the, others=0.1 * others)
    drawn = torch.stack([answers(0.1 * random, 0.4).right] * 4)
    each = {name: value.expand(4, *value.shape) for name, value in full.tensors.items()}
    random_answers = replace(full, **each | {"right": drawn, "others": drawn})
    losses = torch.tensor([[20.0, 20.0]]).log()
    cut_losses = torch.tensor([[perplexity, perplexity]]).log()
    return TruncationControls(
        Truncate(weight="blocks.2.mlp.W_in", fraction=0.01), full, cut, random_answers, losses, cut_losses
    )


@pytest.mark.parametrize(
    ("made", "claim", "value"),
    [
        (controls(3, 1.5, 1, 20), "the-falls", 0.25),
        (controls(3, 1.5, 1, 20), "beats-random-changes", 1),
        (controls(3, 1.5, 4, 20), "beats-random-changes", 0),  # any change of that size does as much
        (controls(0.5, 0.5, 0.1, 20), "beats-random-changes", 0),  # it only ruins less than the others
        (controls(3, 1.5, 1, 20), "right-over-others", 0.6931),
        (controls(3, 6, 1, 20), "right-over-others", -0.6931),  # all countries rise, the wrong ones more
        (controls(0.5, 0.1, 1, 20), "right-over-others", None),  # nothing rises
        (controls(3, 1.5, 1, 21), "text-is-spared", 1.05),
        (controls(3, 1.5, 1, 40), "text-is-spared", 2),
    ],
)
def test_claims_on_the_second_half(made, claim, value):
    found = values_of(truncation_search.STUDY, Seen(None, made, HALF, {}))
    assert found[claim] == (None if value is None else pytest.approx(value, rel=1e-3))
    assert found["deep-feed-forward"] is found["low-rank"] is found["feed-forward-over-attention"] is None


@pytest.mark.slow
def test_the_study_finds_the_loud_matrix_of_a_model_made_by_hand():
    asked = Questions(spoken(), PROMPTS)
    search = search_truncations(asked, fractions=(0.0, 0.5))
    lasers = {
        "best of feed-forward layers": ask_both(asked, search.best("**.mlp.*")),
        "best of attention": ask_both(asked, search.best("**.attn.*")),
    }
    chosen = replace(controls(3, 1, 1, 20), truncation=search.best())
    found = values_of(truncation_search.STUDY, Seen(search, chosen, HALF, lasers))
    assert found["deep-feed-forward"] == pytest.approx((LOUD + 1) / LAYERS)
    assert found["low-rank"] == 0.0
    assert found["feed-forward-over-attention"] > 0.5
    in_attention = replace(chosen, truncation=Truncate(weight="blocks.2.attn.W_V", fraction=0.0))
    assert values_of(truncation_search.STUDY, Seen(search, in_attention, HALF, lasers))["deep-feed-forward"] == 0


def test_attention_may_be_the_better_one():
    better, worse = (Laser("", HALF, answers(0.1, 0.4), answers(right, 0.4)) for right in (0.2, 0.1))
    seen = Seen(None, controls(1, 1, 1, 20), HALF, {"best of feed-forward layers": worse, "best of attention": better})
    assert values_of(truncation_search.STUDY, seen)["feed-forward-over-attention"] == pytest.approx(-0.6931, rel=1e-3)


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> tuple[ObservedSearch, Path]:
    folder = tmp_path_factory.mktemp("partial")
    setting = truncation_search.STUDY.profile("smoke").setting
    return asking.observe(setting, ObservationContext(folder)), folder


@pytest.mark.slow
def test_maps_have_a_row_for_each_layer_and_one_for_each_kind_of_matrix(observed):
    seen = observed[0].seen
    analysis = truncation_search.STUDY.analysis(observed[0], Setting())
    right = analysis.figures[0]
    assert [[one.title for one in row] for row in right.maps] == [
        ["attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O"],
        ["mlp.W_in", "mlp.W_gate", "mlp.W_out"],
    ]
    place = seen.search.weights.index("blocks.2.mlp.W_in")
    change = seen.search.answers.right[place].exp().mean(-1) - seen.search.full.right.exp().mean()
    assert right.maps[1][0].values[2] == pytest.approx(change.tolist())
    assert right.maps[1][0].column_ticks == ("0", "0.1")


@pytest.mark.slow
def test_a_second_observation_reads_what_the_first_has_kept(observed):
    first, folder = observed
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = asking.observe(truncation_search.STUDY.profile("smoke").setting, ObservationContext(folder))
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert again.sentences == first.sentences
    assert again.seen.controls.gain == first.seen.controls.gain
    assert again.untrained.controls.gain == first.untrained.controls.gain


def test_sentences_are_of_the_second_half_and_continued_by_the_models(observed):
    asked = {(prompt.answer, prompt.text) for prompt in observed[0].seen.prompts}
    for answer, *told in observed[0].sentences:
        (text,) = {text for right, text in asked if right == answer and told[0].startswith(text)}
        assert told[1].startswith(text)


def test_a_truncation_is_chosen_on_one_half_and_reported_on_the_other(monkeypatch, tmp_path):
    """What helps one country takes the other's answers away: the half that is reported loses by the choice."""
    monkeypatch.setattr(asking, "open_model", lambda setting, context: divided())
    monkeypatch.setattr(asking, "facts", lambda *given: PROMPTS)
    page = torch.tensor([[token("Madrid"), token("is")]])
    monkeypatch.setattr(asking, "windows", lambda *given: page)
    _, second = split_by_unit(PROMPTS)
    setting = Setting(fractions=(0.0,), draws=1, checked=1, told=1, continued=1)
    seen = asking.observe(setting, ObservationContext(tmp_path)).seen
    spoilt = DIVIDED[str(second[0].answer)]
    assert seen.best in [Truncate(weight=name, fraction=0.0) for name in (spoilt, spoilt.replace("in", "out"))]
    assert len(seen.controls.full.right) == len(second)
    assert seen.controls.gain < -0.5
