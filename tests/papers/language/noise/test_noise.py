"""The study of noise in language models, on answers made by hand and on a model made by hand."""

from dataclasses import replace
from math import nan
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from anchorlab.language.answers import Answers, Questions
from anchorlab.language.next_words import edited_weights
from anchorlab.language.prompts import Prompt, generic_words, indirect_objects, relations, split_by_unit
from anchorlab.language.truncations import TruncationSearch
from anchorlab.models import Quantise, Truncate
from anchorlab.papers.language import laser as of
from anchorlab.papers.language.noise import asking, noise
from anchorlab.papers.language.noise.asking import BARE, BEGUN, CHAT, in_conditions
from anchorlab.papers.language.noise.comparisons import SENTENCE, condition_table
from anchorlab.papers.language.noise.noise import Seen, Setting
from anchorlab.papers.language.precision import precision_table, requantised
from anchorlab.studies.shared_seeds import over_shared
from tests.language.spoken import DIVIDED, LAYERS, divided, spoken
from tests.language.spoken import PROMPTS as CITIES
from tests.papers.hand_made_runs import student, values_of

THE, A, THEM = range(3)


def answers(
    right: float, the: float, others: float = 0.1, place: float = 1, ranks: tuple[float, ...] = (1, 9, 9)
) -> Answers:
    """Two prompts with the same answers: probabilities of the right word, of "the" and of the wrong candidates."""
    both = torch.ones(2)
    words = torch.tensor([[the, 0.01, 0.001]]).log().expand(2, -1)
    return Answers(
        right=torch.log(right * both),
        right_rank=both + 1,
        others=torch.log(others * both),
        right_place=place * both,
        words=words,
        word_ranks=torch.tensor([ranks]).float().expand(2, -1),
    )


PROMPTS = (Prompt("Madrid is located in", "Spain"), Prompt("Paris is located in", "France"))


IN_FULL = tuple(replace(prompt, text=f"{prompt.text} the country of") for prompt in PROMPTS)


def laser(before: Answers, after: Answers, prompts: tuple[Prompt, ...] = PROMPTS) -> of.Laser:
    return of.Laser("W_in of layer 2, ρ = 0.01", prompts, before, after)


def one_sentence(the: Tensor) -> TruncationSearch:
    """Figure 1's sentence: the given probabilities of "the", `[layer fraction]`; 0.2 of the full model."""
    full = answers(0.5, 0.2)[:1]
    words = torch.stack([the, torch.full_like(the, 0.01), the / 200], dim=-1).log()[:, :, None]
    shape = (*the.shape, 1)
    some = torch.zeros(shape)
    weights = tuple(f"blocks.{layer}.mlp.W_in" for layer in range(len(the)))
    return TruncationSearch(weights, (0.05, 0.1, 0.8, 0.9), Answers(some, some, some, some, words, words), full)


FALLING = torch.tensor([[0.3, 0.1, 0.1, 0.3]] * 3 + [[0.3] * 4])
GOOD = Seen(
    objects=answers(0.6, 0.1, ranks=(4, 9, 9)),
    facts=answers(0.1, 0.4),
    units=("Spain", "France"),
    objects_cut=laser(answers(0.6, 0.1), answers(0.6, 0.01)),
    facts_cut=laser(answers(0.1, 0.4, place=2), answers(0.3, 0.04, others=0.3)),
    prepositions=laser(answers(0.1, 0.1, ranks=(10, 9, 9)), answers(0.1, 0.1)),
    sentences=laser(answers(0.1, 0.1), answers(0.1, 0.1)),
    own_sentences=laser(answers(0.1, 0.1, ranks=(50, 9, 9)), answers(0.1, 0.1)),
    country_of=laser(answers(0.6, 0.3), answers(0.6, 0.3), IN_FULL),
    swept=one_sentence(FALLING),
    words=((" the", 0.4, 0.04),),
)
BAD = replace(
    GOOD,
    objects=answers(0.1, 0.2, place=2, ranks=(5, 1, 5)),
    facts=answers(0.4, 0.4),
    objects_cut=laser(answers(0.6, 0.1), answers(0.1, 0.1)),
    facts_cut=laser(answers(0.1, 0.4), answers(0.11, 0.4, others=0.22)),
    prepositions=laser(answers(0.1, 0.1, ranks=(11, 9, 9)), answers(0.1, 0.1)),
    sentences=laser(answers(0.1, 0.1, ranks=(100, 1, 1)), answers(0.1, 0.1)),
    country_of=laser(answers(0.3, 0.6), answers(0.6, 0.3), IN_FULL),
    swept=one_sentence(FALLING.flip(0)),
)
EXPECTED = {
    "the-hides-facts": (0.25, 1.0), "better-prompting": (2, 0.5), "object-over-subject": (1, 0),
    "object-over-the": (6, 0.5), "generic-words-intrude": (1, 0), "the-after-prepositions": (10, 11),
    "the-after-sentences": (1, 100), "facts-lose-the": (0.1, 1.0), "facts-gain-right": (3, 1.1),
    "facts-ratio": (30, 1.1), "right-among-its-kind": (1, 0), "kind-rises-alike": (1, 2),
    "objects-ratio": (10, 1 / 6), "late-layers-lower-generic-words": (1, 2 / 3),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "column"), [(GOOD, 0), (BAD, 1)])
def test_every_claim_of_answers_made_by_hand(seen, column):
    """All bands lie between the two columns: every claim holds of the first and fails of the second."""
    found = values_of(noise.STUDY, seen)
    assert found == {name: pytest.approx(both[column], rel=1e-4) for name, both in EXPECTED.items()}


def test_figures_and_tables_say_what_was_seen():
    kinds = tuple(replace(prompt, kind=kind) for prompt, kind in zip(PROMPTS, ("country", "author"), strict=True))
    mix = laser(answers(0.2, 0.1), answers(0.2, 0.05), kinds)
    observed = asking.ObservedNoise(
        seen=GOOD, untrained=BAD, model="by hand", coarser={8: GOOD, 4: BAD}, conditions={BARE: BAD.facts_cut}, mix=mix
    )
    analysis = noise.STUDY.analysis(observed, Setting())
    the, mary, clouds = analysis.figures
    assert [line.label for line in the.lines] == ["layer 0", "layer 1", "layer 2", "layer 3"]
    assert the.lines[0].mean == pytest.approx((0.3, 0.1, 0.1, 0.3, 0.2))
    assert mary.lines[0].mean[-1] == pytest.approx(0.5)
    assert clouds.scatters[0].x == pytest.approx([-0.397940] * 2)
    assert clouds.scatters[1].y == pytest.approx([-0.522879] * 2)
    rows = of.comparison("facts", GOOD.facts_cut)
    assert rows[0] == pytest.approx(("facts", "full", 0.1, 0.1, 0.4, 0.01, 0.001, 0.25, 2, 0))
    assert rows[1][1] == "W_in of layer 2, ρ = 0.01"
    assert [row[0] for row in analysis.tables[0].rows[::2]] == [
        "indirect objects", '"... is located in"', '"... is located in the country of"',
    ]  # fmt: skip
    by_relation, by_condition = (table.rows for table in analysis.tables[1:3])
    assert [row[0] for row in by_relation[::2]] == ["facts of six relations", "country", "author"]
    assert [row[:2] for row in by_condition] == [(BARE, "0.25"), ("facts of six relations", "2")]
    prepositions = analysis.tables[-1].rows
    assert [row[2] for row in prepositions[::2]] == [10, 1, 50]
    assert generic_words() == ("the", "a", "them")


def test_the_input_matrices_of_layers_and_the_sentence_of_the_kind_that_is_asked():
    assert of.input_matrices(spoken(), range(1, LAYERS)) == ["blocks.1.mlp.W_in", "blocks.2.mlp.W_in"]
    assert of.in_words(Truncate(weight="blocks.2.mlp.W_in", fraction=0.01)) == "W_in of layer 2, ρ = 0.01"
    assert SENTENCE.kind == indirect_objects(1)[0].kind


def test_words_that_are_not_scored_or_compared_do_not_count():
    both = Answers(**{name: torch.cat([value, value]) for name, value in answers(0.5, 0.2).tensors.items()})
    ranks = torch.tensor([7.0, nan, 3.0, 40.0])
    row = dict(zip(of.COMPARED, of.comparison("facts", laser(replace(both, right_rank=ranks), both))[0], strict=True))
    assert row["median rank"] == 7
    assert of.mean(torch.tensor([0.5, 0.25, nan]).log()) == pytest.approx(0.375)
    both = answers(0.5, 0.2)
    assert of.among_its_kind(replace(both, right_place=torch.tensor([1.0, nan]))) == 1
    assert of.among_its_kind(replace(both, right_place=torch.tensor([2.0, nan]))) == 0


def test_a_truncation_is_chosen_on_one_half_and_reported_on_the_other():
    """What helps one country takes the other's answers away: the half that is reported loses by the choice."""
    first, second = split_by_unit(CITIES)
    chosen = asking.choose(divided(), CITIES, Setting(deep=1.0, fractions=(0.0,)))
    assert chosen.weight == DIVIDED[str(second[0].answer)]
    whole, laser = asking._halves(divided(), CITIES, chosen)
    assert laser.prompts == second and len(whole.right) == len(first) + len(second)
    assert of.mean(laser.cut.right) < of.mean(laser.full.right) / 2


def test_claims_on_facts_ask_the_papers_prompt_alone_and_the_mix_leaves_out_what_chose_the_cut(monkeypatch):
    """Two phrasings of six relations are asked beside the claims, except about countries of the half that chose."""
    setting, asked = Setting(), []
    _, cities = asking._sets(setting)
    assert len(cities) == 149 and {one.text.removesuffix(" is located in") for one in cities} >= {"Madrid", "Paris"}
    assert all(one.text.endswith(" is located in") for one in cities)
    monkeypatch.setattr(asking, "ask_both", lambda questions, _: asked.extend(questions.prompts))
    monkeypatch.setattr(asking, "Questions", lambda _, prompts: SimpleNamespace(prompts=prompts))
    asking.ask_mix(spoken(), Truncate(weight="blocks.1.mlp.W_in", fraction=0.0), setting)
    first, second = split_by_unit(cities)
    assert not {one.unit for one in first} & {one.unit for one in asked} and set(second) <= set(asked)
    assert {one.kind for one in asked} == set(relations()) - {"native"}


def test_the_cities_of_a_country_are_one_unit():
    # spain is asked for twice: quotients are of means over all three prompts, and there are two units
    right, the = torch.tensor([0.2, 0.4, 0.3]), torch.tensor([0.1, 0.1, 0.6])
    rows = of.by_unit(("Spain", "Spain", "France"), right, the)
    assert rows.tolist() == [pytest.approx([0.6, 0.2, 2]), pytest.approx([0.3, 0.6, 1])]
    measured = over_shared(rows, of.quotient, "countries")
    assert measured.value == pytest.approx(0.9 / 0.8) == float(right.mean() / the.mean())
    assert measured.units == pytest.approx((3, 0.5))
    assert measured.interval == student(0.9 / 0.8, 0.5, 3)
    assert float(of.first_mean(rows)) == pytest.approx(0.3)
    four = torch.tensor([[0.6, 0.2, 0.3, 0.4, 1.0], [0.2, 0.2, 0.1, 0.4, 1.0]])
    assert float(of.rise_of_ratio(four)) == pytest.approx((0.8 / 0.4) / (0.4 / 0.8))
    rows = of.by_unit(("Spain", "Spain", "France"), torch.tensor([0.2, nan, nan]))
    assert rows.tolist() == [pytest.approx([0.2, 1])]
    # right words that differ a hundredfold between countries, each doubled by the truncation
    before = torch.logspace(-4, -2, 20)
    after = before * (2 + 0.01 * torch.randn(20, generator=torch.Generator().manual_seed(0)))
    found = over_shared(of.by_unit(tuple(map(str, range(20))), after, before), of.quotient, "countries")
    assert found.interval is not None and found.value == pytest.approx(2, abs=0.02)
    assert found.interval[1] - found.interval[0] < 0.05


def test_the_gain_of_a_kind_has_no_value_where_the_right_word_does_not_rise():
    """The right word falls to a half, the wrong ones to a quarter: nothing rises alike."""
    falling = of.kinds_over_right(laser(answers(0.2, 0.4, others=0.4), answers(0.1, 0.4, others=0.1)))
    assert falling.value is None
    assert "right times 0.5, wrong ones times 0.25" in falling.detail
    rising = of.kinds_over_right(laser(answers(0.1, 0.4, others=0.1), answers(0.2, 0.4, others=0.3)))
    assert rising.value == pytest.approx(1.5)


def test_each_sentence_is_one_unit_of_the_late_layers():
    """In the first sentence all truncations lower both words, in the second none does."""
    made = one_sentence(FALLING)
    words = torch.cat([made.answers.words, torch.zeros_like(made.answers.words)], dim=2)
    full = {name: torch.cat([value, value]) for name, value in made.full.tensors.items()}
    answers = {name: torch.cat([value, value], dim=2) for name, value in made.answers.tensors.items()}
    both = replace(made, answers=Answers(**{**answers, "words": words}), full=Answers(**full))
    found = noise.late_layers_lower_generic_words(replace(GOOD, swept=both))
    assert (found.value, found.units) == (0.5, (1, 0))


def test_the_precision_table_says_which_values_leave_their_interval():
    table = precision_table(noise.STUDY.claims, GOOD, {8: GOOD, 4: BAD})
    rows = {str(row[0]): row[1:] for row in table.rows}
    hides = rows['Asked where a city is located, the model predicts "the" rather than the right country']
    assert hides[0] == pytest.approx(0.25)
    assert hides[1] is None and hides[4] == hides[7] == "no interval"  # all facts are alike
    (late,) = (row for statement, row in rows.items() if statement.startswith("Truncation of the input matrix"))
    assert late[1] is None and late[4] == late[7] == "no interval"  # one sentence only


def test_a_model_quantised_again_computes_with_rounded_matrices_and_is_cut_as_the_first():
    # four bits: 1.4 beside -8 in a block of 32 becomes 1; embeddings stay; the first model stays as it was
    model, name = spoken(), "blocks.0.mlp.W_in"
    with torch.no_grad():
        model.get_parameter(name)[0, 0], model.get_parameter(name)[1, 0] = -8.0, 1.4
        model.get_parameter("embed.W_E")[0, 1] = 0.123
    rounded = requantised(model, 4)
    assert rounded.get_parameter(name)[:2, 0].tolist() == [-8.0, 1.0]
    assert model.get_parameter(name)[1, 0].item() == pytest.approx(1.4)
    assert rounded.get_parameter("embed.W_E")[0, 1].item() == pytest.approx(0.123)
    # the truth are the first model's own weights, rounded and then cut, without what is kept of earlier blocks
    model = spoken()
    cut = Truncate(weight="blocks.2.mlp.W_in", fraction=0.5)
    with torch.no_grad():
        model.get_parameter(cut.weight).copy_(torch.randn(32, 64, generator=torch.Generator().manual_seed(0)))
        model.get_parameter("blocks.2.mlp.W_out").fill_(0.1)[:, :9] *= -1
    found = of.ask_both(Questions(requantised(model, 4), CITIES), cut)
    weights = edited_weights(model, [Quantise(weight="blocks", bits=4), cut])
    expected = Questions(model, CITIES).answers(weights)
    torch.testing.assert_close(found.cut.right, expected.right)
    torch.testing.assert_close(found.cut.words, expected.words)
    assert not torch.allclose(found.cut.right, found.full.right, atol=1e-3)


def test_facts_are_asked_without_a_beginning_and_in_the_chat_template():
    model = spoken()
    cut = Truncate(weight="blocks.1.mlp.W_out", fraction=0.0)
    asked = of.ask_both(Questions(model, CITIES[:1]), cut)
    assert list(in_conditions(model, asked, cut)) == [BEGUN, BARE]
    assert model.tokenizer is not None
    model.tokenizer.chat_template = "{% for one in messages %}to is {% endfor %}"
    found = in_conditions(model, asked, cut)
    assert list(found) == [BEGUN, BARE, CHAT]
    assert found[BEGUN] is asked and found[BARE].prompts == CITIES[:1]
    assert [prompt.text for prompt in found[CHAT].prompts] == ["to is Madrid is"]
    bare = Questions(model, CITIES[:1], begun=False).answers()
    torch.testing.assert_close(found[BARE].full.right, bare.right)
    (row,) = condition_table({"made": GOOD.facts_cut}).rows
    assert row == ("made", "0.25", "0.1", "3", "1", "1")
