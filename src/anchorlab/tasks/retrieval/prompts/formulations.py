"""The paper's five formulations of the retrieval problem (section 4; examples in appendix A).

`chains` is the number of chains that questions ask about, and `every` the number of all chains; the other, distracting
chains lack the premise next to the question. Steps are counted from the answer.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from anchorlab.errors import SpecError
from anchorlab.tasks.retrieval.prompts.formulation import Formulation, Key, Step, Values
from anchorlab.tasks.retrieval.prompts.words import blocks, lists, words

_NUMBER = "Say directly only the numeric value, without any other words."
_KINGDOMS = 5
_RELATIVES = 4


def equations(chains: int, every: int, steps: int) -> Formulation:
    """Return the formulation "a = 3, b = a, c = b. What is the value of c?" (F1)."""
    variables = blocks("variables", every, steps)
    values = (tuple(str(number) for number in range(every)), *variables[:-1])
    return _chain(
        templates=["{0} = {value}\n"] * steps,
        keys=variables,
        values=values,
        chains=chains,
        questions=["What is the value of {0}?"] * steps,
        begun=["The value of {0} is"] * steps,
        instruction=_NUMBER,
    )


def lives_with(chains: int, every: int, steps: int) -> Formulation:
    """Return the formulation "Alice lives in Cairo, Bob lives with Alice. Where does Bob live?" (F2)."""
    names = blocks("names", every, steps)
    return _chain(
        templates=["{0} lives in {value}\n", *["{0} lives with {value}\n"] * (steps - 1)],
        keys=names,
        values=(words("cities", every), *names[:-1]),
        chains=chains,
        questions=["Where does {0} live?"] * steps,
        begun=["{0} lives in"] * steps,
        instruction="Say directly only the name of the city, without any other words.",
    )


def kingdoms(chains: int, every: int, steps: int) -> Formulation:
    """Return the formulation "Alice lives in Novaria. Novarians believe in ..." (F3), of at most five steps.

    The question names the end of a chain, and the answer is its beginning, a person.
    """
    if steps > _KINGDOMS:
        raise SpecError("steps", f"{steps} are too many for kingdoms", f"choose 1 to {_KINGDOMS}")
    lands, beliefs, foods = words("kingdoms", every), words("beliefs", every), words("foods", every)
    minerals = words("minerals", every)
    believers = tuple(f"{belief.capitalize()}ists" for belief in beliefs)
    rows = (
        (words("names", every), "lives in", lands, "Who lives in"),
        (tuple(f"{land}ns" for land in lands), "believe in", tuple(f"{one}ism" for one in beliefs), "Who believes in"),
        (believers, "eat", foods, "Who eats"),
        (tuple(food.capitalize() for food in foods), "contains", minerals, "Whose food contains"),
        (minerals, "causes", words("illnesses", every), "Who has"),
    )
    values, verbs, keys, questions = zip(*rows[:steps], strict=True)
    return _chain(
        templates=[f"{{value}} {verb} {{0}}.\n" for verb in verbs],
        keys=keys,
        values=values,
        chains=chains,
        questions=[f"{question} {{0}}?" for question in questions],
        begun=[f"The one w{question[1:]} {{0}} is" for question in questions],
        instruction="Say directly the name without other words.",
    )


def functions(chains: int, every: int, steps: int) -> Formulation:
    """Return the formulation "f(2) = 3, g = f, a = 2. What is the value of g(a)?" (F4, conditional).

    Step 1 is a table of each function's values; each further step gives new names to the functions and to the
    arguments. Functions and arguments are drawn independently of each other. Distracting chains are functions without
    further names.
    """
    named = blocks("variables", every, 1) if steps == 1 else _function_names(chains, every, steps)
    tables, names, arguments = named[0], named[1:steps], named[steps:]
    numbers = tuple(str(number) for number in range(chains))
    table = Step(
        "{0}({1}) = {value}\n",
        tuple((function, number) for function in tables for number in numbers),
        pools=(numbers,) * every,
        pool_of=tuple(function for function in range(every) for _ in numbers),
        shuffled=False,
    )
    aliases = [
        Step("{0} = {value}\n", _single(own), (of,), shuffled=False)
        for first, chain in ((tables, names), (numbers, arguments))
        for of, own in zip((first, *chain), chain, strict=False)
    ]
    further = steps - 1

    def hops(values: Values, roots: Int[np.ndarray, "batch root"]) -> list[Int[np.ndarray, "batch"]]:
        found, ends = [], []
        for root, start in enumerate((1, 1 + further)):
            current = roots[:, root]
            for step in range(start + further - 1, start - 1, -1):
                found.append(current)
                current = _value(values[step], current)
            ends.append(current)
        return [*found, ends[0] * chains + ends[1]]

    levels = tuple(range(steps, 1, -1))
    return Formulation(
        steps=(table, *aliases),
        roots=(chains, chains),
        hops=hops,
        reads=(*range(further, 0, -1), *range(2 * further, further, -1), 0),
        levels=(*levels, *levels, 1),
        questions=dict.fromkeys(range(1, steps + 1), "What is the value of {0}({1})?"),
        begun=dict.fromkeys(range(1, steps + 1), "The value of {0}({1}) is"),
        instruction=_NUMBER,
    )


def relatives(chains: int, every: int, steps: int) -> Formulation:
    """Return the formulation "Jane lives in Kenya. Johns mother is Jane. Doctors live with ..." (F5, conditional).

    This formulation always has four steps. Distracting chains are people without a job.
    """
    if steps != _RELATIVES:
        raise SpecError("steps", f"{steps} do not fit relatives", f"leave them {_RELATIVES}")
    people = words("people", every)
    relations = lists()["relations"][:chains]
    jobs = lists()["jobs"][:chains]
    if min(len(relations), len(jobs)) < chains:
        raise SpecError("chains", f"{chains} relations are needed, but the list has {len(relations)}", "ask for fewer")
    women = words("women", every * sum(one["woman"] for one in relations))
    men = words("men", every * sum(not one["woman"] for one in relations))
    family = tuple((person, one["one"]) for person in people for one in relations)
    at_home = Step("{0} lives in {value}.\n", _single((*women, *men)), (words("countries", len(family)),))
    known = Step(
        "{0}s {1} is {value}.\n",
        family,
        pools=(women, men),
        pool_of=tuple(int(not one["woman"]) for _ in people for one in relations),
        shuffled=False,
    )
    customs = Step(
        "{0} live with their {value}.\n",
        _single([one["all"] for one in jobs]),
        (tuple(one["all"] for one in relations),),
        shuffled=False,
    )
    work = Step(
        "{0} works as {value}.\n", _single(people[:chains]), (tuple(one["one"] for one in jobs),), shuffled=False
    )
    first = np.array([0, len(women)])[list(known.pool_indices)]  # index of each pool's first relative in the first step

    def hops(values: Values, roots: Int[np.ndarray, "batch root"]) -> list[Int[np.ndarray, "batch"]]:
        person = roots[:, 0]
        job = _value(values[3], person)
        relation = person * len(relations) + _value(values[2], job)
        return [person, job, relation, first[relation] + _value(values[1], relation)]

    asking = "Where does {0} live?"
    return Formulation(
        steps=(at_home, known, customs, work),
        roots=(chains,),
        hops=hops,
        reads=(3, 2, 1, 0),
        levels=(4, 3, 2, 1),
        questions={1: asking, 4: asking},
        begun={1: "{0} lives in", 4: "{0} lives in"},
        instruction="Say directly only the name, without any other words.",
    )


FORMULATIONS: dict[str, Callable[[int, int, int], Formulation]] = {
    "equations": equations,
    "lives-with": lives_with,
    "kingdoms": kingdoms,
    "functions": functions,
    "relatives": relatives,
}
"""The formulations by name, as functions of the numbers of chains asked about, of all chains, and of steps."""


def _chain(
    templates: Sequence[str],
    keys: Sequence[Sequence[str]],
    values: Sequence[Sequence[str]],
    chains: int,
    questions: Sequence[str],
    begun: Sequence[str],
    instruction: str,
) -> Formulation:
    """Return a formulation in which each step's value is the key of the step before; the last has `chains` premises."""
    depth = len(templates)
    kept = [*(tuple(one) for one in keys[:-1]), tuple(keys[-1][:chains])]
    steps = tuple(
        Step(template, _single(own), (tuple(pool),))
        for template, own, pool in zip(templates, kept, values, strict=True)
    )

    def hops(steps_values: Values, roots: Int[np.ndarray, "batch root"]) -> list[Int[np.ndarray, "batch"]]:
        found = [roots[:, 0]]
        for step in range(depth - 1, 0, -1):
            found.append(_value(steps_values[step], found[-1]))
        return found

    return Formulation(
        steps=steps,
        roots=(chains,),
        hops=hops,
        reads=tuple(range(depth - 1, -1, -1)),
        levels=tuple(range(depth, 0, -1)),
        questions=dict(enumerate(questions, start=1)),
        begun=dict(enumerate(begun, start=1)),
        instruction=instruction,
    )


def _function_names(chains: int, every: int, steps: int) -> tuple[tuple[str, ...], ...]:
    """Return the names of the tables, then of each further step's functions, then of each further step's arguments."""
    sizes = [every, *[chains] * (2 * (steps - 1))]
    found, ends = words("variables", sum(sizes), "steps"), np.cumsum([0, *sizes]).tolist()
    return tuple(found[start:stop] for start, stop in pairwise(ends))


def _single(keys: Sequence[str]) -> tuple[Key, ...]:
    return tuple((key,) for key in keys)


def _value(values: Int[np.ndarray, "batch premise"], premise: Int[np.ndarray, "batch"]) -> Int[np.ndarray, "batch"]:
    """Return the value of one premise of each row."""
    return np.asarray(np.take_along_axis(values, premise[:, None], axis=1)[:, 0])
