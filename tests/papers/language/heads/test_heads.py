"""The claims of the study of heads, on scores made by hand, and its texts."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("transformers")

from anchorlab.language import pretrained
from anchorlab.language.sample_text import english_page
from anchorlab.papers.language.heads import heads, observing
from anchorlab.papers.language.heads.examples import Example, Examples, examples, shown
from anchorlab.papers.language.heads.observing import ObservedHeads, Seen, Setting, observe, texts
from anchorlab.papers.language.heads.overview import figures, tables
from anchorlab.papers.language.heads.removal import Predictions, WithoutHeads
from anchorlab.papers.language.heads.scores import ScoredHeads, reached_by_chance, score_heads
from anchorlab.papers.pretrained.opening import open_model
from anchorlab.studies import ObservationContext, study

NAMES = ("shift", "self", "first token", "broadcast", "any source", "uniform", "matching", "induction")
LAYERS, HEADS, TEXTS = 6, 4, 3


def scores(distance: int = 1, similarity: float = 0.0, **given: dict[int, float]) -> ScoredHeads:
    """Scores of 0 but where they are given: by detector and layer, the score of that layer's first two heads."""
    found = {name: torch.zeros(LAYERS, HEADS) for name in NAMES}
    for name, layers in given.items():
        for layer, value in layers.items():
            found[name.replace("_", " ")][layer, :2] = value
    alike = torch.zeros(TEXTS, LAYERS)
    alike[:, -2:] = similarity
    return of_texts({name: one.expand(TEXTS, LAYERS, HEADS) for name, one in found.items()}, distance, alike)


def of_texts(by_text: dict[str, torch.Tensor], distance: int = 1, alike: torch.Tensor | None = None) -> ScoredHeads:
    """Scores that are given for each text."""
    texts = len(by_text["shift"])
    return ScoredHeads(
        {name: one.mean(dim=0) for name, one in by_text.items()},
        by_text,
        dict.fromkeys(NAMES, 0.1),
        torch.full((LAYERS, HEADS), distance),
        torch.zeros(LAYERS, texts, HEADS, dtype=torch.int64),
        torch.zeros(texts, LAYERS, HEADS, dtype=torch.bool),
        torch.zeros(texts, LAYERS) if alike is None else alike,
    )


def seen(english: ScoredHeads | None = None, repeated: ScoredHeads | None = None, **others: object) -> Seen:
    return Seen(english or scores(), repeated or scores(), torch.full((TEXTS,), 3.0), {}, **others)


EARLY, LATE = {0: 0.9, 1: 0.8}, {4: 0.8, 5: 0.9}


def test_common_heads_are_counted_but_not_those_at_the_first_token():
    assert heads.shift_heads(seen(scores(shift=EARLY))).value == pytest.approx(4 / 24)
    assert heads.shift_heads(seen(scores(shift={0: 0.54}))).value == 0  # halfway from chance to 1 is 0.55
    assert heads.broadcast_heads(seen(scores(broadcast=LATE))).value == pytest.approx(4 / 24)
    given = scores(broadcast=LATE, first_token={4: 0.9})
    assert heads.broadcast_heads(seen(given)).value == pytest.approx(2 / 24)


@pytest.mark.parametrize(
    ("measure", "detector"),
    [(heads.shift_shallow, "shift"), (heads.broadcast_deep, "broadcast"), (heads.any_source_deep, "any_source")],
)
def test_depth_is_a_rank_correlation(measure, detector):
    name, layers = detector.replace("_", " "), torch.arange(24.0).reshape(6, 4)
    each = {one: torch.zeros(2, LAYERS, HEADS) for one in NAMES}
    rising = of_texts({**each, name: torch.stack([layers, layers + 1])})
    assert measure(seen(rising)).value > 0.95
    falling = of_texts({**each, name: -rising.by_text[name]})
    assert measure(seen(falling)).value < -0.95
    assert measure(seen(scores())).value is None  # no order among equal scores
    assert (
        measure(seen(scores(**{detector: EARLY}))).value < -0.5 < 0.5 < measure(seen(scores(**{detector: LATE}))).value
    )


def test_texts_are_the_units_of_scores():
    """Of three pieces, one on which a head of the last layer shifts and two on which one of the first does."""
    by_text = {name: torch.zeros(3, LAYERS, HEADS) for name in NAMES}
    by_text["shift"][0, 5, 0] = 0.9
    by_text["shift"][1:, 0, 0] = 0.9
    given = seen(of_texts(by_text))
    found = heads.shift_shallow(given)
    assert found.value < 0 and found.units[0] > 0.2 and found.units[1] == found.units[2] < -0.2
    assert found.interval[1] > 0.2  # a draw of the first piece alone
    common = heads.shift_heads(given)  # 0.6 on average of the second head alone
    assert (common.value, common.units) == (pytest.approx(1 / 24), (pytest.approx(1 / 24),) * 3)
    steady = heads.shift_heads(seen(scores(shift=EARLY)))
    assert steady.value == pytest.approx(4 / 24) and steady.interval is None  # all pieces are alike


def test_deep_heads_broadcast_from_the_first_token_or_another():
    given = scores(any_source={1: 0.9, 4: 0.9, 5: 0.9})
    given.from_first[:, 1] = True  # not a deep layer
    assert heads.deep_source_is_first(seen(given)).value == 0
    given.from_first[0, 4:, :2] = True  # one piece of three, both heads of both layers
    given.from_first[1, 4, :2] = True
    given.from_first[:, :, 2:] = True  # heads that do not broadcast
    found = heads.deep_source_is_first(seen(given))
    assert (found.value, found.units) == (pytest.approx(0.5), (1, 0.5, 0))
    assert found.detail == "4 of 8 heads"  # no order without any broadcast from another token
    both = heads.deep_source_is_first(seen(scores(any_source=LATE, broadcast=EARLY)))
    assert "with the layer 0.5" in both.detail and "-0.5" in both.detail and both.detail.endswith("without")
    assert heads.deep_source_is_first(seen(scores(any_source=EARLY))).value is None


def test_similarity_is_of_the_last_third_and_the_cheapest_deep_group_is_judged():
    found = heads.similar_deep(seen(scores(similarity=0.7)))
    assert (found.value, found.units) == (pytest.approx(0.7), (pytest.approx(0.7),) * TEXTS)
    # of six layers, so that the last third begins with layer 4
    losses = torch.tensor([3.0, 4.0])
    cheap, dear = losses + torch.tensor([0.1, 0.3]), losses + 5
    without = {0: losses, 3: losses, 4: dear}
    found = heads.deep_removable(replace(seen(), losses=losses, losses_without=without))
    assert found.value == pytest.approx(5)  # what layers before the last third cost does not count
    both = replace(seen(), losses=losses, losses_without={**without, 5: cheap})
    found = heads.deep_removable(both)
    assert found.value == pytest.approx(0.2) and found.units == (pytest.approx(0.1), pytest.approx(0.3))
    assert found.detail == "from layer 5 on; at most 5, from layer 4 on; 3.5 before"
    assert heads.deep_removable(replace(seen(), losses=losses, losses_without={3: losses})).value is None


def test_induction_and_the_previous_token():
    assert heads.induction_heads(seen(repeated=scores(induction={3: 0.8}))).value == pytest.approx(0.8)

    def layers(distance: int = 1, **given: dict[int, float]) -> float | None:
        return heads.previous_token_first(seen(repeated=scores(distance, **given))).value

    # two heads of each kind reach 3 layers by chance, four of the first kind 4: see the test of placements
    assert layers(shift={0: 0.9}, induction={5: 0.8}) == 5 - reached_by_chance(LAYERS, HEADS, 2, 2, 0.95)
    assert layers(shift={1: 0.9, 4: 0.9}, induction={3: 0.8}) == 2 - reached_by_chance(LAYERS, HEADS, 4, 2, 0.95) < 1
    assert layers(shift={4: 0.9}, induction={3: 0.8}) < -1
    assert layers(shift={1: 0.9}) is None
    assert layers(distance=2, shift={1: 0.9}, induction={3: 0.8}) is None


@pytest.mark.parametrize(
    ("layers", "heads", "first", "second"), [(3, 2, 1, 1), (4, 2, 2, 1), (4, 2, 1, 3), (6, 1, 2, 2), (6, 4, 2, 2)]
)
def test_a_share_of_all_placements_stays_below(layers, heads, first, second):
    def first_layers(count):
        return [min(chosen) // heads for chosen in combinations(range(layers * heads), count)]

    distances = Counter(later - earlier for earlier in first_layers(first) for later in first_layers(second))
    total = sum(distances.values())
    for share in (0.5, 0.8, 0.95):
        reached = reached_by_chance(layers, heads, first, second, share)
        up_to, below = (sum(n for distance, n in distances.items() if distance < end) for end in (reached + 1, reached))
        assert up_to / total >= share - 1e-9 > below / total - 1e-9


def test_heads_that_fill_a_model_begin_in_its_first_layer():
    assert reached_by_chance(5, 2, 10, 10, 0.95) == 0
    assert reached_by_chance(5, 2, 10, 1, 1.0) == 4
    assert shown(" the\n") == "␣the⏎"


def observed(of_model: Seen, drawn: Examples) -> ObservedHeads:
    view = SimpleNamespace()
    return ObservedHeads(seen=of_model, untrained=seen(), model="by hand", examples=drawn, view=view, removed=3)


@pytest.mark.untyped  # a hand-made view
def test_removals_are_judged_by_the_draws_over_texts():
    def predictions(*of_texts: tuple[float, float, float]) -> Predictions:
        return Predictions(*torch.tensor(of_texts).T)

    unchanged = predictions((3.0, 0.6, 0.7), (3.0, 0.6, 0.7))
    without = predictions((3.1, 0.3, 0.5), (3.3, 0.1, 0.5))
    draws = [predictions((3.0, 0.5, 0.6), (3.2, 0.5, 0.6)), predictions((3.6, 0.2, 0.4), (3.0, 0.4, 0.4))]
    given = WithoutHeads(((0, 0),), unchanged, without, draws)
    measured = [heads.shift_matters, heads.shift_matters_for_repetition, heads.shift_feeds_induction]
    found = [measure(seen(without=given)) for measure in measured]
    assert [one.value for one in found] == [0.5, 1, 0.5]
    assert [one.units for one in found] == [(0.5, 1), (0.5, 1), (0.5, 0.5)]  # of each text alone
    assert "3 becomes 3.2; with others removed 3.2, 3.1 to 3.3" in found[0].detail
    assert [measure(seen()).value for measure in measured] == [None] * 3
    nothing = replace(given, unchanged=replace(unchanged, induction=torch.zeros(0)))
    assert heads.shift_feeds_induction(seen(without=nothing)).value is None
    texts_shown = Examples([Example("a text", {"shift": torch.eye(2)}, ("a", "b"))], {0: "zero"})
    table = tables(observed(seen(without=given), texts_shown))[-1]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["change"] == pytest.approx(0.2) and row["draws below"] == "1 of 2"
    drawn = figures(observed(seen(without=given), texts_shown))[-1]
    assert drawn.lines[0].mean == (pytest.approx(0.5), pytest.approx(1.5))


def test_texts_fit_the_model_and_follow_the_token_that_begins_one(tmp_path, monkeypatch):
    setting = Setting("tiny", None, length=20, texts=3, half=7, sequences=2)
    model = open_model(setting, ObservationContext(tmp_path))
    english, repeated = texts(setting, model)  # the tiny model has no such token
    assert english.shape == (3, 20)
    assert english_page().text.startswith("".join(model.words(english.flatten())))
    assert repeated.inputs.shape == (2, 14)
    assert torch.equal(repeated.inputs[:, :7], repeated.inputs[:, 7:])
    monkeypatch.setattr(observing, "beginning", lambda tokenizer: 1)
    english, repeated = texts(setting, model)
    assert (english.shape, repeated.inputs.shape) == ((3, 21), (2, 15))
    assert english[:, 0].tolist() == [1] * 3 and repeated.inputs[:, 0].tolist() == [1] * 2
    again = texts(replace(setting, seed=1001), model)[1]
    assert not torch.equal(again.inputs, repeated.inputs)


def test_a_head_without_shift_leaves_the_removal_out(tmp_path):
    """The tiny random model has no head that shifts; everything else is measured."""
    setting = study("language/heads").profile("smoke").setting
    told = []
    observed = observe(setting, ObservationContext(tmp_path, told.append))
    assert observed.seen.without is None
    assert observed.seen.losses.shape == (setting.removal_texts,) and list(observed.seen.losses_without) == [0, 1]
    assert not observed.untrained.losses_without  # the last third is the last layer, which is left
    assert [status.done for status in told] == sorted(status.done for status in told)
    assert all(status.done <= status.total for status in told)
    assert not torch.equal(observed.seen.losses, observed.untrained.losses)
    assert (observed.view.layers, observed.view.heads, observed.view.length) == (3, 4, setting.length)


def test_examples_are_the_sentence_and_the_piece_with_the_largest_broadcast(tmp_path):
    setting = replace(study("language/heads").profile("smoke").setting, length=30)
    model = open_model(setting, ObservationContext(tmp_path))
    pieces = texts(setting, model)[0]
    sentence, piece = examples(model, score_heads(model, pieces), pieces).texts
    assert "".join(sentence.tokens) == shown("My name is John. What is my name? Your name is")
    assert "".join(piece.tokens) in [shown("".join(model.words(one[:16]))) for one in pieces]
    for one in (sentence, piece):
        assert [name.partition(":")[0] for name in one.patterns] == ["shift", "broadcast", "first token"]
        for pattern in one.patterns.values():
            assert pattern.shape == (len(one.tokens),) * 2
            torch.testing.assert_close(pattern.sum(dim=1), torch.ones(len(one.tokens)))


@pytest.mark.untyped  # a hand-made view
def test_the_sources_of_broadcasting_heads_are_counted():
    given = scores(broadcast={2: 0.9})
    given.sources[2, :, :2] = torch.tensor([[7, 7], [7, 7], [7, 8]])
    words = {0: "zero", 7: "seven", 8: "eight"}
    found = tables(observed(seen(given), Examples([], words)))[-1]
    assert found.rows == (("seven", pytest.approx(5 / 6)), ("eight", pytest.approx(1 / 6)))
    assert "2.0, 2.1" in found.caption


def test_pieces_of_smollm2_follow_its_token_between_documents(smollm2):
    model = pretrained(smollm2)
    english, repeated = texts(Setting(length=10, texts=3, half=5, sequences=2), model)
    assert (english.shape, repeated.inputs.shape) == ((3, 11), (2, 11))
    for inputs in (english, repeated.inputs):
        assert set(model.words(inputs[:, 0])) == {"<|endoftext|>"}
    assert not set(repeated.inputs[:, 1:].flatten().tolist()) & set(model.tokenizer.all_special_ids)


@pytest.mark.nightly
def test_a_language_model_has_induction_heads_behind_heads_that_shift(smollm2):
    """In SmolLM2-135M: heads of layers 17 to 24 induce, the first that shift are in layers 1 and 2."""
    model = pretrained(smollm2)
    found = score_heads(model, texts(Setting(half=24, sequences=4), model)[1].inputs)
    induction = found.heads("induction")
    assert induction and {layer for layer, _ in induction} <= set(range(16, 26))
    assert (1, 2) in found.heads("shift") and int(found.distance[1, 2]) == 1
    assert found.scores["shift"][16, 0] > 0.7
