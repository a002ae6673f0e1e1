"""Figures and tables of the noise in a language model: Figure 1, facts as points, words, and ranks of "the"."""

import math
from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor, cat

from anchorlab.findings import Line, LineFigure, Scatter, ScatterFigure, Table, numbers
from anchorlab.language.prompts import Prompt
from anchorlab.language.truncations import TruncationSearch
from anchorlab.papers.language.laser import (
    COMPARED,
    Laser,
    comparison,
    first_gain,
    kinds_over_right,
    layer_of,
    right_over_the,
    right_with_and_without,
    the_with_and_without,
)
from anchorlab.studies.claim import Measurement

SENTENCE = Prompt("When Mary and John went to a store, John gave a drink to", "Mary", ("John",), "indirect object")
"""The sentence of Figure 1."""
CHAT_REQUEST = "Complete the sentence."
"""What the user writes in the chat template."""
MADRID = Prompt("Madrid is located in", "Spain", kind="fact")
"""The sentence of Table 1."""
LOCATED, MIX = '"... is located in"', "facts of six relations"
"""The names, in tables, of Table 1's prompt about many cities and of the prompts about facts of six relations."""


def along_rho(search: TruncationSearch) -> tuple[LineFigure, LineFigure]:
    """Return Figure 1: the probabilities of "the" and of the right word, a line for each layer that is cut."""
    the = search.answers.words[..., 0, 0], search.full.words[0, 0]
    right = search.answers.right[..., 0], search.full.right[0]
    return _along_rho(search, "the", *the), _along_rho(search, "Mary", *right)


def _along_rho(
    search: TruncationSearch, word: str, cut: Float[Tensor, "layer fraction"], full: Float[Tensor, ""]
) -> LineFigure:
    values = cat([cut, full.expand(len(cut), 1)], dim=1).exp()
    title = f'Probability of "{word}" after the sentence of Figure 1'
    caption = f'"{SENTENCE.text} ..."; W_in of one layer is cut to the fraction ρ of its rank; 1 is the full model.'
    lines = tuple(
        Line(f"layer {layer_of(weight)}", (*search.fractions, 1.0), numbers(row))
        for weight, row in zip(search.weights, values, strict=True)
    )
    return LineFigure(title, caption, "fraction of the rank that is kept, ρ", "probability", lines, y_range=(0.0, None))


def clouds(facts: Laser) -> ScatterFigure:
    """Return each fact as a point, at the probabilities of "the" and of the right word."""
    return ScatterFigure(
        title='Facts by the probabilities of "the" and of the right word',
        caption=f"Second half of the cities, {LOCATED}. The colour is the place of the right word among all of its "
        "kind: 0 for the first, 1 for the tenth, on a logarithmic scale.",
        scatters=tuple(
            Scatter(title, _log10(one.words[:, 0]), _log10(one.right), numbers(one.right_place.log10()))
            for title, one in zip(("full model", facts.truncation), facts.both, strict=True)
        ),
        x_label='log10 p("the")',
        y_label="log10 p(right word)",
        value_label="log10 of its place among its kind",
    )


def _log10(logarithms: Float[Tensor, "prompt"]) -> tuple[float, ...]:
    return numbers(logarithms / math.log(10))


def comparison_table(objects: Laser, facts: Laser, country_of: Laser) -> Table:
    """Return the probabilities of each kind of prompts, without and with the truncation."""
    named = {"indirect objects": objects, LOCATED: facts, f'{LOCATED[:-1]} the country of"': country_of}
    return Table(
        title="Probabilities without and with the truncation",
        caption="Mean over the second half of the prompts; the truncation was chosen on the first half.",
        columns=COMPARED,
        rows=tuple(row for name, laser in named.items() for row in comparison(name, laser)),
    )


def words_table(words: Sequence[tuple[str, float, float]], truncation: str) -> Table:
    """Return Table 1: the likeliest words, each with its probability without and with the truncation."""
    caption = f"As Table 1 of the paper, which has Pythia-1B; {truncation}."
    return Table(f'The likeliest words after "{MADRID.text}"', caption, ("word", "full", "truncated"), tuple(words))


def relation_table(facts: Laser) -> Table:
    """Return the probabilities of all facts, then of the facts of each relation, without and with the truncation."""
    rows = comparison(MIX, facts)
    for relation in dict.fromkeys(prompt.kind for prompt in facts.prompts):
        rows += comparison(relation, facts.where([prompt.kind == relation for prompt in facts.prompts]))
    caption = (
        "Mean over the facts of each relation, in two phrasings, under the truncation that was chosen with the "
        f"paper's prompt, {LOCATED}; without the countries that it was chosen on."
    )
    return Table("Facts by relation", caption, COMPARED, tuple(rows))


def preposition_table(lasers: Mapping[str, Laser]) -> Table:
    """Return the ranks of "the" after prepositions, without and with the truncation."""
    rows = []
    for name, laser in lasers.items():
        for which, answers in zip(("full", laser.truncation), laser.both, strict=True):
            ranks = answers.word_ranks[:, 0]
            first = float((ranks == 1).float().mean())
            the = float(answers.words[:, 0].exp().mean())
            rows.append((name, which, float(ranks.mean()), float(ranks.nanmedian()), first, the))
    return Table(
        title='"the" after prepositions',
        caption="Figure 13 of the paper has the average rank along training.",
        columns=("prompts", "model", "mean rank", "median rank", "ranked first", "probability"),
        rows=tuple(rows),
    )


def condition_table(lasers: Mapping[str, Laser]) -> Table:
    """Return the values of the main claims on facts in each condition, with their 95 % intervals."""
    measures = (right_over_the, the_with_and_without, right_with_and_without, first_gain, kinds_over_right)
    return Table(
        title="The claims on facts by how the fact is asked",
        caption=f"Second half of the cities, {LOCATED}, under the truncation that was chosen with the token at the "
        f'beginning; values with 95 % intervals. In the chat template the user writes "{CHAT_REQUEST}" and the '
        "sentence begins the answer; a model without a template has no such row. The last row has the facts of "
        'the table "Facts by relation".',
        columns=(
            "condition", 'right / "the", full', '"the", cut / full', "right, cut / full",
            "first of its kind, cut - full", "rise of the wrong words over the right one's",
        ),
        rows=tuple((name, *(_text(measure(laser)) for measure in measures)) for name, laser in lasers.items()),
    )  # fmt: skip


def _text(found: Measurement) -> str:
    if found.value is None:
        return "not measured"
    interval = "" if found.interval is None else f" ({found.interval[0]:.3g} to {found.interval[1]:.3g})"
    return f"{found.value:.3g}{interval}"
