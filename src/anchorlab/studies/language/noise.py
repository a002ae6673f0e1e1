"""Language models: "the" in place of the right word, and what truncation does to it.

After a preposition "the" is nearly always possible. The study follows the probability of "the" and of the right word on
sentences that ask for an indirect object or for a fact, in the full model and with one deep input matrix of a
feed-forward layer cut to low rank; it is chosen on one half of the prompts and reported on the other.

Source: truncated weights, section 3, Table 1, Figures 1, 2 and 13, appendix B.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anchorlab.engine import Status
from anchorlab.findings import at_least, at_most
from anchorlab.language import LanguageModel
from anchorlab.language.answers import Answers, Questions, combine
from anchorlab.language.edited import edited_weights
from anchorlab.language.prompts import Prompt, facts, indirect_objects, prepositions, sentences, split_by_answer
from anchorlab.language.truncations import TruncationSearch, search_truncations
from anchorlab.models import Truncate
from anchorlab.studies.claim import Measurement, claim, measures_in, over
from anchorlab.studies.language.laser import (
    WORDS,
    Laser,
    ask_both,
    by_answer,
    first_mean,
    first_of_its_kind,
    input_matrices,
    quotient,
    right_with_and_without,
    rise_of_ratio,
    the_with_and_without,
)
from anchorlab.studies.language.noise_figures import (
    MADRID,
    SENTENCE,
    along_rho,
    clouds,
    comparison_table,
    preposition_table,
    words_table,
)
from anchorlab.studies.language.opening import TINY, ModelSetting, described, open_model, untrained_model
from anchorlab.studies.shared_seeds import over_shared
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.studies.workplace import Workplace

_DRAWN = 4  # the last layers of Figure 1
_CLEAR = (0.1, 0.8)  # the fractions between which Figure 1 sees "the" fall


@dataclass(frozen=True)
class Setting(ModelSetting):
    """How many prompts are asked, and which truncations are tried.

    Fields
        objects: the number of sentences about indirect objects
        facts: the number of facts
        deep: the part of the layers, the last ones, whose input matrices are tried
        fractions: the fractions of the rank that are tried
        grid: those of Figure 1
    """

    objects: int = 100
    facts: int = 149
    deep: float = 1 / 3
    fractions: tuple[float, ...] = (0.0, 0.01, 0.05, 0.2)
    grid: tuple[float, ...] = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Seen:
    """What was asked of one model.

    Fields
        objects, facts: all prompts of the set, by the full model
        countries: the right word of each fact
        objects_cut, facts_cut: the second half, with the truncation that was chosen on the first
        prepositions, sentences: with the truncation of the facts
        one: Figure 1's sentence under truncations of the last layers
        words: the likeliest words after Table 1's sentence, with their probabilities without and with the truncation
    """

    objects: Answers
    facts: Answers
    countries: tuple[str | None, ...]
    objects_cut: Laser
    facts_cut: Laser
    prepositions: Laser
    sentences: Laser
    one: TruncationSearch
    words: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class Observed:
    """A pretrained model and the same architecture with random weights, cut in the same places."""

    trained: Seen
    untrained: Seen
    model: str


def observe(setting: Setting, workplace: Workplace) -> Observed:
    """Ask the model of the setting, and an untrained one."""
    model = open_model(setting, workplace)
    workplace.report(Status(3, 0, "searching truncations"))
    chosen = [choose(model, prompts, setting) for prompts in _sets(setting)]
    workplace.report(Status(3, 1, "asking"))
    trained = see(model, chosen, setting)
    workplace.report(Status(3, 2, "asking an untrained model"))
    return Observed(trained, see(untrained_model(model), chosen, setting), described(setting, model))


def _sets(setting: Setting) -> tuple[tuple[Prompt, ...], tuple[Prompt, ...]]:
    return indirect_objects(setting.objects), facts()[: setting.facts]


def choose(model: LanguageModel, prompts: Sequence[Prompt], setting: Setting) -> Truncate:
    """Return the truncation of a deep input matrix under which the first half of prompts has the lowest loss."""
    layers = len(model.blocks)
    tried = input_matrices(model, range(layers - max(1, round(setting.deep * layers)), layers))
    return search_truncations(Questions(model, split_by_answer(prompts)[0]), tried, setting.fractions).best()


def see(model: LanguageModel, chosen: Sequence[Truncate], setting: Setting) -> Seen:
    """Ask all prompts, with the truncations chosen for indirect objects and for facts."""
    (objects, objects_cut), (told, told_cut) = (
        _halves(model, prompts, truncation) for prompts, truncation in zip(_sets(setting), chosen, strict=True)
    )
    alone, broken = (ask_both(Questions(model, prompts), chosen[1]) for prompts in (prepositions(), sentences()))
    last = range(max(0, len(model.blocks) - _DRAWN), len(model.blocks))
    one = search_truncations(Questions(model, [SENTENCE]), [f"blocks.{layer}.mlp.W_in" for layer in last], setting.grid)
    countries = tuple(one.answer for half in split_by_answer(_sets(setting)[1]) for one in half)
    return Seen(objects, told, countries, objects_cut, told_cut, alone, broken, one, _likeliest(model, chosen[1]))


def _halves(model: LanguageModel, prompts: Sequence[Prompt], truncation: Truncate) -> tuple[Answers, Laser]:
    """The full model's answers to all prompts, and both models' to the second half."""
    first, second = (Questions(model, half) for half in split_by_answer(prompts))
    laser = ask_both(second, truncation)
    return combine([first.answers(), laser.full], torch.cat), laser


def _likeliest(model: LanguageModel, truncation: Truncate) -> tuple[tuple[str, float, float], ...]:
    """The five likeliest tokens after Table 1's sentence, and the right one."""
    asked = Questions(model, [MADRID])
    before, after = (asked.log_probabilities(edited_weights(model, edits))[0].exp() for edits in ([], [truncation]))
    shown = dict.fromkeys([*before.topk(5).indices.tolist(), int(asked.tokens.answers)])
    words = model.words(torch.tensor(list(shown)))
    return tuple((word, float(before[token]), float(after[token])) for word, token in zip(words, shown, strict=True))


@claim(
    'Asked for a fact, the model predicts "the" rather than the right word',
    at="truncated weights, Table 1 and Fig 2",
    paper='"Spain" is 0.16 times as likely as "the"',
    band=at_most(0.5),
)
def the_hides_facts(seen: Seen) -> Measurement:
    """Mean probability of the right country over that of "the", all facts."""
    rows = by_answer(seen.countries, seen.facts.right.exp(), seen.facts.words[:, 0].exp())
    return over_shared(rows, quotient, "countries")


@claim(
    "Asked for the indirect object, the model prefers it to the subject",
    at="truncated weights, section 3 (phase iii)",
    paper="after 2000 steps",
    band=at_least(0.75),
)
def object_over_subject(seen: Seen) -> Measurement:
    """Share of sentences in which the indirect object is likelier than the subject."""
    first = first_of_its_kind(seen.objects)
    return over(first[~first.isnan()].bool(), of="sentences")


@claim(
    'Asked for the indirect object, the model predicts it rather than "the"',
    at="truncated weights, section 3 and Fig 2",
    paper="2.3 times as likely",
    band=at_least(1.2),
)
def object_over_the(seen: Seen) -> Measurement:
    """Mean probability of the indirect object over that of "the", all sentences."""
    rows = torch.stack([seen.objects.right.exp(), seen.objects.words[:, 0].exp()], dim=-1)
    return over_shared(rows, quotient, "sentences")


@claim(
    "Generic words that are not in the sentence are among the likeliest four",
    at="truncated weights, section 3 and Fig 1",
    paper='"them" and "the"',
    band=at_least(0.5),
)
def generic_words_intrude(seen: Seen) -> Measurement:
    """Share of the sentences about indirect objects in which "the" or "them" has a rank of 4 or better."""
    ranks = seen.objects.word_ranks[:, [WORDS.index("the"), WORDS.index("them")]]
    return over((ranks <= 4).any(dim=1), of="sentences")


@claim(
    '"the" is one of the likeliest words after a preposition alone',
    at="truncated weights, Fig 13 left",
    paper="one of the top predictions",
    band=at_most(10),
)
def the_after_prepositions(seen: Seen) -> Measurement:
    """Mean rank of "the" after each of the 30 prepositions."""
    return _mean_rank(seen.prepositions.full, "prepositions")


@claim(
    '"the" is one of the likeliest words after a sentence that ends in a preposition',
    at="truncated weights, Fig 13 right",
    paper="one of the top predictions",
    band=at_most(10),
)
def the_after_sentences(seen: Seen) -> Measurement:
    """Mean rank of "the" after each of the 40 sentences."""
    return _mean_rank(seen.sentences.full, "sentences")


def _mean_rank(answers: Answers, of: str) -> Measurement:
    ranks = answers.word_ranks[:, 0]
    return over(ranks, of=of, detail=f"median {float(ranks.median()):g}")


@claim(
    'Truncation lowers the probability of "the" where a fact is asked for',
    at="truncated weights, Table 1",
    paper="from 0.499 to 0.027, to 0.05 of it",
    band=at_most(0.5),
)
def facts_lose_the(seen: Seen) -> Measurement:
    """Mean probability of "the" with the truncation over that without it, second half of the facts."""
    return the_with_and_without(seen.facts_cut)


@claim(
    "Truncation raises the probability of the right word where a fact is asked for",
    at="truncated weights, Table 1",
    paper="from 0.079 to 0.300, 3.8 times",
    band=at_least(1.2),
)
def facts_gain_right(seen: Seen) -> Measurement:
    """Mean probability of the right country with the truncation over that without it, second half of the facts."""
    return right_with_and_without(seen.facts_cut)


@claim(
    'Under truncation the right word gains on "the" where a fact is asked for',
    at="truncated weights, Fig 2 right",
    paper="from 0.16 to 11.3 times as likely, 70 times",
    band=at_least(2),
)
def facts_ratio(seen: Seen) -> Measurement:
    """Ratio of the mean probabilities of the right country and of "the" with the truncation over that without it,
    second half of the facts."""
    rows = by_answer(seen.facts_cut.answers, *seen.facts_cut.probabilities)
    return over_shared(rows, rise_of_ratio, "countries", _change(seen.facts_cut.ratios, seen.facts_cut))


@claim(
    "Truncation makes the model infer the answer, not only name anything of its kind",
    at="truncated weights, section 2.2",
    paper="from predicting generic words to inferring the answer",
    band=at_least(0.05),
)
def right_among_its_kind(seen: Seen) -> Measurement:
    """Share of facts whose country is likelier than all other countries with the truncation, minus that without it,
    second half of the facts."""
    before, after = map(first_of_its_kind, seen.facts_cut.both)
    detail = f"{float(before.nanmean()):.2f} to {float(after.nanmean()):.2f}; {seen.facts_cut.truncation}"
    return over_shared(by_answer(seen.facts_cut.answers, after - before), first_mean, "countries", detail)


@claim(
    'Under truncation the indirect object gains on "the"',
    at="truncated weights, Fig 2 left",
    paper="from 2.3 to 12.3 times as likely, 5.3 times",
    band=at_least(2),
)
def objects_ratio(seen: Seen) -> Measurement:
    """Ratio of the mean probabilities of the indirect object and of "the" with the truncation over that without it,
    second half of the sentences."""
    rows = torch.stack(seen.objects_cut.probabilities, dim=-1)
    return over_shared(rows, rise_of_ratio, "sentences", _change(seen.objects_cut.ratios, seen.objects_cut))


@claim(
    'Truncation of the input matrix of a late layer, but not the last, lowers "the" and "them"',
    at="truncated weights, Fig 1",
    paper="clearly, for rho from 0.1 to 0.8",
    band=at_least(0.9),
)
def late_layers_lower_generic_words(seen: Seen) -> float:
    """Share of truncations of W_in under which both words are less likely after the sentence of Figure 1, three layers
    before the last and rho from {_CLEAR[0]:g} to {_CLEAR[1]:g}."""
    inside = [place for place, rho in enumerate(seen.one.fractions) if _CLEAR[0] <= rho <= _CLEAR[1]]
    words = [WORDS.index("the"), WORDS.index("them")]
    after, before = seen.one.answers.words[:-1, inside][..., words], seen.one.full.words[..., words]
    return float((after < before).all(dim=-1).float().mean())


def _change(values: tuple[float, float], laser: Laser) -> str:
    return f"{values[0]:.3g} to {values[1]:.3g}; {laser.truncation}"


def analyse(observed: Observed, setting: Setting) -> Analysis:
    """Draw Figure 1 and the probabilities of each fact, and list the others."""
    seen = observed.trained
    return Analysis(
        seen,
        figures=[*along_rho(seen.one), clouds(seen.facts_cut)],
        tables=[
            comparison_table(seen.objects_cut, seen.facts_cut),
            words_table(seen.words, seen.facts_cut.truncation),
            preposition_table(seen.prepositions, seen.sentences),
        ],
        seeds="0",
        model=observed.model,
        untrained=observed.untrained,
    )


STUDY = Study(
    "language/noise",
    __doc__,
    measures_in(__name__),
    analyse,
    {
        "quick": Profile(
            Setting(),
            "SmolLM2-135M-Instruct, quantised to 4 bits (Q4_1), in place of the paper's Pythia-1B and GPT-2 small, on "
            "own sentences and facts; <|endoftext|> before each prompt.",
        ),
        "paper": Profile(
            Setting("EleutherAI/pythia-1b"),
            "The paper's Pythia-1B at the end of its training; the sentences and facts are our own.",
        ),
    },
    Setting(TINY, objects=6, facts=8, fractions=(0.1,), grid=(0.1, 0.5)),
    observe=observe,
)
