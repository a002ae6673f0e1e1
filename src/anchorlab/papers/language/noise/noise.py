"""Language models: "the" in place of the right word, and what truncation does to it.

After a preposition "the" is nearly always possible. The study follows the probability of "the" and of the right word on
sentences that ask for an indirect object or, like "Madrid is located in", for the country of a city, in the full model
and with one deep input matrix of a feed-forward layer cut to low rank; the cut is chosen on one half of the prompts and
reported on the other. Tables show what the cut chosen for cities does to 627 facts of six relations.

Source: truncated weights, section 3, Table 1, Figures 1, 2 and 13, appendix B.
"""

from dataclasses import replace

import torch

from anchorlab.findings import Figure, Table, at_least, at_most, within
from anchorlab.language.answers import Answers
from anchorlab.papers.language import laser
from anchorlab.papers.language.noise import comparisons
from anchorlab.papers.language.noise.asking import ObservedNoise, Seen, Setting, observe
from anchorlab.papers.language.precision import precision_table
from anchorlab.papers.pretrained.opening import TINY
from anchorlab.studies import Measurement, Profile, Study, claim, measures_in, over, over_shared

_CLEAR = (0.1, 0.8)  # the fractions between which "the" clearly falls in Figure 1


@claim("truncated weights, Table 1 and Fig 2", '"Spain" is 0.16 times as likely as "the"', at_most(0.5))
def the_hides_facts(seen: Seen) -> Measurement:
    """Asked where a city is located, the model predicts "the" rather than the right country.

    Ratio of the mean probability of the right country to that of "the" after "... is located in", all cities.
    """
    rows = laser.by_unit(seen.units, seen.facts.right.exp(), seen.facts.words[:, 0].exp())
    return over_shared(rows, laser.quotient, laser.SUBJECTS)


@claim(
    "truncated weights, section 3",
    '"better prompting could avoid the need for LASER": it predicts "Spain"',
    at_least(1),
)
def better_prompting(seen: Seen) -> Measurement:
    """Asked with "located in the country of", the model predicts the right country rather than "the".

    Ratio of the mean probability of the right country to that of "the" in the full model, after "... is located in the
    country of", second half of the cities; the detail gives the ratio after "... is located in".
    """
    return replace(
        laser.right_over_the(seen.country_of), detail=f"after {comparisons.LOCATED} {seen.facts_cut.ratios[0]:.3g}"
    )


@claim("truncated weights, section 3 (phase iii)", "after 2000 steps", at_least(0.75))
def object_over_subject(seen: Seen) -> Measurement:
    """Asked for the indirect object, the model prefers it to the subject.

    Share of sentences in which the indirect object is likelier than the subject.
    """
    first = laser.first_of_its_kind(seen.objects)
    return over(first[~first.isnan()].bool(), of="sentences")


@claim("truncated weights, section 3 and Fig 2", "2.3 times as likely", at_least(1.2))
def object_over_the(seen: Seen) -> Measurement:
    """Asked for the indirect object, the model predicts it rather than "the".

    Ratio of the mean probability of the indirect object to that of "the", all sentences.
    """
    rows = torch.stack([seen.objects.right.exp(), seen.objects.words[:, 0].exp()], dim=-1)
    return over_shared(rows, laser.quotient, "sentences")


@claim("truncated weights, section 3 and Fig 1", '"them" and "the"', at_least(0.5))
def generic_words_intrude(seen: Seen) -> Measurement:
    """Generic words that are not in the sentence are among the likeliest four.

    Share of the sentences about indirect objects in which "the" or "them" has a rank of 4 or better.
    """
    ranks = seen.objects.word_ranks[:, [laser.WORDS.index("the"), laser.WORDS.index("them")]]
    return over((ranks <= 4).any(dim=1), of="sentences")


@claim("truncated weights, Fig 13 left", "one of the top predictions", at_most(10))
def the_after_prepositions(seen: Seen) -> Measurement:
    """ "the" is one of the likeliest words after a preposition alone.

    Mean rank of "the" after each of the 30 prepositions.
    """
    return _mean_rank(seen.prepositions.full, "prepositions")


@claim("truncated weights, Fig 13 right", "one of the top predictions", at_most(10))
def the_after_sentences(seen: Seen) -> Measurement:
    """ "the" is one of the likeliest words after a sentence that ends in a preposition.

    Mean rank of "the" after each of the paper's 40 sentences (appendix F.1).
    """
    return _mean_rank(seen.sentences.full, "sentences")


def _mean_rank(answers: Answers, of: str) -> Measurement:
    ranks = answers.word_ranks[:, 0]
    return over(ranks, of=of, detail=f"median {float(ranks.nanmedian()):g}")


@claim("truncated weights, Table 1", "from 0.499 to 0.027, to 0.05 of it", at_most(0.5))
def facts_lose_the(seen: Seen) -> Measurement:
    """Truncation lowers the probability of "the" where the country of a city is asked for.

    Ratio of the mean probability of "the" after "... is located in" with the truncation to that without, second half of
    the cities.
    """
    return laser.the_with_and_without(seen.facts_cut)


@claim("truncated weights, Table 1", "from 0.079 to 0.300, 3.8 times", at_least(1.2))
def facts_gain_right(seen: Seen) -> Measurement:
    """Truncation raises the probability of the right word where the country of a city is asked for.

    Ratio of the mean probability of the right country after "... is located in" with the truncation to that without,
    second half of the cities.
    """
    return laser.right_with_and_without(seen.facts_cut)


@claim("truncated weights, Fig 2 right", "from 0.16 to 11.3 times as likely, 70 times", at_least(2))
def facts_ratio(seen: Seen) -> Measurement:
    """Under truncation the right word gains on "the" where the country of a city is asked for.

    Mean probability of the right country over that of "the" after "... is located in": ratio with the truncation
    divided by that without, second half of the cities.
    """
    rows = laser.by_unit(seen.facts_cut.units, *seen.facts_cut.probabilities)
    return over_shared(rows, laser.rise_of_ratio, laser.SUBJECTS, _change(seen.facts_cut))


@claim(
    "our question",
    "no value: it goes from predicting generic words to inferring the answer (section 2.2)",
    at_least(0.05),
    own=True,
)
def right_among_its_kind(seen: Seen) -> Measurement:
    """Truncation makes the model infer the answer, not only name anything of its kind.

    Share of facts whose right word is likelier than all others of its kind: with the truncation minus without, second
    half of the facts.
    """
    return laser.first_gain(seen.facts_cut)


@claim("our question", "no value: the paper shows one fact", within(0.8, 1.25), own=True)
def kind_rises_alike(seen: Seen) -> Measurement:
    """Truncation raises the wrong words of a kind as much as the right one.

    Factor by which the truncation raises the wrong words of the kind together, divided by that for the right word, from
    mean log-probabilities after "... is located in", second half of the cities; no value if the right word does not
    rise.
    """
    return laser.kinds_over_right(seen.facts_cut)


@claim("truncated weights, Fig 2 left", "from 2.3 to 12.3 times as likely, 5.3 times", at_least(2))
def objects_ratio(seen: Seen) -> Measurement:
    """Under truncation the indirect object gains on "the".

    Mean probability of the indirect object over that of "the": ratio with the truncation divided by that without,
    second half of the sentences.
    """
    rows = torch.stack(seen.objects_cut.probabilities, dim=-1)
    return over_shared(rows, laser.rise_of_ratio, "sentences", _change(seen.objects_cut))


@claim("truncated weights, Fig 1", "clearly, for rho from 0.1 to 0.8", at_least(0.9))
def late_layers_lower_generic_words(seen: Seen) -> Measurement:
    """Truncation of the input matrix of a late layer, but not the last, lowers "the" and "them".

    Share of truncations of W_in that make both words less likely, over the three layers before the last and rho from
    {_CLEAR[0]:g} to {_CLEAR[1]:g}, for Figure 1's sentence and others of its kind.
    """
    inside = [place for place, rho in enumerate(seen.swept.fractions) if _CLEAR[0] <= rho <= _CLEAR[1]]
    words = [laser.WORDS.index("the"), laser.WORDS.index("them")]
    after, before = seen.swept.answers.words[:-1, inside][..., words], seen.swept.full.words[..., words]
    shares = (after < before).all(dim=-1).double().mean(dim=(0, 1))
    return over(shares, "sentences", detail=f"after the sentence of Figure 1 {float(shares[0]):.3g}")


def _change(cut: laser.Laser) -> str:
    before, after = cut.ratios
    return f"{before:.3g} to {after:.3g}; {cut.truncation}"


def _figures(observed: ObservedNoise) -> list[Figure]:
    return [*comparisons.along_rho(observed.seen.swept), comparisons.clouds(observed.seen.facts_cut)]


def _tables(observed: ObservedNoise) -> list[Table]:
    seen = observed.seen
    return [
        comparisons.comparison_table(seen.objects_cut, seen.facts_cut, seen.country_of),
        comparisons.relation_table(observed.mix),
        comparisons.condition_table({**observed.conditions, comparisons.MIX: observed.mix}),
        precision_table(STUDY.claims, seen, observed.coarser),
        comparisons.words_table(seen.words, seen.facts_cut.truncation),
        comparisons.preposition_table(
            {
                "prepositions alone": seen.prepositions,
                "the paper's sentences that end in one": seen.sentences,
                "own sentences that end in one": seen.own_sentences,
            }
        ),
    ]


STUDY = Study(
    "language/noise",
    __doc__,
    measures_in(__name__),
    draws=[_figures, _tables],
    profiles={
        "quick": Profile(
            Setting(),
            "A small model whose weights come quantised to 4 bits (SmolLM2-135M-Instruct, Q4_1; also Gemma 3 "
            "270M, Q4_K_M) in place of the paper's Pythia-1B and GPT-2 small, on our own cities and sentences "
            "about indirect objects and the paper's 40 sentences; each prompt follows the beginning-of-text token.",
        ),
        "paper": Profile(
            Setting("EleutherAI/pythia-1b"),
            "The paper's Pythia-1B at the end of its training; the sentences and facts are our own.",
        ),
    },
    smoke=Setting(TINY, objects=4, facts=5, mix=6, ending=3, swept=2, fractions=(0.1,), grid=(0.1, 0.5)),
    observe=observe,
)
