"""The claims of the study of heads, on scores made by hand, and its texts."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from anchorlab.language import pretrained
from anchorlab.language.page import english_page
from anchorlab.studies import Workplace, study
from anchorlab.studies.language import heads
from anchorlab.studies.language.head_scores import ScoredHeads, score_heads
from anchorlab.studies.language.heads import Seen, Setting, layer_groups, observe, texts
from anchorlab.studies.language.heads_figures import shown, tables
from anchorlab.studies.language.opening import open_model
from anchorlab.studies.language.removal import Predictions, WithoutHeads

NAMES = ("shift", "self", "first token", "broadcast", "any source", "uniform", "matching", "induction")
LAYERS, HEADS = 6, 4


def scores(distance: int = 1, similarity: float = 0.0, **given: dict[int, float]) -> ScoredHeads:
    """Scores of 0 but where they are given: by detector and layer, the score of that layer's first two heads."""
    found = {name: torch.zeros(LAYERS, HEADS) for name in NAMES}
    for name, layers in given.items():
        for layer, value in layers.items():
            found[name.replace("_", " ")][layer, :2] = value
    alike = torch.zeros(LAYERS)
    alike[-2:] = similarity
    return ScoredHeads(
        found,
        dict.fromkeys(NAMES, 0.1),
        torch.full((LAYERS, HEADS), distance),
        torch.zeros(LAYERS, 3, HEADS, dtype=torch.int64),
        alike,
    )


def seen(english: ScoredHeads | None = None, repeated: ScoredHeads | None = None, **others: object) -> Seen:
    return Seen(english or scores(), repeated or scores(), 3.0, {4: 3.05, 1: 5.0}, **others)


EARLY, LATE = {0: 0.9, 1: 0.8}, {4: 0.8, 5: 0.9}


def test_common_heads_are_counted():
    assert heads.shift_heads(seen(scores(shift=EARLY))).value == pytest.approx(4 / 24)
    assert heads.shift_heads(seen(scores(shift={0: 0.54}))).value == 0  # halfway from chance to 1 is 0.55
    assert heads.broadcast_heads(seen(scores(broadcast=LATE))).value == pytest.approx(4 / 24)


def test_a_head_at_the_first_token_does_not_broadcast():
    given = scores(broadcast=LATE, first_token={4: 0.9})
    assert heads.broadcast_heads(seen(given)).value == pytest.approx(2 / 24)


@pytest.mark.parametrize(
    ("measure", "detector"),
    [
        (heads.shift_shallow, "shift"),
        (heads.broadcast_deep, "broadcast"),
        (heads.any_source_deep, "any_source"),
    ],
)
def test_depth_is_a_rank_correlation(measure, detector):
    rising = replace(scores(), scores={detector.replace("_", " "): torch.arange(24.0).reshape(6, 4)})
    assert measure(seen(rising)).value > 0.95
    falling = replace(rising, scores={name: -value for name, value in rising.scores.items()})
    assert measure(seen(falling)).value < -0.95
    assert measure(seen(scores())).value is None  # no order among equal scores
    assert (
        measure(seen(scores(**{detector: EARLY}))).value < -0.5 < 0.5 < measure(seen(scores(**{detector: LATE}))).value
    )


def test_similarity_of_the_last_third_against_the_first():
    assert heads.similar_deep(seen(scores(similarity=0.7))).value == pytest.approx(0.7)


def test_the_deepest_group_of_layers_is_judged():
    assert heads.deep_removable(seen()).value == pytest.approx(0.05)
    assert heads.deep_removable(replace(seen(), loss_without={})).value is None


def test_induction_and_the_previous_token():
    assert heads.induction_heads(seen(repeated=scores(induction={3: 0.8}))).value == pytest.approx(0.8)

    def layers(distance: int = 1, **given: dict[int, float]) -> float | None:
        return heads.previous_token_first(seen(repeated=scores(distance, **given))).value

    assert layers(shift={1: 0.9, 4: 0.9}, induction={3: 0.8}) == 2
    assert layers(shift={4: 0.9}, induction={3: 0.8}) == -1
    assert layers(shift={1: 0.9}) is None
    assert layers(distance=2, shift={1: 0.9}, induction={3: 0.8}) is None


def test_removals_are_judged_by_the_draws():
    unchanged = Predictions(3.0, 0.6, 0.7)
    draws = [Predictions(3.1, 0.5, 0.6), Predictions(3.3, 0.3, 0.4)]
    without = WithoutHeads(((0, 0),), unchanged, Predictions(3.2, 0.2, 0.5), draws)
    measured = [heads.shift_matters, heads.shift_matters_for_repetition, heads.shift_feeds_induction]
    assert [measure(seen(without=without)).value for measure in measured] == [0.5, 1, 0.5]
    assert "3 becomes 3.2; with others removed 3.2, 3.1 to 3.3" in heads.shift_matters(seen(without=without)).detail
    assert [measure(seen()).value for measure in measured] == [None] * 3
    nothing = replace(without, unchanged=Predictions(3.0, 0.6, float("nan")))
    assert heads.shift_feeds_induction(seen(without=nothing)).value is None


def test_groups_of_layers_end_before_the_last():
    assert layer_groups(8, 3) == [range(4, 7), range(1, 4)]
    assert layer_groups(3, 3) == []


def test_texts_fit_the_model_and_follow_the_token_between_documents(tmp_path):
    setting = Setting("tiny", None, length=20, texts=3, half=7, sequences=2)
    model = open_model(setting, Workplace(tmp_path))
    english, repeated = texts(setting, model)  # the tiny model has no such token
    assert english.shape == (3, 20)
    assert english_page().text.startswith("".join(model.words(english.flatten())))
    assert repeated.inputs.shape == (2, 14)
    assert torch.equal(repeated.inputs[:, :7], repeated.inputs[:, 7:])


def test_a_head_without_shift_leaves_the_removal_out(tmp_path):
    """The tiny random model has no head that shifts; everything else is measured."""
    setting = study("language/heads").profile("smoke").setting
    told = []
    observed = observe(setting, Workplace(tmp_path, told.append))
    assert observed.seen.without is None
    assert observed.seen.loss > 0 and list(observed.seen.loss_without) == [1, 0]
    assert list(observed.untrained.loss_without) == [1]
    assert [status.done for status in told] == sorted(status.done for status in told)
    assert all(status.done <= status.total for status in told)
    assert observed.seen.loss != observed.untrained.loss
    assert (observed.view.layers, observed.view.heads, observed.view.length) == (3, 4, setting.length)


def test_examples_are_the_sentence_and_the_piece_with_the_largest_broadcast(tmp_path):
    setting = replace(study("language/heads").profile("smoke").setting, length=30)
    model = open_model(setting, Workplace(tmp_path))
    pieces = texts(setting, model)[0]
    sentence, piece = heads.examples(model, score_heads(model, pieces), pieces).texts
    assert "".join(sentence.tokens) == shown("My name is John. What is my name? Your name is")
    assert "".join(piece.tokens) in [shown("".join(model.words(one[:16]))) for one in pieces]
    for one in (sentence, piece):
        assert [name.partition(":")[0] for name in one.patterns] == ["shift", "broadcast", "first token"]
        for pattern in one.patterns.values():
            assert pattern.shape == (len(one.tokens),) * 2
            torch.testing.assert_close(pattern.sum(dim=1), torch.ones(len(one.tokens)))


def test_spaces_and_breaks_of_tokens_are_shown():
    assert shown(" the\n") == "␣the⏎"


def test_the_sources_of_broadcasting_heads_are_counted():
    given = scores(broadcast={2: 0.9})
    given.sources[2, :, :2] = torch.tensor([[7, 7], [7, 7], [7, 8]])
    words = {0: "zero", 7: "seven", 8: "eight"}
    found = tables(given, scores(), scores(), None, heads.Examples([], words))[-1]
    assert found.rows == (("seven", pytest.approx(5 / 6)), ("eight", pytest.approx(1 / 6)))
    assert "2.0, 2.1" in found.caption


def test_pieces_of_smollm2_follow_its_token_between_documents(smollm2: Path):
    model = pretrained(smollm2)
    english, repeated = texts(Setting(length=10, texts=3, half=5, sequences=2), model)
    assert (english.shape, repeated.inputs.shape) == ((3, 11), (2, 11))
    for inputs in (english, repeated.inputs):
        assert set(model.words(inputs[:, 0])) == {"<|endoftext|>"}
    assert not set(repeated.inputs[:, 1:].flatten().tolist()) & set(model.tokenizer.all_special_ids)


def test_a_language_model_has_induction_heads_behind_heads_that_shift(smollm2: Path):
    """In SmolLM2-135M: heads of layers 17 to 24 induce, the first that shift are in layers 1 and 2."""
    model = pretrained(smollm2)
    found = score_heads(model, texts(Setting(half=24, sequences=4), model)[1].inputs)
    induction = found.heads("induction")
    assert induction and {layer for layer, _ in induction} <= set(range(16, 26))
    assert (1, 2) in found.heads("shift") and int(found.distance[1, 2]) == 1
    assert found.scores["shift"][16, 0] > 0.7
