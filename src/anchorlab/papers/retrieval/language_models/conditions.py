"""Retrieval prompts as a chat and as plain text, each with and without the beginning-of-text token."""

from collections.abc import Callable
from dataclasses import dataclass

from anchorlab.engine import Status
from anchorlab.findings import Table
from anchorlab.language.asking import Accuracy, LocalSpeaker, Manner, Request, Turn, accuracy
from anchorlab.language.start import beginning
from anchorlab.papers.retrieval.language_models.answers import LIKELIEST, STEPS, PromptSetting, manner_for, prompts, put


@dataclass(frozen=True)
class Compared:
    """Results of a model on the same questions of a formulation in one prompt style."""

    first: Accuracy  # the accuracy of the first try, as text
    acceptable: float  # the share of first tries that are an acceptable answer
    likely: Accuracy  # the accuracy of the likeliest acceptable answer


Conditions = dict[str, dict[str, Compared]]
"""Results by prompt style, in words, and by formulation."""


def conditions_of(speaker: LocalSpeaker, manner: Manner) -> dict[str, tuple[LocalSpeaker, Manner]]:
    """Return each prompt style that a model supports, by its description.

    Without a chat template there is no chat, and without a beginning-of-text token nothing to leave out. If the
    template itself writes that token, the chat keeps it.
    """
    begin, found = beginning(speaker.tokenizer), dict[str, tuple[LocalSpeaker, Manner]]()
    token = "" if begin is None else f" behind {speaker.tokenizer.convert_ids_to_tokens(begin)}"
    chat = manner.model_copy(update={"chat": True})
    if manner_for(speaker, chat).chat:
        found["chat template"] = speaker, chat
        if token and speaker.ids(Request((Turn("user", "?"),)))[0] != begin:
            found[f"chat template{token}"] = LocalSpeaker(speaker.model, start=True), chat
    plain = manner.model_copy(update={"chat": False})
    if token:
        found[f"plain text{token}"] = LocalSpeaker(speaker.model, start=True), plain
    found["plain text"] = LocalSpeaker(speaker.model, start=False), plain
    return found


def compare(speaker: LocalSpeaker, setting: PromptSetting, report: Callable[[Status], None], what: str) -> Conditions:
    """Ask the first questions of each formulation in every prompt style that the model supports."""
    ways, found, done = conditions_of(speaker, setting.manner), Conditions(), 0
    total = len(ways) * len(STEPS) * setting.conditions
    for words, (one, manner) in ways.items():
        found[words] = {}
        for formulation, steps in STEPS.items():
            report(Status(total, done, f"{what}, {words}"))
            task = prompts(formulation, steps=steps)
            questions = task.questions(setting.conditions, setting.seed)
            worked = task.questions(manner.examples, setting.seed, "train")
            answers = put(one, questions, manner, worked, 1, True)
            guessing = questions[0].chance
            found[words][formulation] = Compared(
                accuracy([answer.asked.right for answer in answers], guessing),
                sum(answer.asked.first is not None for answer in answers) / len(answers),
                accuracy([answer.likely[LIKELIEST] for answer in answers], guessing),
            )
            done += len(questions)
    return found


def conditions_table(conditions: Conditions) -> Table:
    """Return a table with a row for each prompt style and formulation."""
    first = next(iter(next(iter(conditions.values())).values())).first
    rows: list[tuple[str | float, ...]] = []
    for words, own in conditions.items():
        for formulation, one in own.items():
            shares = [value for found in (one.first, one.likely) for value in (found.share, found.low, found.high)]
            rows.append((words, formulation, one.acceptable, *shares, one.first.guessing))
    return Table(
        title="Chat template and the token that begins a text",
        caption=f"The same {first.questions} questions of each formulation in every manner, asked once. Acceptable is "
        "the share of texts that give an acceptable answer; right the share of right texts, and likely the share of "
        "questions whose likeliest acceptable answer is right, with the ends of their 95 % intervals.",
        columns=("manner", "formulation", "acceptable", "right", "from", "to", "likely", "from", "to", "guessing"),
        rows=tuple(rows),
    )
