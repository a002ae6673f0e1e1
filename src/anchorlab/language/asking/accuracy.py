"""How often a model is right: the accuracy with its interval, the guessing level and the favourite answer."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.language.asking.ask import Asked


@dataclass(frozen=True)
class Accuracy:
    """The share of right answers.

    Fields
        right, questions: the numbers of right answers and of questions
        low, high: the 95 % interval of the share (Wilson's)
        guessing: the share that guessing among the acceptable answers gets right
    """

    right: int
    questions: int
    low: float
    high: float
    guessing: float

    @property
    def share(self) -> float:
        """The share of right answers."""
        return self.right / self.questions

    @property
    def beats_guessing(self) -> bool:
        """Whether guessing lies below the interval."""
        return self.low > self.guessing


def accuracy(right: Sequence[bool], guessing: float) -> Accuracy:
    """Return the share of right answers with its 95 % interval.

    Errors: `SpecError` without answers.
    """
    if not right:
        raise SpecError("questions", "there are none", "ask at least one")
    from scipy.stats import binomtest  # takes a second to import

    interval = binomtest(sum(right), len(right)).proportion_ci(0.95, method="wilson")
    return Accuracy(sum(right), len(right), float(interval.low), float(interval.high), guessing)


@dataclass(frozen=True)
class Results:
    """Summary of a model's answers to questions of one formulation.

    Fields
        accepted: the accuracy of the first acceptable answer of each question; a question without one is wrong
        first: the accuracy of the first try
        favourite: the most frequent answer's share of all acceptable answers; 1 for a model that always gives the same
            answer
        refused, other: the shares of tries that were refusals, and that were neither refusals nor acceptable answers
        tries: the mean number of tries
    """

    accepted: Accuracy
    first: Accuracy
    favourite: float
    refused: float
    other: float
    tries: float


def results(asked: Sequence[Asked]) -> Results:
    """Summarise a model's answers. Errors: `SpecError` without questions."""
    guessing = asked[0].question.chance if asked else 0.0
    accepted = accuracy([one.right for one in asked], guessing)
    answers = Counter(one.answer for one in asked if one.answer is not None)
    kinds = Counter(reply.kind for one in asked for reply in one.replies)
    return Results(
        accepted=accepted,
        first=accuracy([one.first == one.question.answer for one in asked], guessing),
        favourite=max(answers.values(), default=0) / max(1, answers.total()),
        refused=kinds["refusal"] / kinds.total(),
        other=kinds["other"] / kinds.total(),
        tries=kinds.total() / len(asked),
    )
