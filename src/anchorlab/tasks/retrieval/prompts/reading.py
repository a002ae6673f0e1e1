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
    return _READERS[formulation](text)


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

    def chain(self, facts: Facts, key: str, kind: str) -> str:
        """Follow names as long as they have a value; then name the hops by distance from the end, as `value 1`."""
        start = len(self.hops)
        while (key,) in facts and not self.lost and len(self.hops) - start <= len(facts):
            key = self.step("", facts, key)
        self.lost |= (key,) in facts  # a circle
        own = self.hops[start:]
        self.hops[start:] = [Hop(f"{kind} {len(own) - place}", hop.value, hop.at) for place, hop in enumerate(own)]
        return key


_NOWHERE = Reading((), None)


def _facts(pattern: str, text: str, keys: Iterable[str] = ("key",)) -> Facts:
    """Return the facts in all lines that match a pattern; its named groups are the words of the key and the value."""
    found: Facts = {}
    for match in re.finditer(f"^{pattern}$", text, re.MULTILINE):
        found.setdefault(tuple(match[key] for key in keys), []).append((match["value"], match.start("value")))
    return found


def _equations(text: str) -> Reading:
    asked = re.search(r"^What is the value of (\w+)\?", text, re.MULTILINE)
    if asked is None:
        return _NOWHERE
    trail = _Trail()
    end = trail.chain(_facts(r"(?P<key>[a-z]+) = (?P<value>\w+)", text), asked[1], "value")
    return trail.end(end if end.isdigit() else "")


def _lives_with(text: str) -> Reading:
    asked = re.search(r"^Where does (\w+) live\?", text, re.MULTILINE)
    if asked is None:
        return _NOWHERE
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


def _kingdoms(text: str) -> Reading:
    for depth, (question, _) in enumerate(_KINGDOMS, start=1):
        if asked := re.search(f"^{question}", text, re.MULTILINE):
            trail, key = _Trail(), asked[1]
            for level in range(depth, 0, -1):
                pattern = _KINGDOMS[level - 1][1]
                value = trail.step(f"value {level}", _facts(pattern, text), key)
                key = {2: value.removesuffix("ns"), 3: value.removesuffix("ists").lower(), 4: value.lower()}.get(
                    level, value
                )
            return trail.end(key)
    return _NOWHERE


def _functions(text: str) -> Reading:
    asked = re.search(r"^What is the value of (\w+)\((\w+)\)\?", text, re.MULTILINE)
    if asked is None:
        return _NOWHERE
    table = _facts(r"(?P<function>[a-z]+)\((?P<argument>\d+)\) = (?P<value>\d+)", text, keys=("function", "argument"))
    named = _facts(r"(?P<key>[a-z]+) = (?P<value>\w+)", text)
    trail = _Trail()
    function = trail.chain(named, asked[1], "function")
    argument = trail.chain(named, asked[2], "argument")
    hops = [Hop(f"{kind} {int(level) + 1}", hop.value, hop.at) for hop in trail.hops
            for kind, level in [hop.name.split()]]  # fmt: skip
    trail.hops = hops  # the table is level 1
    return trail.end(trail.step("value 1", table, function, argument))


def _relatives(text: str) -> Reading:
    asked = re.search(r"^Where does (\w+) live\?", text, re.MULTILINE)
    if asked is None:
        return _NOWHERE
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


_READERS: dict[str, Callable[[str], Reading]] = {
    "equations": _equations,
    "lives-with": _lives_with,
    "kingdoms": _kingdoms,
    "functions": _functions,
    "relatives": _relatives,
}
