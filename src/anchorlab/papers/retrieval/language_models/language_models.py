"""Retrieval prompts: language models follow chains of premises in words.

A question names the end of a chain of premises and asks for its beginning: equations, people who live with others,
fictional kingdoms, tables of functions, and relatives. Several chains are interleaved, so that no answer can be guessed
from its kind. The study asks a model each formulation, and equations of growing depth, until an answer is acceptable,
and classifies wrong answers. It also scores which acceptable answer the model finds likeliest: a model that says
something else may still know the answer. The paper's claims are on large models; a model that fails at a single step is
not judged by them.

Source: stacked attention heads, section 4, appendix A and Figure 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from anchorlab.findings import Table, at_least
from anchorlab.language.asking import Asked, LocalSpeaker, Manner, accuracy, results
from anchorlab.papers.pretrained.opening import described_speaker, open_speaker, untrained_speaker
from anchorlab.papers.retrieval.language_models.accuracies import figures, tables
from anchorlab.papers.retrieval.language_models.answers import LIKELIEST, SMOKE, STEPS, Answered, PromptSetting, answer
from anchorlab.papers.retrieval.language_models.conditions import Conditions, compare, conditions_table
from anchorlab.studies import ObservationContext, Observed, Profile, Study
from anchorlab.studies.claim import Measurement, claim, claims, measures_in, over, precondition

EASY = 5  # the equations that the paper finds solved almost perfectly have up to this many steps
_CONTROLS = 20  # an untrained model is asked this many times fewer questions


@dataclass(frozen=True, kw_only=True)
class ObservedAnswers(Observed[Answered]):
    """The answers of all models; claims are about the first."""

    answers: dict[str, Answered]  # by the model's name
    # results of the first model in other prompt styles; empty for a model on a server
    conditions: Conditions = field(default_factory=dict)


def observe(setting: PromptSetting, context: ObservationContext) -> ObservedAnswers:
    """Ask the setting's models and, if the first is on this machine, an untrained model of the same architecture."""
    answers, words, untrained, conditions = dict[str, Answered](), list[str](), None, Conditions()
    for name in setting.models:
        one = replace(setting, model=name)
        speaker = open_speaker(one, context)
        label = name if speaker.name in answers else speaker.name
        answers[label] = answer(speaker, setting, context.report, f"asking {label}")
        if not words and (control := untrained_speaker(speaker)) is not None:
            untrained = answer(control, _fewer(setting), context.report, "asking an untrained model")
        if not words and isinstance(speaker, LocalSpeaker) and setting.conditions:
            conditions = compare(speaker, setting, context.report, f"asking {label}")
        words.append(described_speaker(one, speaker))
    return ObservedAnswers(
        seen=next(iter(answers.values())),
        untrained=untrained,
        model="; ".join(words),
        seeds=str(setting.seed),
        answers=answers,
        conditions=conditions,
    )


def _fewer(setting: PromptSetting) -> PromptSetting:
    """Return the setting for an untrained model: fewer questions and one try, since it gives no acceptable answer."""
    return replace(
        setting,
        questions=-(-setting.questions // _CONTROLS),
        deep=-(-setting.deep // _CONTROLS),
        steps=tuple(step for step in setting.steps if step <= EASY),
        tries=1,
    )


@precondition("section 4 and Fig 2", "almost perfectly", at_least(0.5))
def one_step(seen: Answered) -> Measurement:
    """The model answers equations of one step, twice as often as by guessing.

    Share of equations of one step whose first acceptable answer is right; guessing gives 0.25.
    """
    return over(torch.tensor([one.right for one in seen.steps.get(1, ())]), "questions")


@claim("section 4 and Fig 2", "almost perfectly", at_least(0.9))
def short_equations(seen: Answered) -> Measurement:
    """Equations of up to five steps are solved almost perfectly.

    Share of equations of 1 to {EASY} steps whose first acceptable answer is right.
    """
    asked = [one for steps, own in seen.steps.items() if steps <= EASY for one in own]
    scored = [own[LIKELIEST] for steps, own in seen.steps_scored.items() if steps <= EASY]
    return _share(asked, [right for own in scored for right in own])


class Formulation(NamedTuple):
    """A formulation of the questions: its name, the subject and verb of its claim, and what the questions are about."""

    name: str
    subject: str
    about: str


_WELL = (
    Formulation("lives-with", "Lives-with questions of five steps are", "who lives with whom"),
    Formulation("kingdoms", "Kingdoms questions of five steps are", "fictional kingdoms"),
    Formulation("functions", "Conditional retrieval with functions is", "values of functions"),
    Formulation("relatives", "Conditional retrieval with relatives is", "homes of relatives"),
)


@claims("section 4 and Fig 2", "great performance", at_least(0.75), {one.name: one for one in _WELL})
def answered_well(seen: Answered, of: Formulation) -> Measurement:
    """{of.subject} answered well.

    Share of questions about {of.about} whose first acceptable answer is right.
    """
    return _share(seen.formulations[of.name], seen.scored.get(of.name, {}).get(LIKELIEST, ()))


@claim("section 2 (Q2), section 4 and Fig 2", "able to solve such tasks without specific fine-tuning", at_least(1))
def better_than_guessing(seen: Answered) -> Measurement:
    """Every formulation is answered better than by guessing.

    Share of the five formulations in which guessing lies below the 95 % interval of the accuracy.
    """
    better = [name for name in STEPS if seen.of(name).accepted.beats_guessing]
    return Measurement(len(better) / len(STEPS), detail=", ".join(better) or "none")


def _share(asked: Sequence[Asked], likeliest: Sequence[bool]) -> Measurement:
    """Return the share of right answers; the detail gives the share by likelihood, to tell format from ignorance."""
    detail = f"guessing {results(asked).accepted.guessing:.3g}"
    if likeliest:
        found = accuracy(likeliest, asked[0].question.chance)
        detail += f"; by likelihood {found.share:.3g}, 95 % interval {found.low:.2f} to {found.high:.2f}"
    return over(torch.tensor([one.right for one in asked]), "questions", detail=detail)


def _tables(observed: ObservedAnswers) -> list[Table]:
    return [*tables(observed.answers), *([conditions_table(observed.conditions)] if observed.conditions else [])]


STUDY = Study(
    "retrieval/language-models",
    __doc__,
    measures_in(__name__),
    draws=[lambda observed: figures(observed.answers), _tables],
    profiles={
        "quick": Profile(
            PromptSetting(),
            "SmolLM2-135M-Instruct, quantised to 4 bits (Q4_1), in place of the paper's large models; 200 questions of "
            "each formulation, 20 of each other kind; through its chat template, with the answer begun; the likeliest "
            "text, then samples, at most three tries.",
        ),
        "quick-unbegun": Profile(
            PromptSetting(manner=Manner()),
            "As quick, but no answer is begun, for services that cannot continue a begun answer.",
        ),
        "paper": Profile(
            PromptSetting(questions=500, deep=500, tries=20, manner=Manner()),
            "500 questions of each kind, as in the paper; only Figure 2 shows which models it asked.",
        ),
    },
    smoke=SMOKE,
    observe=observe,
)
