"""Read answers from the text of a question alone, by patterns independent of how questions are drawn."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Facts = dict[tuple[str, ...], list[tuple[str, int]]]
"""The values that premises give to each key, with the index of each value's first character in the text."""


@dataclass(frozen=True)
class Hop:
    """One premise that was read: the value found, and the index of its first character in the text."""

    name: str
    value: str
    at: int


@dataclass(frozen=True)
class Reading:
    """The result of reading a text: the hops from the question on, and the answer; None without a unique answer."""

    hops: tuple[Hop, ...]
    answer: str | None


def read(formulation: str, text: str) -> Reading:
    """Read the answer to a question of this formulation; the paper's instruction may follow the question.

    The answer is None if the text has no question, or if not exactly one premise fits at some hop.
    """
    question, reader = _READERS[formulation]
    asked = re.search(f"^{question}", text, re.MULTILINE)
    return Reading((), None) if asked is None else reader(asked, text)


def hop_names(formulation: str, steps: int) -> tuple[str, ...]:
    """Return the names of the hops of the longest question, from the question on."""
    levels = range(steps, 1, -1)
    if formulation == "functions":
        return (*(f"function {level}" for level in levels), *(f"argument {level}" for level in levels), "value 1")
    if formulation == "relatives":
        return ("job", "relation", "relative", "home")
    return (*(f"value {level}" for level in levels), "value 1")


class _Trail:
    """Follows facts from hop to hop; it is lost, and stops, at a key without exactly one value."""

    def __init__(self) -> None:
        self.hops: list[Hop] = []
        self.lost = False

    def step(self, name: str, facts: Facts, *key: str) -> str:
        found = facts.get(key, [])
        self.lost |= len(found) != 1
        if self.lost:
            return ""
        value, at = found[0]
        self.hops.append(Hop(name, value, at))
        return value

    def end(self, answer: str) -> Reading:
        return Reading(tuple(self.hops), None if self.lost or not answer else answer)

    def chain(self, facts: Facts, key: str, kind: str, last: int = 1) -> str:
        """Follow names as long as they have a value; number the hops from the end on, the last one `value 1`."""
        start = len(self.hops)
        while (key,) in facts and not self.lost and len(self.hops) - start <= len(facts):
            key = self.step("", facts, key)
        self.lost |= (key,) in facts  # a circle
        own = self.hops[start:]
        levels = range(len(own) - 1 + last, last - 1, -1)
        self.hops[start:] = [Hop(f"{kind} {at}", hop.value, hop.at) for at, hop in zip(levels, own, strict=True)]
        return key


def _facts(pattern: str, text: str, keys: Iterable[str] = ("key",)) -> Facts:
    """Return the facts in all lines that match a pattern; its named groups are the words of the key and the value."""
    found: Facts = {}
    for match in re.finditer(f"^{pattern}$", text, re.MULTILINE):
        found.setdefault(tuple(match[key] for key in keys), []).append((match["value"], match.start("value")))
    return found


def _equations(asked: re.Match[str], text: str) -> Reading:
    trail = _Trail()
    end = trail.chain(_facts(r"(?P<key>[a-z]+) = (?P<value>\w+)", text), asked[1], "value")
    return trail.end(end if end.isdigit() else "")


def _lives_with(asked: re.Match[str], text: str) -> Reading:
    places = _facts(r"(?P<key>\w+) lives in (?P<value>\w+)", text)
    both = _facts(r"(?P<key>\w+) lives (?:in|with) (?P<value>\w+)", text)
    trail = _Trail()
    end = trail.chain(both, asked[1], "value")
    return trail.end(end if any(end == place for found in places.values() for place, _ in found) else "")


_KINGDOMS = (
    (r"Who lives in (\w+)\?", r"(?P<value>\w+) lives in (?P<key>\w+)\."),
    (r"Who believes in (\w+)ism\?", r"(?P<value>(?P<next>\w+)ns) believe in (?P<key>\w+)ism\."),
    (r"Who eats (\w+)\?", r"(?P<value>(?P<next>\w+)ists) eat (?P<key>\w+)\."),
    (r"Whose food contains (\w+)\?", r"(?P<value>(?P<next>\w+)) contains (?P<key>\w+)\."),
    (r"Who has (\w+)\?", r"(?P<value>(?P<next>\w+)) causes (?P<key>\w+)\."),
)


def _kingdoms(asked: re.Match[str], text: str) -> Reading:
    depth = asked.lastindex or 0  # of the question that matches
    trail, key = _Trail(), asked[depth]
    for level in range(depth, 0, -1):
        value = trail.step(f"value {level}", _facts(_KINGDOMS[level - 1][1], text), key)
        names = {2: value.removesuffix("ns"), 3: value.removesuffix("ists").lower(), 4: value.lower()}
        key = names.get(level, value)
    return trail.end(key)


def _functions(asked: re.Match[str], text: str) -> Reading:
    table = _facts(r"(?P<function>[a-z]+)\((?P<argument>\d+)\) = (?P<value>\d+)", text, keys=("function", "argument"))
    named = _facts(r"(?P<key>[a-z]+) = (?P<value>\w+)", text)
    trail = _Trail()
    function = trail.chain(named, asked[1], "function", 2)  # the table is level 1
    argument = trail.chain(named, asked[2], "argument", 2)
    return trail.end(trail.step("value 1", table, function, argument))


def _relatives(asked: re.Match[str], text: str) -> Reading:
    homes = _facts(r"(?P<key>\w+) lives in (?P<value>\w+)\.", text)
    family = _facts(r"(?P<person>\w+)s (?P<relation>\w+) is (?P<value>\w+)\.", text, keys=("person", "relation"))
    customs = _facts(r"(?P<key>\w+)s live with their (?P<value>\w+s)\.", text)
    work = _facts(r"(?P<key>\w+) works as (?P<value>an? \w+)\.", text)
    trail, person = _Trail(), asked[1]
    if (person,) in homes:
        return trail.end(trail.step("home", homes, person))
    job = trail.step("job", work, person).removeprefix("an ").removeprefix("a ").capitalize()
    relation = trail.step("relation", customs, job).removesuffix("s")
    relative = trail.step("relative", family, person, relation)
    return trail.end(trail.step("home", homes, relative))


_READERS: dict[str, tuple[str, Callable[[re.Match[str], str], Reading]]] = {
    "equations": (r"What is the value of (\w+)\?", _equations),
    "lives-with": (r"Where does (\w+) live\?", _lives_with),
    "kingdoms": (f"(?:{'|'.join(question for question, _ in _KINGDOMS)})", _kingdoms),
    "functions": (r"What is the value of (\w+)\((\w+)\)\?", _functions),
    "relatives": (r"Where does (\w+) live\?", _relatives),
}
"""For each formulation, the pattern of its question and the function that reads the answer."""
