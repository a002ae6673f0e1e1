"""Prompts of the truncation paper's section 3: indirect objects, facts, prepositions and sentences that end in one.

Each asks for the next word. The paper follows the probability of the right word and of generic words such as "the".
"""

import csv
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.rng import generator

_MOST_OF_ALL = 10_000  # sentences about indirect objects; the lists hold 2.5 million


@dataclass(frozen=True)
class Prompt:
    """A beginning of a sentence, with the right next word if there is one.

    Fields
        text: the beginning, without a space at its end
        answer: the right next word, without a space before it; `None` where no word is right
        candidates: wrong words of the same kind, such as the other countries
        kind: which set it belongs to, such as `fact`
    """

    text: str
    answer: str | None = None
    candidates: tuple[str, ...] = ()
    kind: str = "prompt"


def generic_words() -> tuple[str, ...]:
    """Return the words that the truncation paper calls generic: "the", then "a" (Table 1) and "them" (Fig 1)."""
    return tuple(_words()["generic"])


def indirect_objects(n: int = 100, seed: int = 0) -> tuple[Prompt, ...]:
    """Draw `n` different sentences such as "When Mary and John went to a store, John gave a drink to" (Fig 1 and 2).

    The answer is the name that occurs once, the wrong candidate the one that occurs twice. The answer comes first in
    half of the sentences, in a random order. No sentence contains "the" (footnote 1 of the paper).

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


def facts() -> tuple[Prompt, ...]:
    """Return prompts such as "Madrid is located in" with the answer "Spain" (Table 1): 149 cities of 84 countries.

    The wrong candidates are the other countries. Every country is one token of the tokenizers of GPT-2 and SmolLM2, and
    none takes an article, so that "the" is never the beginning of the right answer.
    """
    rows = list(csv.DictReader(_read("facts.csv").splitlines()))
    countries = sorted({row["country"] for row in rows})
    return tuple(
        Prompt(
            f"{row['place']} is located in",
            row["country"],
            tuple(country for country in countries if country != row["country"]),
            "fact",
        )
        for row in rows
    )


def prepositions() -> tuple[Prompt, ...]:
    """Return the paper's 30 prepositions, each a prompt of its own without an answer (appendix F.1)."""
    return tuple(Prompt(word, kind="preposition") for word in _words()["prepositions"])


def sentences() -> tuple[Prompt, ...]:
    """Return 40 sentences that break off after a preposition, without an answer and without "the" (appendix B.1).

    They are not the paper's. As in the paper, each ends in one of the 30 prepositions.
    """
    return tuple(Prompt(line, kind="sentence") for line in _read("sentences.txt").splitlines())


def split_by_answer(prompts: Sequence[Prompt], seed: int = 0) -> tuple[tuple[Prompt, ...], tuple[Prompt, ...]]:
    """Split prompts at random into two halves that share no answer; each keeps the order of `prompts`.

    A truncation chosen on the first half is reported on the second: what helps one city's country cannot help the
    other half by that country alone. The halves differ in size by at most the prompts of one answer.
    """
    answers = sorted({prompt.answer or "" for prompt in prompts})
    generator(seed, "language", "split by answer").shuffle(answers)
    counts = {answer: sum((prompt.answer or "") == answer for prompt in prompts) for answer in answers}
    first: set[str] = set()
    balance = 0
    for answer in answers:
        if balance <= 0:
            first.add(answer)
        balance += counts[answer] if answer in first else -counts[answer]
    return (
        tuple(prompt for prompt in prompts if (prompt.answer or "") in first),
        tuple(prompt for prompt in prompts if (prompt.answer or "") not in first),
    )


def _read(name: str) -> str:
    return (files("anchorlab.language.texts") / name).read_text("utf-8")


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads(_read("words.toml"))
