"""Prompts of the truncation paper's section 3: indirect objects, facts, prepositions, and sentences that end in these.

Each prompt asks for the next word. The paper tracks the probabilities of the right word and of generic words, such as
"the".
"""

import csv
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.language.sample_text import read_text
from anchorlab.rng import generator
from anchorlab.spec import check_known

_MOST_OF_ALL = 10_000  # maximum number of sentences about indirect objects; the lists allow 2.5 million


@dataclass(frozen=True)
class Prompt:
    """A beginning of a sentence, with the right next word if there is one.

    Fields
        text: the beginning, without a space at its end
        answer: the right next word, without a space before it; None if no word is right
        candidates: wrong words of the same kind, such as the other countries
        kind: the set of prompts that this one belongs to, such as `country`
        about: what the prompt asks about, such as a country; prompts about the same thing are not independent
    """

    text: str
    answer: str | None = None
    candidates: tuple[str, ...] = ()
    kind: str = "prompt"
    about: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.candidates, str):  # its letters would be the candidates
            raise SpecError("candidates", f"{self.candidates!r} is not a list", "write ('this', 'that'), or ('this',)")

    @property
    def unit(self) -> str:
        """The unit of independence: prompts with the same subject, or else the same right word, share a unit."""
        return self.about or self.answer or ""


def generic_words() -> tuple[str, ...]:
    """Return the words that the truncation paper calls generic: "the", then "a" (Table 1) and "them" (Fig 1)."""
    return tuple(_words()["generic"])


def indirect_objects(n: int = 100, seed: int = 0) -> tuple[Prompt, ...]:
    """Draw `n` different sentences such as "When Mary and John went to a store, John gave a drink to" (Fig 1 and 2).

    The answer is the name that occurs once, and the wrong candidate is the name that occurs twice. The answer's name
    comes first in half of the sentences, chosen at random. No sentence contains "the" (footnote 1 of the paper).

    Errors: `SpecError` for `n` below 1 or above 10 000.
    """
    if not 1 <= n <= _MOST_OF_ALL:
        raise SpecError("n", f"{n} sentences", f"choose 1 to {_MOST_OF_ALL}")
    lists = _words()["indirect_objects"]
    random = generator(seed, "language", "indirect objects")
    answer_first = random.permutation(n) % 2 == 0
    prompts: dict[str, Prompt] = {}
    while len(prompts) < n:
        template, place, thing = (str(random.choice(lists[kind])) for kind in ("templates", "places", "objects"))
        answer, giver = map(str, random.choice(lists["names"], 2, replace=False))
        first, second = (answer, giver) if answer_first[len(prompts)] else (giver, answer)
        text = template.format(first=first, second=second, giver=giver, place=place, object=thing)
        prompts.setdefault(text, Prompt(text, answer, (giver,), "indirect object"))
    return tuple(prompts.values())


def relations() -> tuple[str, ...]:
    """Return the kinds of facts: country, capital, language, currency, symbol, author, native language."""
    return tuple(_words()["relations"])


def facts(relations: Sequence[str] = ("country",), phrasings: Sequence[int] = (0,)) -> tuple[Prompt, ...]:
    """Return prompts such as "Madrid is located in" with the answer "Spain" (Table 1), by default 149 cities.

    The wrong candidates are the other answers of the relation. No answer takes an article, so "the" never begins the
    right answer. With the tokenizers of SmolLM2 and Gemma, no two answers of a relation share their first token, and
    the first token has at least two letters unless it is the whole answer. The seven relations have 739 facts in total.

    Args:
        relations: some of `relations()`; the `kind` of a prompt is its relation
        phrasings: the sentences that ask for each fact: 0, 1 or both

    Errors: `SpecError` for an unknown relation or phrasing.
    """
    templates = _words()["relations"]
    if unknown := {*phrasings} - {0, 1}:
        raise SpecError("phrasings", f"there is no {min(unknown)}", "choose 0, 1 or both")
    rows = list(csv.DictReader(read_text("facts.tsv").splitlines(), delimiter="\t"))
    prompts = []
    for relation in relations:
        check_known("relations", relation, templates, "relation")
        own = [row for row in rows if row["relation"] == relation]
        answers = sorted({row["answer"] for row in own})
        for row in own:
            others = tuple(answer for answer in answers if answer != row["answer"])
            about = row["answer"] if relation in ("country", "author", "native") else row["subject"]
            prompts += [
                Prompt(templates[relation][one].format(row["subject"]), row["answer"], others, relation, about)
                for one in phrasings
            ]
    return tuple(prompts)


def with_country(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """Return the country prompts that end in "is located in", extended to "is located in the country of".

    Source: truncated weights, section 3, on better prompting that could make truncation unnecessary.
    """
    asked = [prompt for prompt in prompts if prompt.kind == "country" and prompt.text.endswith(" is located in")]
    return tuple(replace(prompt, text=f"{prompt.text} the country of") for prompt in asked)


def evenly(prompts: Sequence[Prompt], count: int) -> tuple[Prompt, ...]:
    """Return at most `count` prompts, spaced as evenly as possible."""
    few = min(count, len(prompts))
    return tuple(prompts[place * len(prompts) // few] for place in range(few))


def prepositions() -> tuple[Prompt, ...]:
    """Return the paper's 30 prepositions, each as a prompt without an answer (appendix F.1)."""
    return tuple(Prompt(word, kind="preposition") for word in _words()["prepositions"])


def sentences() -> tuple[Prompt, ...]:
    """Return 40 sentences of our own that end in a preposition, without answers and without "the".

    As in the paper, each ends in one of the 30 prepositions (appendix B.1).
    """
    return tuple(Prompt(line, kind="sentence") for line in read_text("sentences.txt").splitlines())


def paper_sentences() -> tuple[Prompt, ...]:
    """Return the paper's own 40 incomplete sentences that end in a preposition (appendix F.1), without an answer."""
    return tuple(Prompt(line, kind="sentence") for line in read_text("paper_sentences.txt").splitlines())


def split_by_unit(prompts: Sequence[Prompt], seed: int = 0) -> tuple[tuple[Prompt, ...], tuple[Prompt, ...]]:
    """Split prompts at random into two halves that share no unit; each keeps the order of `prompts`.

    Choose a truncation on the first half and report it on the second. Since no country, for example, has facts in both
    halves, a gain that is specific to one country does not carry over. The sizes of the halves differ by at most the
    prompts of one unit.
    """
    units = sorted({prompt.unit for prompt in prompts})
    generator(seed, "language", "split by answer").shuffle(units)
    counts = Counter(prompt.unit for prompt in prompts)
    first: set[str] = set()
    balance = 0
    for unit in units:
        if balance <= 0:
            first.add(unit)
        balance += counts[unit] if unit in first else -counts[unit]
    return (
        tuple(prompt for prompt in prompts if prompt.unit in first),
        tuple(prompt for prompt in prompts if prompt.unit not in first),
    )


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads(read_text("words.toml"))
