"""The tokens by which the words after a prompt are scored: up to the first token that tells a word from the others."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from anchorlab.language.prompts import Prompt

ABSENT = -1
"""The id of an answer that is missing or not scored; it also pads the rows of prompts with fewer candidates."""

Ids = tuple[int, ...]


class ScoredWords(NamedTuple):
    """The scored tokens of one prompt's words.

    Fields
        following: the answer's tokens before its last scored one; without an answer, the tokens that candidates share
        shared: the number of these tokens that all words share, which are not scored
        answer: the answer's last scored token; -1 without an answer, and if no token distinguishes it from a candidate
        candidates: for each scored candidate, the number of tokens of `following` that it begins with, and its first
            token that differs from them
        notes: one line for each word of several tokens, and for each word that is not scored
    """

    following: Ids
    shared: int
    answer: int
    candidates: tuple[tuple[int, int], ...]
    notes: tuple[str, ...]


def scored_words(prompt: Prompt, tokens: Mapping[str, Ids], read: Callable[[Ids], str]) -> ScoredWords:
    """Return the scored tokens of a prompt's answer and candidates.

    Args:
        prompt: the prompt
        tokens: the tokens of each word inside a sentence
        read: returns tokens as text, without spaces around it
    """
    answer = prompt.answer
    wrong = [word for word in dict.fromkeys(prompt.candidates) if word != answer]
    words = [*([answer] if answer else []), *wrong]
    if not words:
        return ScoredWords((), 0, ABSENT, (), ())
    path = tokens[words[0]]
    shared = _shared([tokens[word] for word in words], read)
    last = shared if answer is None else _first_told(path, [tokens[word] for word in wrong], shared, read)
    following = path[: len(path) - 1 if last is None else last]
    notes = []
    if answer is not None:
        notes.append(f"'{answer}' begins another of the words, and is not scored")
        if last is not None:
            notes = _several(answer, path, shared, last, read)
    taken: dict[tuple[int, int], str] = {}
    for word in wrong:
        ids = tokens[word]
        at = min(_alike(ids, path), shared) if answer is None else _alike(ids, path)
        if at == len(ids) or at > len(following):
            notes.append(f"'{word}' and '{words[0]}' begin with the same tokens, and are not told apart")
        elif not read(ids[at : at + 1]):
            notes.append(only_a_space(word))
        elif (at, ids[at]) in taken:
            notes.append(f"'{word}' and '{taken[at, ids[at]]}' begin with the same tokens, and are not told apart")
        else:
            taken[at, ids[at]] = word
            notes += _several(word, ids, shared, at, read)
    token = ABSENT if answer is None or last is None else path[last]
    return ScoredWords(following, shared, token, tuple(taken), tuple(notes))


def only_a_space(word: str) -> str:
    """Return the note of a word that is not scored because its first token is a mere space."""
    return f"'{word}' begins with a space of its own, as other words do, and is not scored"


def _shared(words: Sequence[Ids], read: Callable[[Ids], str]) -> int:
    """Return the number of leading tokens that all words share; for a single word, that are mere spaces."""
    most = min(map(len, words)) - 1
    if len(words) > 1:
        return min(most, *(_alike(words[0], other) for other in words[1:]))
    return next((at for at in range(most) if read(words[0][at : at + 1])), most)


def _first_told(path: Ids, others: Sequence[Ids], shared: int, read: Callable[[Ids], str]) -> int | None:
    """Return the index of the first token of `path`, other than a mere space, that distinguishes it from all others."""
    for at in range(shared, len(path)):
        if read(path[at : at + 1]) and all(_alike(path, other) <= at for other in others):
            return at
    return None


def _alike(one: Ids, other: Ids) -> int:
    """Return the number of leading tokens that two words share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _several(word: str, ids: Ids, shared: int, last: int, read: Callable[[Ids], str]) -> list[str]:
    """Return the note of a word of several tokens."""
    if len(ids) == 1:
        return []
    places = {(0, 0): "the first", (0, 1): "the first two"}
    which = places.get((shared, last), f"token {last + 1}" if shared == last else f"tokens {shared + 1} to {last + 1}")
    said = read(ids[shared : last + 1])
    return [f"'{word}' is {len(ids)} tokens; {which}, '{said}', {'is' if shared == last else 'are'} scored"]
