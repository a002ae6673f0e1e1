"""Ask a model questions until it gives acceptable answers (section 4 of the paper), and keep every reply."""

from collections.abc import Sequence
from dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.language.asking.prompt_style import Manner
from anchorlab.language.asking.reply import Reply, read_reply
from anchorlab.language.asking.request import Speaker
from anchorlab.progress import Counted, counted
from anchorlab.rng import child_seed
from anchorlab.tasks import Question


@dataclass(frozen=True)
class Asked:
    """A question with the model's reply to each try."""

    question: Question
    replies: tuple[Reply, ...]

    @property
    def first(self) -> str | None:
        """The answer of the first try; None if it is not acceptable."""
        return self.replies[0].answer

    @property
    def answer(self) -> str | None:
        """The first acceptable answer, None if no try gave one."""
        return next((reply.answer for reply in self.replies if reply.answer is not None), None)

    @property
    def right(self) -> bool:
        """Whether the first acceptable answer is right."""
        return self.answer == self.question.answer


def ask(
    speaker: Speaker,
    questions: Sequence[Question],
    manner: Manner,
    worked: Sequence[Question] = (),
    tries: int = 1,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Counted = None,
) -> tuple[Asked, ...]:
    """Ask each question until an answer is acceptable, at most `tries` times; each round sends all open questions.

    Args:
        speaker: a local model or an endpoint
        questions: what to ask
        manner: how to ask
        worked: the questions that serve as worked examples
        tries: the maximum number of tries for a question
        temperature: the temperature of the first try; 0 for the likeliest text. Further tries use this temperature too,
            or 1 if it is 0, because the likeliest text would be the same again
        seed: the seed of the sampled texts
        progress: called during the first tries with the number of questions answered and their total; None shows
            progress on a terminal and in a notebook, False nowhere

    Errors: `SpecError` for no tries, and for fewer worked examples than the manner needs.
    """
    if tries < 1:
        raise SpecError("tries", f"{tries} tries", "ask at least once")
    if len(worked) < manner.examples:
        raise SpecError("examples", f"{manner.examples}, but {len(worked)} are given", "give more, or ask for fewer")
    replies: list[list[Reply]] = [[] for _ in questions]
    open_ones = list(range(len(questions)))
    for time in range(tries):
        warm = temperature if time == 0 or temperature > 0 else 1.0
        requests = [
            manner.request(questions[index], worked, warm, child_seed(seed, "try", time, index) % 2**31)
            for index in open_ones
        ]
        with counted("asking", progress if time == 0 else False) as tell:
            came = speaker.say(requests, tell)
        for index, said in zip(open_ones, came, strict=True):
            one = questions[index]
            replies[index].append(read_reply(said, one.candidates, one.begun, continued=manner.begun))
        open_ones = [index for index in open_ones if replies[index][-1].kind != "answer"]
        if not open_ones:
            break
    return tuple(Asked(one, tuple(own)) for one, own in zip(questions, replies, strict=True))
