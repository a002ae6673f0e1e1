"""Retrieval prompts: the paper's own examples, answers worked out by hand, and every option."""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from anchorlab.errors import SpecError
from anchorlab.tasks import RetrievalPrompts, task
from anchorlab.tasks.retrieval.prompts.reading import read

_SECTIONS = re.split(r"^# ", (Path(__file__).parent / "appendix.txt").read_text("utf-8"), flags=re.MULTILINE)[1:]


def _example(section: str) -> tuple[str, tuple[str, str, tuple[str, ...]]]:
    name, body = section.split("\n", 1)
    prompt, answers = body.rsplit("\nCorrect: ", 1)
    correct, acceptable = answers.strip().split("\nAcceptable: ")
    return name, (prompt, correct, tuple(acceptable.split(", ")))


APPENDIX = dict(map(_example, _SECTIONS))
"""Prompt, correct answer and acceptable answers by formulation."""


every = pytest.mark.parametrize("name", APPENDIX)


def tokens_of(one, text):
    """Return a text as tokens of a task: the longest token that fits comes next."""
    ids, found = {one.text_of(token): token for token in range(one.shape.input_size)}, []
    while text:
        longest = max((known for known in ids if text.startswith(known)), key=len)
        found.append(ids[longest])
        text = text[len(longest) :]
    return torch.tensor([found])


@every
def test_the_papers_example_is_one_of_the_task(name):
    one = task(f"retrieval/{name}")
    prompt, correct, acceptable = APPENDIX[name]
    instruction = one.words.instruction
    assert prompt.endswith(f" {instruction}")
    tokens = tokens_of(one, prompt.removesuffix(f" {instruction}"))
    assert tokens.shape == (1, one.shape.length)
    assert one.texts(tokens) == [prompt.removesuffix(f" {instruction}")]
    assert one.split_of(tokens).tolist() == [0]
    answer = one.oracle(tokens)
    assert answer.known.all() and one.text_of(int(answer.answers)) == correct
    assert sorted(one.words.candidates) == list(acceptable)


PATHS = {  # followed by hand in the paper's examples
    "equations": ["p", "l", "g", "a", "1"],
    "lives-with": ["Peter", "Larry", "Frank", "Alice", "Berlin"],
    "kingdoms": ["Zephyrium", "Lamb", "Harmonianists", "Novarians", "Alice"],
    "functions": ["a", "0", "3"],
    "relatives": ["a lawyer", "mothers", "Lily", "Brazil"],
}


@every
def test_the_papers_example_is_answered_from_its_prompt_hop_by_hop(name):
    one = task(f"retrieval/{name}")
    prompt, correct, _ = APPENDIX[name]
    found = read(name, prompt)
    assert found.answer == correct and [hop.value for hop in found.hops] == PATHS[name]
    assert tuple(hop.name for hop in found.hops) == one.hops
    tokens = tokens_of(one, prompt.removesuffix(f" {one.words.instruction}"))
    trace = one.oracle(tokens).trace
    assert [one.text_of(int(step.value)) for step in trace] == PATHS[name]
    assert [int(tokens[0, int(step.position)]) for step in trace] == [int(step.value) for step in trace]


BROKEN = [
    ("equations", "b = 2\n", ""),  # the premise is missing
    ("equations", "q = n\n", "q = n\ns = n\n"),  # two premises fit
    ("equations", "a = 1\n", "a = s\n"),  # a circle
    ("equations", "What", "Who"),
    ("lives-with", "Alice lives in Berlin\n", ""),
    ("lives-with", "Alice lives in", "Alice lives with"),
    ("kingdoms", "Lamb contains Zephyrium.\n", ""),
    ("kingdoms", "Lamb contains Zephyrium.\n", "Lamb contains Zephyrium.\nPork contains Zephyrium.\n"),
    ("functions", "a(0) = 3\n", ""),
    ("functions", "i = 0\n", "i = 9\n"),
    ("relatives", "Eve works as a lawyer.\n", ""),
    ("relatives", "Lawyers live with their mothers.", "Lawyers live with their aunts."),
]


@pytest.mark.parametrize(("name", "old", "new"), BROKEN)
def test_a_text_that_does_not_say_it_has_no_answer(name, old, new):
    prompt = APPENDIX[name][0]
    assert old in prompt
    broken = prompt.replace(old, new)
    if (name, old) == ("equations", "b = 2\n"):
        assert read(name, broken).answer == "1"  # the asked chain is whole
        broken = prompt.replace("a = 1\n", new)
    assert read(name, broken).answer is None


@every
@pytest.mark.parametrize(
    "options",
    [{"order": "steps"}, {"order": "shuffled"}, {"order": "sorted"}, {"order": "shuffled", "distractors": 2},
     {"chains": 1}, {"chains": 7, "distractors": 1}],
)  # fmt: skip
def test_every_option_gives_questions_with_one_answer(name, options):
    one = task(f"retrieval/{name}", **options)
    batch = one.sample("train", 200, 3)
    answer = one.oracle(batch.inputs)
    assert answer.known.all() and torch.equal(answer.answers, batch.answers)
    assert (one.split_of(batch.inputs) == 0).all()
    assert torch.equal(torch.stack([step.position for step in answer.trace], dim=1), batch.latents["places"])
    assert torch.equal(torch.stack([step.value for step in answer.trace], dim=1), batch.latents["path"])
    lines = [text.split("\n")[:-1] for text in one.texts(batch.inputs)]
    assert all(len(set(own)) == len(own) for own in lines)
    if options.get("order") == "sorted":
        assert len({tuple(line.split()[0] for line in own) for own in lines}) == 1 or name == "kingdoms"


@every
def test_orders_are_what_they_are_called(name):
    def keys(order, row=slice(None)):
        one = task(f"retrieval/{name}", order=order)
        return one, one.sample("train", 400, 0).latents["order"].numpy()

    one, listed = keys("sorted")
    assert (listed == np.arange(listed.shape[1])).all()
    bounds = np.cumsum([0, *(len(step.keys) for step in one.words.steps)])
    _, steps = keys("steps")
    for start, stop in pairwise(bounds):
        own = steps[:, start:stop]
        assert (np.sort(own, axis=1) == np.arange(start, stop)).all()
        assert abs((own[:, 0] == start).mean() - 1 / (stop - start)) < 0.1
    _, mixed = keys("shuffled")
    assert abs((mixed[:, 0] < bounds[1]).mean() - bounds[1] / bounds[-1]) < 0.1
    _, paper = keys("paper")
    for step, start, stop in zip(one.words.steps, bounds, bounds[1:], strict=False):
        in_order = (paper[:, start:stop] == np.arange(start, stop)).all(axis=1).mean()
        assert in_order < 0.2 if step.shuffled else in_order == 1


def test_answers_and_questions_are_uniform():
    one = task("retrieval/kingdoms")
    batch = one.sample("train", 8000, 1)
    for drawn in (batch.answers[:, 0], batch.inputs[:, -2], batch.latents["roots"][:, 0]):
        counts = list(Counter(drawn.tolist()).values())
        assert len(counts) == 4 and stats.chisquare(counts).pvalue > 1e-3


def test_distracting_chains_end_before_the_question_and_words_of_a_long_one_do_not_clash():
    one = task("retrieval/lives-with", chains=3, distractors=2, steps=4)
    text = one.texts(one.sample("train", 1, 0).inputs)[0]
    lines = text.split("\n")[:-1]
    assert len(lines) == 3 * 5 + 3
    assert len(one.words.candidates) == 5
    assert len({line.split()[0] for line in lines[10:15]} - {line.split()[-1] for line in lines[15:]}) == 2
    for name, steps in (("equations", 10), ("lives-with", 10), ("kingdoms", 5), ("functions", 6), ("relatives", 4)):
        one = task(f"retrieval/{name}", chains=8, steps=steps)
        names = [key for step in one.words.steps for key in step.keys]
        assert len(set(names)) == len(names)
        batch = one.sample("test", 50, 0)
        assert torch.equal(one.oracle(batch.inputs).answers, batch.answers)
    assert "is" not in [key[0] for key in task("retrieval/equations", chains=8, steps=50).words.steps[-1].keys]


@pytest.mark.parametrize(("name", "depths"), [("equations", (1, 2, 3, 4, 5)), ("kingdoms", (1, 3, 5)),
                                              ("functions", (1, 2)), ("relatives", (1, 4))])  # fmt: skip
def test_a_prefix_asks_about_the_same_premises(name, depths):
    whole = task(f"retrieval/{name}").questions(30, seed=4)
    for depth in depths:
        parts = task(f"retrieval/{name}", asked_steps=(depth,)).questions(30, seed=4)
        for part, one in zip(parts, whole, strict=True):
            assert part.text.split("\n")[:-1] == one.text.split("\n")[:-1]
            assert part.answer == one.answer and part.depth == depth
            assert part.path == one.path[-len(part.path) :] or name == "functions"
            assert read(name, part.prompt).answer == one.answer
    mixed = task(f"retrieval/{name}", asked_steps=depths).sample("train", 500, 0)
    assert set(mixed.group.tolist()) == set(range(len(depths)))


def test_question_in_full():
    one = task("retrieval/equations", chains=2, steps=2, order="sorted")
    question = next(
        asked for asked in one.questions(50, seed=0) if asked.text.startswith("a = 1\nb = 0\nc = b\nd = a\n")
    )
    key = question.text[-2]
    assert question.text == f"a = 1\nb = 0\nc = b\nd = a\nWhat is the value of {key}?"
    assert question.prompt == f"{question.text} Say directly only the numeric value, without any other words."
    assert question.begun == f"The value of {key} is"
    assert (question.answer, question.path) == {"c": ("0", ("b", "0")), "d": ("1", ("a", "1"))}[key]
    assert question.hops == ("value 2", "value 1") and question.candidates == ("0", "1") and question.chance == 0.5
    # a premise has four tokens, of which the third is its value; the question's last is the 19th
    assert question.distances == {"c": (8, 4), "d": (4, 12)}[key]
    assert question.order == (0, 1, 2, 3)


def test_distances_of_a_function_and_its_argument_begin_at_the_question():
    one = task("retrieval/functions", chains=2)
    for question in one.questions(20, seed=0):
        lines = question.text.split("\n")
        # two tables of two lines with six tokens, then four names with four
        ends = [6 * 4 + 4 * place + 2 for place in range(4)]
        asked = question.begun.removeprefix("The value of ").removesuffix(") is").split("(")
        function, argument = (next(i for i, line in enumerate(lines[4:]) if line.startswith(word)) for word in asked)
        length = 6 * 4 + 4 * 4 + 5
        assert question.distances[:2] == (length - 1 - ends[function], length - 1 - ends[argument])


BAD = [
    ({"formulation": "riddles"}, "formulation"),
    ({"formulation": "lives-with", "steps": 64}, "steps: 256 names are needed, but the list has 156"),
    ({"formulation": "equations", "chains": 64, "steps": 64}, "variables are needed"),
    ({"formulation": "lives-with", "chains": 64, "steps": 1, "distractors": 0}, None),
    ({"formulation": "kingdoms", "steps": 6}, "steps: 6 are too many for kingdoms"),
    ({"formulation": "kingdoms", "chains": 30, "steps": 5}, "foods are needed"),
    ({"formulation": "relatives", "steps": 3}, "steps: 3 do not fit relatives"),
    ({"formulation": "relatives", "chains": 11, "steps": 4}, "people are needed"),
    ({"formulation": "relatives", "chains": 10, "steps": 4}, None),
    ({"formulation": "relatives", "steps": 4, "asked_steps": (2,)}, "asked_steps"),
    ({"formulation": "equations", "asked_steps": (6,)}, "asked_steps"),
    ({"formulation": "equations", "asked_steps": (3, 1)}, "asked_steps"),
    ({"formulation": "equations", "steps": 1, "distractors": 1}, "distractors"),
    ({"formulation": "equations", "order": "random"}, "order"),
    ({"formulation": "equations", "chains": 0}, "chains"),
]


@pytest.mark.parametrize(("fields", "problem"), BAD)
def test_bad_fields_are_refused_in_one_line(fields, problem):
    if problem is None:
        assert RetrievalPrompts(**fields).sample("train", 2, 0)
        return
    with pytest.raises(SpecError, match=problem) as error:
        RetrievalPrompts(**fields)
    assert "\n" not in str(error.value)


def changed(one, tokens, at, text):
    ids = {one.text_of(token): token for token in range(one.shape.input_size)}
    other = tokens.clone()
    other[0, at] = ids[text]
    return other


def test_sequences_that_no_split_draws():
    one = task("retrieval/equations", chains=2, steps=2)
    tokens = tokens_of(one, "b = 0\na = 1\nc = b\nd = a\nWhat is the value of c?")
    assert one.split_of(tokens).tolist() == [0]
    nowhere = [
        changed(one, tokens, 2, "1"),  # a value twice
        changed(one, tokens, 0, "a"),  # a key twice
        changed(one, tokens, 2, "a"),  # no number
        changed(one, tokens, 1, "\n"),
        changed(one, tokens, -2, "a"),  # a question that is asked of another depth
        tokens_of(one, "c = b\nb = 0\na = 1\nd = a\nWhat is the value of c?"),  # steps mixed
    ]
    assert [one.split_of(other).tolist() for other in nowhere] == [[-1]] * len(nowhere)
    assert not one.oracle(changed(one, tokens, 0, "a")).known.any()
    mixed = task("retrieval/equations", chains=2, steps=2, order="shuffled")
    assert mixed.split_of(tokens_of(mixed, "c = b\nb = 0\na = 1\nd = a\nWhat is the value of c?")).tolist() == [0]
    listed = task("retrieval/equations", chains=2, steps=2, order="sorted")
    assert listed.split_of(tokens_of(listed, "b = 0\na = 1\nc = b\nd = a\nWhat is the value of c?")).tolist() == [-1]
