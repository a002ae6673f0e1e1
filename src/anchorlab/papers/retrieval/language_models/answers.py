"""Answers of a language model to retrieval prompts, in every setting that the study compares."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from anchorlab.engine import Status
from anchorlab.errors import SpecError
from anchorlab.language import asking
from anchorlab.language.asking.local import batches
from anchorlab.papers.pretrained.opening import TINY, ModelSetting
from anchorlab.tasks import Question, RetrievalPrompts, task

Error = Literal["right", "another chain", "a step of the chain", "another word", "nothing"]
ERRORS: tuple[Error, ...] = get_args(Error)
"""What a first answer is: right; the end of another chain; a word on the way to the answer, such as the value one step
too early; another word of the premises; or none of these."""

Scored = dict[asking.Scoring, tuple[bool, ...]]
"""For each way of scoring, whether each question's right candidate is the best; empty for an endpoint."""

LIKELIEST: asking.Scoring = "sum"
"""The way of scoring that finds the likeliest acceptable answer."""

STEPS = {"equations": 5, "lives-with": 5, "kingdoms": 5, "functions": 2, "relatives": 4}
"""The formulations with the number of steps of the paper's examples."""


BEGUN = asking.Manner(begun=True)
"""A chat in which the answer is begun for the model."""


@dataclass(frozen=True)
class PromptSetting(ModelSetting):
    """The number of questions, and how they are asked; `model` may name several models, separated by commas."""

    questions: int = 200  # the number of questions for each formulation
    # the number of questions for each number of steps of the equations, each depth, order and number of chains
    deep: int = 20
    steps: tuple[int, ...] = tuple(range(1, 11))  # the numbers of steps of the equations
    chains: tuple[int, ...] = (2, 4, 8)  # the numbers of chains to compare, with `compared_steps` steps
    compared_steps: int = 2
    tries: int = 3  # the most times a question is asked until the answer is acceptable
    # the style of the prompts; a model on this machine without a chat template gets plain text
    manner: asking.Manner = BEGUN
    # the number of questions for each formulation to repeat in other styles: as a chat and as plain text, each with and
    # without the beginning-of-text token
    conditions: int = 20
    seed: int = 1000

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models."""
        names = tuple(name.strip() for name in self.model.split(","))
        if not all(names) or len(set(names)) < len(names):
            raise SpecError("model", f"{self.model!r} has a name twice or an empty one", "write NAME,NAME")
        if len(names) > 1 and self.revision is not None:
            raise SpecError("revision", f"is given for {len(names)} models", "ask one model, or leave it out")
        return names


SMOKE = PromptSetting(
    TINY,
    questions=1,
    deep=1,
    steps=(1, 2),
    chains=(2,),
    compared_steps=1,
    tries=2,
    manner=asking.Manner(chat=False, tokens=3),
    conditions=1,
)


@dataclass(frozen=True)
class Answered:
    """The answers of one model."""

    formulations: dict[str, tuple[asking.Asked, ...]]  # answers to the questions of each formulation
    steps: dict[int, tuple[asking.Asked, ...]]  # answers to equations of each number of steps
    depths: dict[int, tuple[asking.Asked, ...]]  # answers to the same equations, asked at each depth
    orders: dict[str, tuple[asking.Asked, ...]]  # answers to equations with premises in each order
    chains: dict[int, tuple[asking.Asked, ...]]  # answers to equations of each number of chains
    scored: dict[str, Scored]  # the likelihoods of each formulation's candidates; empty for an endpoint
    steps_scored: dict[int, Scored]  # the same for equations of each number of steps

    def of(self, formulation: str) -> asking.Results:
        """Return a summary of the answers to a formulation."""
        return asking.results(self.formulations[formulation])

    def likely(self, formulation: str) -> asking.Accuracy | None:
        """Return how often the likeliest acceptable answer to a formulation is right; None for an endpoint."""
        if not self.scored:
            return None
        return asking.accuracy(self.scored[formulation][LIKELIEST], self.formulations[formulation][0].question.chance)


def answer(speaker: asking.Speaker, setting: PromptSetting, report: Callable[[Status], None], what: str) -> Answered:
    """Ask a model all questions of a setting."""
    longest = min(STEPS["equations"], max(setting.steps))
    asked_depths = range(1, longest + 1)
    plans: list[tuple[str, Any, RetrievalPrompts, int]] = [
        *(("formulations", name, prompts(name, steps=steps), setting.questions) for name, steps in STEPS.items()),
        *(("steps", steps, _equations(steps), setting.deep) for steps in setting.steps),
        *(("depths", depth, _equations(longest, asked_steps=(depth,)), setting.deep) for depth in asked_depths),
        *(
            ("orders", order, _equations(setting.compared_steps, order=order), setting.deep)
            for order in ("steps", "shuffled", "sorted")
        ),
        *(
            ("chains", chains, _equations(setting.compared_steps, chains=chains), setting.deep)
            for chains in setting.chains
        ),
    ]
    manner = manner_for(speaker, setting.manner)
    groups = [(name, key, one, one.questions(n, setting.seed)) for name, key, one, n in plans]
    worked = {one: one.questions(manner.examples, setting.seed, "train") for *_, one, _ in groups}
    total = len({question for *_, own in groups for question in own})
    found: dict[str, dict[Any, tuple[asking.Asked, ...]]] = {name: {} for name, *_ in groups}
    scored: dict[str, dict[Any, Scored]] = {"formulations": {}, "steps": {}}
    known: dict[Question, Answer] = {}  # the groups overlap
    for name, key, one, questions in groups:
        status = Status(total, len(known), f"{what}: {one.name or one.formulation}")
        report(status)
        new = [question for question in dict.fromkeys(questions) if question not in known]
        told = partial(report_answers, report, status)
        answers = put(speaker, new, manner, worked[one], setting.tries, name in scored, told)
        known |= dict(zip(new, answers, strict=True))
        found[name][key] = tuple(known[question].asked for question in questions)
        if isinstance(speaker, asking.LocalSpeaker) and name in scored:
            own = [known[question].likely for question in questions]
            scored[name][key] = {how: tuple(one[how] for one in own) for how in asking.SCORINGS}
    return Answered(**found, scored=scored["formulations"], steps_scored=scored["steps"])


def manner_for(speaker: asking.Speaker, manner: asking.Manner) -> asking.Manner:
    """Return a prompt style that the model supports: plain text for a local model without a chat template."""
    plain = isinstance(speaker, asking.LocalSpeaker) and not speaker.tokenizer.chat_template
    return manner.model_copy(update={"chat": False}) if plain else manner


def report_answers(report: Callable[[Status], None], before: Status, answered: int, of: int) -> None:
    """Report the status `before` with `answered` more questions done."""
    report(replace(before, done=before.done + answered))


@dataclass(frozen=True)
class Answer:
    """A model's answer to a question and, by each way of scoring, whether the right candidate is the likeliest."""

    asked: asking.Asked
    likely: dict[asking.Scoring, bool]


def put(
    speaker: asking.Speaker,
    questions: Sequence[Question],
    manner: asking.Manner,
    worked: Sequence[Question],
    tries: int,
    scored: bool,
    told: Callable[[int, int], None] = lambda answered, of: None,
) -> list[Answer]:
    """Ask a model questions and, with `scored` and a local model, also score their candidates.

    Retries and scores follow batch by batch, while the model's cache still holds what it read.
    """
    if not isinstance(speaker, asking.LocalSpeaker):
        asked = asking.ask(speaker, questions, manner, worked, tries, progress=told)
        return [Answer(one, {}) for one in asked]
    found: dict[int, Answer] = {}
    for place, batch in enumerate(batches([speaker.ids(manner.request(one, worked)) for one in questions])):
        some = [questions[index] for index in batch]
        asked = asking.ask(speaker, some, manner, worked, tries, seed=place, progress=False)
        likely = _scored(speaker, some, manner, worked) if scored else [{}] * len(some)
        found |= dict(zip(batch, map(Answer, asked, likely), strict=True))
        told(len(found), len(questions))
    return [found[index] for index in range(len(questions))]


def _scored(
    speaker: asking.LocalSpeaker, questions: Sequence[Question], manner: asking.Manner, worked: Sequence[Question]
) -> list[dict[asking.Scoring, bool]]:
    """Return whether the answer to each question is the best candidate, by each way of scoring."""
    found = asking.likelihoods(
        speaker,
        [manner.request(one, worked) for one in questions],
        [one.candidates for one in questions],
        [manner.without_premises(one, worked) for one in questions],
    )
    best = {how: found.choose(how).tolist() for how in asking.SCORINGS}
    return [
        {how: one.candidates[places[index]] == one.answer for how, places in best.items()}
        for index, one in enumerate(questions)
    ]


def error_of(asked: asking.Asked) -> Error:
    """Return the kind of error in the first answer to a question, or that it is right."""
    question, reply = asked.question, asked.replies[0]
    if reply.answer is not None:
        return "right" if reply.answer == question.answer else "another chain"
    rest = reply.text.strip().removeprefix(question.begun).split()
    said = _plain(rest[0]) if rest else ""  # the first word after the begun answer, which the reply may repeat
    if said in {_plain(word) for word in question.path}:
        return "a step of the chain"
    return "another word" if said in {_plain(word) for word in question.text.split()} else "nothing"


def _plain(word: str) -> str:
    return word.strip("*\"'.,;:!?()[]").casefold()


def prompts(name: str, **options: Any) -> RetrievalPrompts:
    """Return the task of a formulation."""
    found = task(f"retrieval/{name}", **options)
    assert isinstance(found, RetrievalPrompts)
    return found


def _equations(steps: int, **options: Any) -> RetrievalPrompts:
    return prompts("equations", steps=steps, **options)
